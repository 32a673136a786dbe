package ticket

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"handler/function/shared/booking"
	"handler/function/shared/outbox"
	"handler/function/tests/harness"
)

var two = []booking.Passenger{{Name: "张伟"}, {Name: "Zoë"}}

// field case 17: two confirmations at the same moment, one mail and one SMS.
// Here: many nudges at two replicas for one row, and again after it is done.
func TestOneMail(t *testing.T) {
	w := setup(t)
	locator := w.ids.Locator(w.sale, w.book(two, booking.Contact{Email: "zoe@example.org", Phone: "+1 902 555 0100", Language: "zh-CN"}, 1, 2))
	replicas := []interface {
		drain(*testing.T) outbox.Did
	}{drainer{w.service()}, drainer{w.service()}}
	var wait sync.WaitGroup
	for i := range 10 {
		wait.Go(func() { replicas[i%2].drain(t) })
	}
	wait.Wait()
	w.eventually("the mail and the SMS", func() bool { return len(w.smtp.Mails("")) > 0 && len(w.sms.messages()) > 0 })
	if did := replicas[0].drain(t); did.Done != 0 {
		t.Errorf("done again: %+v", did)
	}
	mails := w.smtp.Mails("zoe@example.org")
	if len(mails) != 1 || len(w.smtp.Mails("")) != 1 {
		t.Fatalf("%d mails", len(mails))
	}
	m := mails[0]
	if !strings.HasPrefix(m.Subject, "您的票 "+locator+"：Ocean 15") {
		t.Errorf("subject %q", m.Subject)
	}
	for _, want := range []string{"张伟", "Zoë", "Halifax", "13:00 (AST, UTC-4)", "CAD 258.00", "https://tickets.example.org/function/web"} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("no %q in\n%s", want, m.Text)
		}
	}
	pdf, ics := m.Attachments["ticket-"+locator+".pdf"], m.Attachments["ticket-"+locator+".ics"]
	if !bytes.HasPrefix(pdf, []byte("%PDF-")) || len(pdf) > 200<<10 || !bytes.Contains(ics, []byte("BEGIN:VEVENT")) {
		t.Errorf("attachments of %d and %d bytes", len(pdf), len(ics))
	}
	sms := w.sms.messages()
	if len(sms) != 1 || sms[0]["to"] != "+19025550100" || !strings.Contains(sms[0]["text"], "3-1A, 3-2A") {
		t.Errorf("SMS %v", sms)
	}
}

type drainer struct {
	s interface {
		Drain(context.Context) (outbox.Did, error)
	}
}

func (d drainer) drain(t *testing.T) outbox.Did {
	t.Helper()
	did, err := d.s.Drain(t.Context())
	if err != nil {
		t.Error(err)
	}
	return did
}

// A mail that fails is tried again, after three failures there is an alert, and
// the booking stands; when it goes out at last the alert is closed.
func TestMailRetried(t *testing.T) {
	w := setup(t)
	number := w.book(two, booking.Contact{Email: "zoe@example.org", Phone: "+19025550100"}, 1, 2)
	w.smtp.Refuse(func(string) error { return harness.Temporarily() })
	s := drainer{w.service()}
	for try := 1; try <= 3; try++ {
		if did := s.drain(t); did.Failed != 1 {
			t.Fatalf("try %d: %+v", try, did)
		}
		wait := w.count(`SELECT extract(epoch FROM due_at - now())::int FROM outbox WHERE kind = 'ticket'`)
		if want := []int{1, 10, 60}[try-1]; wait > want || wait < want-5 {
			t.Errorf("after try %d due in %d s, want %d", try, wait, want)
		}
		if open := w.count(`SELECT count(*) FROM alert WHERE closed_at IS NULL`); (open > 0) != (try == 3) {
			t.Errorf("after try %d: %d alerts", try, open)
		}
		w.due()
	}
	if w.count(`SELECT count(*) FROM booking WHERE number = $1 AND state = 'booked'`, number) != 1 {
		t.Error("the booking does not stand")
	}
	w.smtp.Refuse(nil)
	if did := s.drain(t); did.Done != 1 {
		t.Errorf("at last: %+v", did)
	}
	if n := len(w.smtp.Mails("")); n != 1 {
		t.Errorf("%d mails", n)
	}
	if n := len(w.sms.messages()); n != 1 {
		t.Errorf("%d SMS: a failing mail sends the SMS again", n)
	}
	if open := w.count(`SELECT count(*) FROM alert WHERE closed_at IS NULL`); open != 0 {
		t.Errorf("%d alerts stay open", open)
	}
}

// A crash after the mail was taken and before its row was finished: the recovery
// point keeps the second try from sending it again.
func TestCrashAfterSending(t *testing.T) {
	w := setup(t)
	w.book(two, booking.Contact{Email: "zoe@example.org", Phone: "+19025550100"}, 1, 2)
	w.sms.fail(true)
	drainer{w.service()}.drain(t) // the mail goes out, the SMS does not
	w.exec(`UPDATE outbox SET done_at = NULL`)
	w.due()
	w.sms.fail(false)
	drainer{w.service()}.drain(t)
	w.exec(`UPDATE outbox SET done_at = NULL`)
	w.due()
	drainer{w.service()}.drain(t)
	if m, s := len(w.smtp.Mails("")), len(w.sms.messages()); m != 1 || s != 1 {
		t.Errorf("%d mails, %d SMS", m, s)
	}
}

