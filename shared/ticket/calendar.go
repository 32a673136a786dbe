package ticket

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"handler/function/shared/catalog"
	"handler/function/shared/text"
)

// Calendar writes the ticket as an iCalendar file (RFC 5545) with one event.
// The same booking gives the same UID, so that importing it again replaces it.
func Calendar(t *Ticket) []byte {
	var b strings.Builder
	line := func(name, value string) { fold(&b, name+":"+value) }
	line("BEGIN", "VCALENDAR")
	line("VERSION", "2.0")
	line("PRODID", "-//Holdfast//Ticket//EN")
	line("METHOD", "PUBLISH")
	line("BEGIN", "VEVENT")
	line("UID", fmt.Sprintf("%s@holdfast", t.Locator))
	line("DTSTAMP", utc(t.Issued))
	start, timed := t.day()
	end := start.Add(time.Hour)
	if t.To.Time != nil {
		end = *t.To.Time
	}
	if timed && t.From.Time != nil && t.Kind != catalog.Stay {
		line("DTSTART", utc(start))
		if end.After(start) {
			line("DTEND", utc(end))
		}
	} else {
		line("DTSTART;VALUE=DATE", start.Format("20060102"))
		if t.To.Time != nil && end.After(start) {
			line("DTEND;VALUE=DATE", end.Format("20060102"))
		}
	}
	summary := t.Heading()
	if t.Kind == catalog.Train {
		summary += ": " + t.From.Name + " → " + t.To.Name
	}
	line("SUMMARY", escape(summary))
	if t.From.Name != "" {
		line("LOCATION", escape(t.From.Name))
	}
	line("DESCRIPTION", escape(strings.Join(t.describe(), "\n")))
	line("STATUS", "CONFIRMED")
	line("END", "VEVENT")
	line("END", "VCALENDAR")
	return []byte(b.String())
}

// describe is the ticket in a few lines of text.
func (t *Ticket) describe() []string {
	lines := []string{text.Sprintf(t.Lang, "Booking code: %s", t.Locator)}
	if w := when(t.Lang, t.From); w != "" {
		lines = append(lines, t.From.Name+"  "+w)
	} else if d, ok := t.day(); ok {
		lines = append(lines, strings.TrimSpace(t.From.Name+"  "+date(t.Lang, d)))
	}
	if t.Kind != catalog.Show || t.To.Time != nil {
		lines = append(lines, strings.TrimSpace(t.To.Name+"  "+when(t.Lang, t.To)))
	}
	for i := range t.Seats {
		s := &t.Seats[i]
		lines = append(lines, strings.TrimSpace(t.where(s)+"  "+s.Passenger))
	}
	return append(lines, text.Sprintf(t.Lang, "Price: %s", t.Price.String()))
}

// where names a seat with its class, in words.
func (t *Ticket) where(s *Seat) string {
	switch {
	case s.Number == 0:
		return t.Class + ", " + place(t, s)
	case s.Coach == "":
		return text.Sprintf(t.Lang, "%s, seat %s", t.Class, s.Seat)
	case t.Kind == catalog.Train:
		return text.Sprintf(t.Lang, "%s, coach %s, seat %s", t.Class, s.Coach, s.Seat)
	}
	return text.Sprintf(t.Lang, "%s, section %s, seat %s", t.Class, s.Coach, s.Seat)
}

func utc(t time.Time) string { return t.UTC().Format("20060102T150405Z") }

var escapes = strings.NewReplacer("\\", "\\\\", ";", "\\;", ",", "\\,", "\r\n", "\\n", "\n", "\\n", "\r", "\\n")

func escape(s string) string { return escapes.Replace(s) }

// fold breaks a content line after at most 75 bytes, between characters.
func fold(b *strings.Builder, s string) {
	width := 75
	for len(s) > width {
		cut := width
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		b.WriteString(s[:cut] + "\r\n ")
		s, width = s[cut:], 74
	}
	b.WriteString(s + "\r\n")
}
