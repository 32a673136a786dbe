package ticket

import (
	"fmt"
	"strings"
	"testing"

	"handler/function/shared/booking"
	"handler/function/shared/ticket"
)

// exchange gives a booking other seats on legs from..to.
func (w *world) exchange(number int64, from, to int, seats ...int) {
	w.Helper()
	var code string
	w.scan(&code, `SELECT booking_exchange($1, $2, 'ana', 'economy', $3, $4, $5, NULL, $6, $7, now() + interval '1 hour', false, '') ->> 'code'`,
		w.sale, number, from, to, seats, len(seats), 12900*len(seats))
	if code != "exchanged" {
		w.Fatalf("exchange: %s", code)
	}
}

// After an exchange the old ticket lets nobody in and the new one does, also
// where a seat stays with the booking but is another passenger's now.
func TestExchangedTicket(t *testing.T) {
	for name, c := range map[string]struct {
		from, to int
		seats    []int
		holds    []bool // of the old codes, in order: letter for letter the new one
	}{
		"other seats":             {1, 2, []int{4, 5}, []bool{false, false}},
		"other legs":              {2, 2, []int{1, 2}, []bool{false, false}},
		"a seat changes hands":    {1, 2, []int{2, 3}, []bool{false, false}},
		"the first seat stays":    {1, 2, []int{1, 3}, []bool{true, false}},
		"other legs, other seats": {1, 1, []int{2, 3}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			w := setup(t)
			s := w.service()
			number := w.book(two, booking.Contact{}, 1, 2)
			old := w.codes(number)
			w.exchange(number, c.from, c.to, c.seats...)
			fresh := w.codes(number)
			for i, code := range old {
				if (code == fresh[i]) != c.holds[i] {
					t.Errorf("code %d is the same: %v", i+1, code == fresh[i])
				}
				if c.holds[i] {
					continue
				}
				if a := w.scanned(s, gate, code, fmt.Sprint("old-", i)); a.Result != ticket.Invalid || a.Reason != "changed" {
					t.Errorf("old ticket %d: %+v", i+1, a)
				}
			}
			for i, code := range fresh {
				if a := w.scanned(s, gate, code, fmt.Sprint("new-", i)); a.Result != ticket.Valid || a.Passenger != two[i].Name {
					t.Errorf("new ticket %d: %+v", i+1, a)
				}
				if a := w.scanned(s, gate, code, fmt.Sprint("twice-", i)); a.Result != ticket.Used {
					t.Errorf("new ticket %d twice: %+v", i+1, a)
				}
			}
			// There and back: what is printed now is good, once.
			if n := w.count(`SELECT count(*) FROM check_in WHERE sale_id = $1`, w.sale); n != 2 {
				t.Errorf("%d people are in", n)
			}
		})
	}
}

// The new ticket is sent, and a notice that the old one is void, in the
// customer's language; both name what it is now.
func TestExchangeSent(t *testing.T) {
	w := setup(t)
	number := w.book(two, booking.Contact{Email: "zoe@example.org", Phone: "+1 902 555 0100", Language: "zh-CN"}, 1, 2)
	w.exec(`UPDATE booking SET made_at = now() - interval '1 hour' WHERE sale_id = $1`, w.sale)
	s := drainer{w.service()}
	if did := s.drain(t); did.Done != 1 {
		t.Fatalf("%+v", did)
	}
	first := w.smtp.Mails("zoe@example.org")[0]
	w.exchange(number, 1, 2, 5, 6)
	if did := s.drain(t); did.Done != 2 || did.Failed != 0 {
		t.Fatalf("%+v", did)
	}
	locator := w.ids.Locator(w.sale, number)
	var ticketMail, notice bool
	for _, m := range w.smtp.Mails("zoe@example.org")[1:] {
		switch {
		case strings.Contains(m.Subject, "您的票 "+locator):
			ticketMail = true
			ics := m.Attachments["ticket-"+locator+".ics"]
			if !strings.Contains(m.Text, "5A") || !strings.Contains(m.Text, "6A") || strings.Contains(m.Text, "1A") || len(m.Attachments["ticket-"+locator+".pdf"]) == 0 {
				t.Errorf("ticket: %s", m.Text)
			}
			stamp := func(b []byte) string {
				_, rest, _ := strings.Cut(string(b), "DTSTAMP:")
				return rest[:16]
			}
			if before := first.Attachments["ticket-"+locator+".ics"]; stamp(ics) <= stamp(before) {
				t.Errorf("a calendar would keep the old entry:\n%s\n%s", before, ics)
			}
		case m.Subject == "订单 "+locator+" 已改签":
			notice = true
			if !strings.Contains(m.Text, "3-5A, 3-6A") || !strings.Contains(m.Text, "原票") {
				t.Errorf("notice: %s", m.Text)
			}
		default:
			t.Errorf("a mail %q", m.Subject)
		}
	}
	if !ticketMail || !notice {
		t.Errorf("ticket %v, notice %v", ticketMail, notice)
	}
	if n := len(w.sms.messages()); n != 3 {
		t.Errorf("%d SMS", n)
	}
}