// In the window that remains, between the server's taking and our note of it,
// the mail is sent again under the same Message-ID.
func TestCrashBeforeNoting(t *testing.T) {
	w := setup(t)
	w.book(two, booking.Contact{Email: "zoe@example.org"}, 1, 2)
	drainer{w.service()}.drain(t)
	w.exec(`UPDATE delivery SET sent_at = NULL, outcome = NULL`)
	w.exec(`UPDATE outbox SET done_at = NULL`)
	w.due()
	drainer{w.service()}.drain(t)
	mails := w.smtp.Mails("")
	if len(mails) != 2 || mails[0].ID == "" || mails[0].ID != mails[1].ID {
		t.Errorf("%d mails, %v", len(mails), mails)
	}
}

// An address that takes no mail ends in an alert that stays open, not in tries
// without end.
func TestRefusedAddress(t *testing.T) {
	w := setup(t)
	w.book(two, booking.Contact{Email: "nobody@example.org", Phone: "+19025550100"}, 1, 2)
	w.smtp.Refuse(func(string) error { return harness.ForGood() })
	for range 3 {
		drainer{w.service()}.drain(t)
		w.due()
	}
	if w.count(`SELECT count(*) FROM outbox WHERE done_at IS NULL`) != 0 {
		t.Error("still tried")
	}
	if w.count(`SELECT count(*) FROM alert WHERE kind = 'message-refused' AND closed_at IS NULL`) != 1 {
		t.Error("no alert")
	}
	if w.count(`SELECT count(*) FROM alert WHERE detail LIKE '%nobody%'`) != 0 {
		t.Error("the address stands in an alert")
	}
}

// A mail server that is away stops the batch: the other rows are put back
// untouched.
func TestServerAway(t *testing.T) {
	w := setup(t)
	for seat := 1; seat <= 6; seat++ {
		w.book(two[:1], booking.Contact{Email: fmt.Sprintf("p%d@example.org", seat)}, seat)
	}
	w.smtp.URL = "smtp://127.0.0.1:1?from=a@example.org"
	if _, err := w.service().Drain(t.Context()); err == nil {
		t.Error("no error")
	}
	if w.count(`SELECT count(*) FROM outbox WHERE done_at IS NULL`) != 6 {
		t.Error("a row is lost")
	}
}

// What is not booked any more gets no ticket, and who left no address no mail.
func TestNothingToSend(t *testing.T) {
	w := setup(t)
	gone := w.book(two[:1], booking.Contact{Email: "a@example.org"}, 1)
	w.exec(`SELECT cancel_booking($1, $2, 'ana', '', '')`, w.sale, gone)
	w.book(two[:1], booking.Contact{}, 2)
	if did := (drainer{w.service()}).drain(t); did.Done != 2 || len(w.smtp.Mails("")) != 0 {
		t.Errorf("%+v, %d mails", did, len(w.smtp.Mails("")))
	}
}

func TestNotices(t *testing.T) {
	w := setup(t)
	number := w.book(two[:1], booking.Contact{Email: "zoe@example.org", Language: "zh"}, 1)
	w.exec(`UPDATE outbox SET done_at = now()`)
	for _, template := range []string{"lost", "refunded", "double_payment"} {
		w.exec(`INSERT INTO outbox (sale_id, kind, subject, payload) VALUES ($1, 'notify', $2::bigint::text, jsonb_build_object('booking', $2::bigint,
			'template', $3::text, 'data', '{"amount":{"amount":12900,"currency":"CAD"}}'::jsonb))`, w.sale, number, template)
	}
	w.exec(`INSERT INTO outbox (sale_id, kind, subject, payload) VALUES ($1, 'notify', 'x', '{"template":"nonsense"}')`, w.sale)
	if did := (drainer{w.service()}).drain(t); did.Done != 3 || did.Failed != 1 {
		t.Errorf("%+v", did)
	}
	mails := w.smtp.Mails("zoe@example.org")
	if len(mails) != 3 {
		t.Fatalf("%d mails", len(mails))
	}
	for _, m := range mails {
		if !strings.Contains(m.Text, "CAD 129.00") || !strings.Contains(m.Text, "订单") || len(m.Attachments) != 0 {
			t.Errorf("%+v", m)
		}
	}
}

// Hundreds of tickets go out in parallel, each once.
func TestManyInParallel(t *testing.T) {
	w := setup(t)
	first := w.book(two[:1], booking.Contact{Email: "p0@example.org"}, 1)
	const more = 119
	w.exec(`INSERT INTO outbox (sale_id, kind, subject, payload) SELECT sale_id, kind, subject, payload FROM outbox, generate_series(1, $1)`, more)
	_ = first
	var wait sync.WaitGroup
	for range 2 {
		s := drainer{w.service()}
		wait.Go(func() { s.drain(t) })
	}
	wait.Wait()
	w.eventually("all mails", func() bool { return w.count(`SELECT count(*) FROM outbox WHERE done_at IS NULL`) == 0 })
	ids := map[string]bool{}
	for _, m := range w.smtp.Mails("") {
		ids[m.ID] = true
	}
	if len(w.smtp.Mails("")) != more+1 || len(ids) != more+1 {
		t.Errorf("%d mails, %d different", len(w.smtp.Mails("")), len(ids))
	}
}
