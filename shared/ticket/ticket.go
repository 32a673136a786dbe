// Package ticket is what a customer holds after paying: the signed code, the
// paper, the calendar entry, the mail and the SMS, and their check-in at the
// gate.
package ticket

import (
	"fmt"
	"strings"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/money"
	"handler/function/shared/text"
)

// Ticket is everything that is printed for one booking. Times stand in their
// stop's zone.
type Ticket struct {
	Sale    int64
	Booking int64 // the sale's booking number
	Locator string

	Kind        catalog.Kind
	Title       string
	Number      string // of the train; may be empty
	ServiceDate string // YYYY-MM-DD
	From, To    Call
	FirstLeg    int // 1-based, inclusive
	LastLeg     int
	Class       string // its title

	Seats []Seat
	Price money.Amount // of the whole booking
	Lang  text.Lang
	// Issued is when the booking was made; it dates the document and the
	// calendar entry, so that the same booking gives the same file.
	Issued time.Time
}

// Call is where and when the journey, show or stay begins or ends.
type Call struct {
	Name    string
	Time    *time.Time // in the stop's zone; nil when the timetable has none
	Request bool       // the passenger must ask for the stop
}

// Seat is one person's part of a ticket.
type Seat struct {
	Serial    int    // 1 to the number of seats of the booking
	Number    int    // of the seat in the sale; 0 for counted stock
	Name      string // "3-12A"; empty for counted stock
	Coach     string // may be empty
	Seat      string // "12A"
	Passenger string // may be empty
	Category  string // of the passenger; may be empty
	QR        string // signed, see Sign
}

// Heading is the title with the number of the train.
func (t *Ticket) Heading() string {
	if t.Number == "" || strings.Contains(t.Title, t.Number) {
		return t.Title
	}
	if t.Title == "" {
		return t.Number
	}
	return t.Title + " " + t.Number
}

// date writes a day for people, with the weekday.
func date(l text.Lang, t time.Time) string {
	if l == text.Chinese {
		return fmt.Sprintf("%d年%d月%d日 %s", t.Year(), t.Month(), t.Day(), chineseWeekdays[t.Weekday()])
	}
	return t.Format("Mon 2 Jan 2006")
}

var chineseWeekdays = [...]string{"周日", "周一", "周二", "周三", "周四", "周五", "周六"}

// zone names a time's zone: its short name where it has one, and the offset,
// which a traveller needs where two zones have the same name.
func zone(t time.Time) string {
	name, offset := t.Zone()
	sign := "+"
	if offset < 0 {
		sign, offset = "-", -offset
	}
	utc := fmt.Sprintf("UTC%s%d", sign, offset/3600)
	if m := offset % 3600 / 60; m != 0 {
		utc += fmt.Sprintf(":%02d", m)
	}
	if name == "UTC" || name == "" || strings.ContainsAny(name[:1], "+-0123456789") {
		return utc
	}
	return name + ", " + utc
}

// day is the date a ticket is for: of its departure where that is known, else
// the service date.
func (t *Ticket) day() (time.Time, bool) {
	if t.From.Time != nil {
		return *t.From.Time, true
	}
	d, err := time.Parse(time.DateOnly, t.ServiceDate)
	return d, err == nil
}

// when is the date and, where there is one, the time of a call in one line.
func when(l text.Lang, c Call) string {
	if c.Time == nil {
		return ""
	}
	return date(l, *c.Time) + " " + c.Time.Format("15:04") + " (" + zone(*c.Time) + ")"
}
