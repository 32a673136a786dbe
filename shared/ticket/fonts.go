package ticket

import (
	"io/fs"

	"github.com/go-text/typesetting/language"

	"handler/function/shared/pdf"
)

// Fonts reads the fonts of a ticket from a folder that holds the files named
// here (functions/ticket/static/fonts). A script that is not listed is still
// tried in every file; what none has is printed as U+FFFD, never as nothing.
func Fonts(dir fs.FS) (*pdf.Fonts, error) {
	const chinese, emoji = "DroidSansFallbackFull.ttf", "NotoEmoji-Regular.ttf"
	return pdf.NewFonts(dir, pdf.Files{
		Text: "NotoSans-Regular.ttf",
		Bold: "NotoSans-Bold.ttf",
		ByScript: map[language.Script]string{
			language.Arabic:              "NotoSansArabic-Regular.ttf",
			language.Armenian:            "NotoSansArmenian-Regular.ttf",
			language.Bengali:             "NotoSansBengali-Regular.ttf",
			language.Bopomofo:            chinese,
			language.Canadian_Aboriginal: "NotoSansCanadianAboriginal-Regular.ttf",
			language.Cherokee:            "NotoSansCherokee-Regular.ttf",
			language.Devanagari:          "NotoSansDevanagari-Regular.ttf",
			language.Ethiopic:            "NotoSansEthiopic-Regular.ttf",
			language.Georgian:            "NotoSansGeorgian-Regular.ttf",
			language.Gujarati:            "NotoSansGujarati-Regular.ttf",
			language.Gurmukhi:            "NotoSansGurmukhi-Regular.ttf",
			language.Han:                 chinese,
			language.Hangul:              "NanumSquare-Regular.ttf",
			language.Hebrew:              "NotoSansHebrew-Regular.ttf",
			language.Hiragana:            chinese,
			language.Kannada:             "NotoSansKannada-Regular.ttf",
			language.Katakana:            chinese,
			language.Khmer:               "NotoSansKhmer-Regular.ttf",
			language.Lao:                 "NotoSansLao-Regular.ttf",
			language.Malayalam:           "NotoSansMalayalam-Regular.ttf",
			language.Myanmar:             "NotoSansMyanmar-Regular.ttf",
			language.Nko:                 "NotoSansNKo-Regular.ttf",
			language.Oriya:               "NotoSansOriya-Regular.ttf",
			language.Sinhala:             "NotoSansSinhala-Regular.ttf",
			language.Tamil:               "NotoSansTamil-Regular.ttf",
			language.Telugu:              "NotoSansTelugu-Regular.ttf",
			language.Thaana:              "NotoSansThaana-Regular.ttf",
			language.Thai:                "NotoSansThai-Regular.ttf",
			language.Tibetan:             "NotoSerifTibetan-Regular.ttf",
			language.Tifinagh:            "NotoSansTifinagh-Regular.ttf",
		},
		Then: []string{emoji, chinese},
	})
}
