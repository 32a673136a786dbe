// Package text is the catalogue of what people read: English, whose format
// strings are the keys, and Chinese. A text without a translation stays
// English.
package text

import (
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/message/catalog"
)

// Lang is a language of the catalogue.
type Lang string

// The languages of the catalogue.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

var (
	builder  = catalog.NewBuilder(catalog.Fallback(language.English))
	matcher  = language.NewMatcher([]language.Tag{language.English, language.Chinese})
	chinese  = map[string]string{}
	printers = map[Lang]*message.Printer{
		English: message.NewPrinter(language.English, message.Catalog(builder)),
		Chinese: message.NewPrinter(language.Chinese, message.Catalog(builder)),
	}
)

// register adds Chinese texts by their English format string; it is called by
// the zh_*.go files of this package alone, before any use.
func register(texts map[string]string) {
	for english, zh := range texts {
		chinese[english] = zh
		if err := builder.SetString(language.Chinese, english, zh); err != nil {
			panic("text: " + english + ": " + err.Error())
		}
	}
}

// Sprintf formats in the language; an unknown language is English.
func Sprintf(l Lang, format string, args ...any) string {
	p, ok := printers[l]
	if !ok {
		p = printers[English]
	}
	return p.Sprintf(format, args...)
}

// Match picks the language for an Accept-Language header or a bare tag.
func Match(accept string) Lang {
	if len(accept) > 200 {
		accept = accept[:200]
	}
	tags, _, err := language.ParseAcceptLanguage(accept)
	if err != nil || len(tags) == 0 {
		return English
	}
	if _, i, c := matcher.Match(tags...); i == 1 && c != language.No {
		return Chinese
	}
	return English
}

// Translated says whether an English format string has a Chinese text.
func Translated(english string) bool { _, ok := chinese[english]; return ok }
