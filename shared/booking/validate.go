package booking

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"handler/function/shared/problem"
)

// Limits of what a customer may write, in characters. Names are in any script.
const (
	MaxSeats       = 100 // of one booking, as in the catalogue's documents
	maxName        = 200
	maxCategory    = 40
	maxDocument    = 64
	maxEmail       = 254 // RFC 5321
	maxLanguage    = 35  // RFC 5646
	maxGroup       = 64
	maxSeatName    = 40
	maxFieldErrors = 20
)

var (
	emailForm = regexp.MustCompile(`^[^@\s"<>,;]+@[^@\s"<>,;]+\.[^@\s"<>,;.]+$`)
	phoneForm = regexp.MustCompile(`^\+[0-9]{7,15}$`)
	phoneFill = strings.NewReplacer(" ", "", "-", "", "(", "", ")", "", ".", "")
)

// faults gathers wrong fields into one "invalid".
type faults struct{ err *problem.Error }

func (f *faults) add(field, format string, args ...any) {
	switch {
	case f.err == nil:
		f.err = problem.Invalid(field, format, args...)
	case len(f.err.Fields) < maxFieldErrors:
		_ = f.err.And(field, format, args...)
	}
}

func (f *faults) text(field, s string, least, most int) {
	if n := utf8.RuneCountInString(s); n < least || n > most || !printable(s) || least > 0 && strings.TrimSpace(s) == "" {
		f.add(field, "must be %d to %d printable characters", least, most)
	}
}

func (f *faults) problem() error {
	if f.err == nil {
		return nil
	}
	return f.err
}

// printable: no control characters. Marks that join or turn letters are part of
// names in many scripts.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == utf8.RuneError || r == '\u2028' || r == '\u2029'
	}) < 0
}

// CheckPeople checks the passengers and the contact of a booking of so many seats,
// and tidies the contact; "invalid" names each wrong field.
func CheckPeople(list []Passenger, quantity int, contact *Contact) error {
	var f faults
	f.passengers(list, quantity)
	f.contact(contact)
	return f.problem()
}

// passengers checks that there are at most as many as seats, each with a name.
func (f *faults) passengers(list []Passenger, quantity int) {
	if len(list) > quantity {
		f.add("passengers", "must be at most one a seat: %d", quantity)
		return
	}
	for i, p := range list {
		at := fmt.Sprintf("passengers[%d].", i)
		f.text(at+"name", p.Name, 1, maxName)
		f.text(at+"category", p.Category, 0, maxCategory)
		f.text(at+"document", p.Document, 0, maxDocument)
	}
}

// contact checks and tidies a contact.
func (f *faults) contact(c *Contact) {
	c.Phone = phoneFill.Replace(c.Phone)
	if c.Email != "" && (len(c.Email) > maxEmail || !printable(c.Email) || !emailForm.MatchString(c.Email)) {
		f.add("contact.email", "must be an e-mail address")
	}
	if c.Phone != "" && !phoneForm.MatchString(c.Phone) {
		f.add("contact.phone", "must be a phone number with + and country code, 7 to 15 digits")
	}
	if c.Language != "" {
		if _, err := language.Parse(c.Language); err != nil || len(c.Language) > maxLanguage {
			f.add("contact.language", "must be a language tag like en or zh-CN")
		}
	}
}
