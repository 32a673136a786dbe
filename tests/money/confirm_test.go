package money

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/shared/sandbox"
)

func TestPaidAndBooked(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1, 2)
	p := w.pay("a", b)
	if p.State != payment.StatePending || p.Gateway.ClientSecret == "" || p.Gateway.RedirectURL == "" || p.Price.Amount != 2*price {
		t.Errorf("started: %+v", p)
	}
	if d := p.MayExtendUntil.Sub(p.EndsAt); d < 0 || d > 301*time.Second {
		t.Errorf("the hold ends %s before its limit", d)
	}
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	if n := w.outbox("ticket", "true"); n != 1 {
		t.Errorf("%d tickets", n)
	}
	v, err := w.payments.Show(w.ctx, "a", p.Payment)
	if err != nil || v.State != payment.StateSucceeded || v.Checking || v.BookingState != "booked" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := w.payments.Show(w.ctx, "b", p.Payment); !problem.Is(err, problem.NotFound) {
		t.Errorf("another's payment: %v", err)
	}
	w.check()
}

// field case 7: a hold made before closing may be paid until it ends; one that
// has ended is not rescued after closing.
func TestClosing(t *testing.T) {
	w := setup(t, options{})
	in, late := w.hold("a", 1), w.hold("b", 2)
	pl := w.pay("b", late)
	w.exec(`UPDATE sale SET closes_at = now() - interval '1 second' WHERE sale_id = $1`, w.sale)
	p := w.pay("a", in)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(in, "booked")
	w.endHold(late, time.Minute)
	w.act(pl.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(late, "lost")
	w.eventually("refund", func() bool { n, _ := w.refunded(pl.Gateway.Reference); return n == price })
	w.check()
}

// Nothing is paid for past departure, and not in a cancelled sale.
func TestStandings(t *testing.T) {
	w := setup(t, options{})
	cases := []struct {
		name string
		set  string
		code problem.Code
	}{
		{"departed", `UPDATE booking SET departs_at = now() - interval '1 second', ends_at = now() + interval '1 minute' WHERE sale_id = $1 AND number = $2`, problem.SaleClosed},
		{"ended", `UPDATE booking SET made_at = now() - interval '1 hour', ends_at = now() - interval '1 second' WHERE sale_id = $1 AND number = $2`, problem.HoldEnded},
		{"released", `SELECT let_go_booking($1, $2, (SELECT account FROM booking WHERE sale_id = $1 AND number = $2), '', '')`, problem.WrongState},
	}
	for i, c := range cases {
		b := w.hold(c.name, i+1)
		w.exec(c.set, w.sale, b)
		if _, _, err := w.payments.Pay(w.ctx, w.request(c.name, b)); !problem.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", c.name, err, c.code)
		}
	}
	b := w.hold("x", 5)
	if _, _, err := w.payments.Pay(w.ctx, w.request("y", b)); !problem.Is(err, problem.NotFound) {
		t.Errorf("not one's own: %v", err)
	}
	r := w.request("x", b)
	r.Gateway = "stripe"
	if _, _, err := w.payments.Pay(w.ctx, r); !problem.Is(err, problem.Unprocessable) {
		t.Errorf("a gateway the sale has not: %v", err)
	}
	w.exec(`UPDATE sale SET test = false WHERE sale_id = $1`, w.sale)
	if _, _, err := w.payments.Pay(w.ctx, w.request("x", b)); !problem.Is(err, problem.Unprocessable) {
		t.Errorf("the sandbox for a sale that is not a test: %v", err)
	}
	w.exec(`UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`, w.sale)
	if _, _, err := w.payments.Pay(w.ctx, w.request("x", b)); !problem.Is(err, problem.SaleClosed) {
		t.Errorf("cancelled: %v", err)
	}
}

// field case 9: the hold ended, the seat went to another, the success arrives.
// field case 10: that success comes five times, 2xx each time, one refund.
func TestLost(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
	w.endHold(b, time.Minute)
	w.hold("b", 1)
	h := paidEvent("evt-late", p)
	for i := range 5 {
		if i == 3 {
			h.ID = "evt-late-again" // the same news under another id
		}
		if s := w.webhook(h); s != 200 {
			t.Errorf("time %d: %d", i+1, s)
		}
	}
	if s := w.state(b); s != "lost" {
		t.Errorf("state %s", s)
	}
	w.eventually("refund", func() bool { n, _ := w.refunded(p.Gateway.Reference); return n == price })
	w.reconcile()
	if n, times := w.refunded(p.Gateway.Reference); n != price || times != 1 {
		t.Errorf("given back %d in %d", n, times)
	}
	if n := w.outbox("notify", "payload->>'template' = 'lost'"); n != 1 {
		t.Errorf("the customer was told %d times", n)
	}
	v, err := w.payments.Show(w.ctx, "a", p.Payment)
	if err != nil || v.Message != payment.TextReturned || v.State != payment.StateRefunded {
		t.Errorf("%+v, %v", v, err)
	}
	w.check()
}

// field case 11: the hold ended and the seat is still free.
func TestRescue(t *testing.T) {
	w := setup(t, options{})
	for _, moved := range []bool{false, true} {
		account := fmt.Sprint("a", moved)
		seat := 1
		if moved {
			seat = 2
		}
		b := w.hold(account, seat)
		p := w.pay(account, b)
		w.endHold(b, time.Minute)
		if moved { // somebody has noticed the end already
			w.exec(`SELECT expire_ended_holds($1, 10)`, w.sale)
		}
		w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
		w.becomes(b, "booked")
		if n, _ := w.refunded(p.Gateway.Reference); n != 0 {
			t.Errorf("given back %d", n)
		}
	}
	w.check()
}

// What keeps a hold that ended from being rescued.
func TestNoRescue(t *testing.T) {
	w := setup(t, options{})
	cases := []struct {
		name   string
		limit  time.Duration
		change func(b int64)
		amount int64
		reason payment.Reason
		state  string
	}{
		{"past the limit", -time.Millisecond, func(int64) {}, 0, payment.ReasonLate, "lost"},
		{"another amount", time.Minute, func(int64) {}, price - 1, payment.ReasonAmount, "lost"},
		{"the account's limit", time.Minute, func(int64) {
			w.hold("the account's limit", 6)
			w.exec(`UPDATE sale SET account_limit = 1 WHERE sale_id = $1`, w.sale)
		}, 0, payment.ReasonLimit, "lost"},
		{"sale paused", time.Minute, func(int64) {}, 0, "", "booked"}, // a pause stops new holds only
		{"sale cancelled", time.Minute, func(int64) { w.exec(`UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`, w.sale) }, 0, payment.ReasonCancelled, "lost"},
	}
	for i, c := range cases {
		b := w.hold(c.name, i+1)
		p := w.pay(c.name, b)
		w.endHold(b, c.limit)
		if c.name == "sale paused" {
			w.exec(`UPDATE sale SET state = 'paused' WHERE sale_id = $1`, w.sale)
		}
		c.change(b)
		w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Amount: c.amount})
		w.becomes(b, c.state)
		var reason string
		w.scan(&reason, `SELECT COALESCE(reason, '') FROM payment WHERE sale_id = $1 AND booking = $2`, w.sale, b)
		if reason != string(c.reason) {
			t.Errorf("%s: reason %q, want %q", c.name, reason, c.reason)
		}
		w.exec(`UPDATE sale SET state = 'open' WHERE sale_id = $1 AND state = 'paused'`, w.sale)
	}
	w.reconcile()
	w.check()
}

// A wrong amount for a live hold goes back, and the hold stays.
func TestWrongAmount(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Amount: price - 1})
	w.eventually("refund", func() bool { n, _ := w.refunded(p.Gateway.Reference); return n == price-1 })
	if s := w.state(b); s != "held" {
		t.Errorf("state %s", s)
	}
	again := w.pay("a", b)
	w.act(again.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	w.check()
}

// field case 13: a decline, then another card: a new attempt has a new key.
func TestDeclinedThenAnotherCard(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	first := w.pay("a", b)
	w.act(first.Gateway.Reference, sandboxgw.Act{Do: "fail"})
	w.eventually("failed", func() bool {
		return w.count(`SELECT count(*) FROM payment WHERE sale_id = $1 AND state = 'failed'`, w.sale) == 1
	})
	second := w.pay("a", b)
	if second.Payment == first.Payment || second.Gateway.Reference == first.Gateway.Reference {
		t.Fatal("the second attempt is the first again")
	}
	w.act(second.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	// The first can no longer be charged.
	w.reconcile()
	c, err := w.client.LookUp(w.ctx, first.Gateway.Reference)
	if err != nil || c.Status != payment.Cancelled {
		t.Errorf("the first is %+v, %v", c, err)
	}
	w.check()
}

// field case 15: failed, then succeeded, the same payment: one booking, and
// meanwhile "we are still checking".
func TestFailedIsNotFinal(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "fail"})
	w.eventually("failed", func() bool {
		return w.count(`SELECT count(*) FROM payment WHERE sale_id = $1 AND state = 'failed'`, w.sale) == 1
	})
	v, err := w.payments.Show(w.ctx, "a", p.Payment)
	if err != nil || !v.Checking || v.Message != payment.TextChecking || v.State != payment.StateFailed {
		t.Errorf("%+v, %v", v, err)
	}
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	// An older "failed" that arrives now changes nothing.
	h := paidEvent("evt-old", p)
	h.Type = payment.PaymentFailed
	w.webhook(h)
	v, err = w.payments.Show(w.ctx, "a", p.Payment)
	if err != nil || v.State != payment.StateSucceeded {
		t.Errorf("%+v, %v", v, err)
	}
	if n := w.outbox("ticket", "true"); n != 1 {
		t.Errorf("%d tickets", n)
	}
	w.check()
}

// field case 16: two charges for one booking: the second goes back, the booking
// stays, also when the gateway reports that refund.
func TestTwoPayments(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	first, second := w.pay("a", b), w.pay("a", b)
	w.act(first.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	w.act(second.Gateway.Reference, sandboxgw.Act{Do: "succeed", Force: true})
	w.eventually("refund", func() bool { n, _ := w.refunded(second.Gateway.Reference); return n == price })
	w.eventually("the refund's event", func() bool {
		return w.count(`SELECT count(*) FROM gateway_event WHERE event_type = 'refund.succeeded' AND applied_at IS NOT NULL`) == 1
	})
	if s := w.state(b); s != "booked" {
		t.Errorf("state %s", s)
	}
	if n, _ := w.refunded(first.Gateway.Reference); n != 0 {
		t.Errorf("the first was given back too: %d", n)
	}
	if n := w.outbox("notify", "payload->>'template' = 'double_payment'"); n != 1 {
		t.Errorf("told %d times", n)
	}
	w.check()
}

// field case 17: the browser's return (which asks the gateway) and the webhook
// at the same moment: booked once, one mail.
func TestReturnAndWebhookAtOnce(t *testing.T) {
	w := setup(t, options{})
	for i := range 6 {
		account := fmt.Sprint("a", i)
		b := w.hold(account, i+1)
		p := w.pay(account, b)
		w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
		w.exec(`UPDATE payment SET ask_at = now() - interval '1 minute' WHERE sale_id = $1 AND ask_at IS NOT NULL`, w.sale)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := w.payments.Show(w.ctx, account, p.Payment); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() { w.webhook(paidEvent(fmt.Sprint("evt-", i), p)) })
		both.Wait()
		if s := w.state(b); s != "booked" {
			t.Errorf("state %s", s)
		}
		if n := w.outbox("ticket", fmt.Sprintf("subject = '%d'", b)); n != 1 {
			t.Errorf("%d mails", n)
		}
	}
	w.check()
}

// field case 18: the webhook comes before anything of ours knows its payment;
// it is kept and ends paid. field case 19: it comes before the answer to pay.
func TestWebhookFirst(t *testing.T) {
	w := setup(t, options{faults: sandboxgw.Faults{Auto: "succeed", Early: true, NoMetadata: true}})
	b := w.hold("a", 1)
	p := w.pay("a", b) // its webhook was answered before the gateway answered us
	if s := w.state(b); s != "booked" || p.State != payment.StateSucceeded {
		t.Errorf("state %s, payment %s", s, p.State)
	}
	// An event about a payment whose row is not there yet.
	w.gateway.SetFaults(sandboxgw.Faults{})
	c := w.hold("b", 2)
	q := w.pay("b", c)
	w.exec(`ALTER TABLE payment RENAME TO payment_hidden`)
	w.exec(`CREATE TABLE payment (LIKE payment_hidden INCLUDING ALL)`)
	w.exec(`GRANT SELECT, INSERT, UPDATE ON payment TO holdfast_app`)
	if s := w.webhook(paidEvent("evt-first", q)); s != 200 {
		t.Errorf("answered %d", s)
	}
	if s := w.state(c); s != "held" {
		t.Errorf("state %s", s)
	}
	w.exec(`INSERT INTO payment SELECT * FROM payment_hidden`)
	w.reconcile()
	if s := w.state(c); s != "booked" {
		t.Errorf("after reconcile %s", s)
	}
	if n := w.count(`SELECT count(*) FROM alert WHERE kind = 'gateway-event' AND closed_at IS NULL`); n != 0 {
		t.Errorf("%d alerts are still open", n)
	}
	w.check()
}

// An event that names nothing of ours: recorded, 2xx, an alert.
func TestUnknownReference(t *testing.T) {
	w := setup(t, options{})
	h := sandbox.Webhook{ID: "evt-x", Type: payment.PaymentSucceeded, Payment: sandbox.WebhookPayment{Reference: "sb_nowhere", Amount: 1, Currency: "CAD"}}
	for range 2 {
		if s := w.webhook(h); s != 200 {
			t.Errorf("answered %d", s)
		}
	}
	if n := w.count(`SELECT count(*) FROM gateway_event WHERE event_id = 'evt-x' AND applied_at IS NULL AND repeats = 1`); n != 1 {
		t.Error("not recorded once")
	}
	if n := w.count(`SELECT count(*) FROM alert WHERE kind = 'gateway-event' AND subject = 'sandbox sb_nowhere' AND closed_at IS NULL`); n != 1 {
		t.Error("no alert")
	}
}

// A signed event is recorded whatever stands in it beside what we read: what
// jsonb cannot hold is no reason to lose the payment.
func TestBodyBeyondJSONB(t *testing.T) {
	for name, note := range map[string]string{
		"NUL": `"\u0000"`, "half a pair": `"\ud83d"`, "too large": `1e400000`, "too small": `1e-400000`,
		"too deep": strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	} {
		t.Run(name, func(t *testing.T) {
			w := setup(t, options{})
			b := w.hold("ann", 1)
			body, _ := json.Marshal(paidEvent("odd", w.pay("ann", b)))
			body = append(body[:len(body)-1], `,"note":`+note+`}`...)
			header := http.Header{sandbox.SignatureHeader: {sandbox.Sign(w.ring.Sign(), time.Now(), body)}}
			for range 2 {
				if r, err := w.payments.Receive(w.ctx, "sandbox", header, body, time.Now()); err != nil || !r.Recorded {
					t.Errorf("%+v %v", r, err)
				}
			}
			if w.state(b) != "booked" || w.count(`SELECT count(*) FROM gateway_event WHERE event_id = 'odd' AND repeats = 1`) != 1 {
				t.Error(w.story())
			}
			w.check()
		})
	}
}

// Every order of events, each twice, ends the same.
func TestDisorder(t *testing.T) {
	w := setup(t, options{})
	types := []payment.EventType{payment.PaymentPending, payment.PaymentFailed, payment.PaymentSucceeded}
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for i, order := range orders {
		account := fmt.Sprint("a", i)
		b := w.hold(account, i+1)
		p := w.pay(account, b)
		w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
		for range 2 {
			for _, k := range order {
				h := paidEvent(fmt.Sprintf("evt-%d-%d", i, k), p)
				h.Type = types[k]
				if s := w.webhook(h); s != 200 {
					t.Errorf("answered %d", s)
				}
			}
		}
		if s := w.state(b); s != "booked" {
			t.Errorf("order %v: %s", order, s)
		}
	}
	if n := w.outbox("ticket", "true"); n != len(orders) {
		t.Errorf("%d tickets", n)
	}
	w.check()
}

// Many successes and a new holder race for one seat: whoever locks first wins,
// nobody pays for nothing.
func TestRescueRace(t *testing.T) {
	w := setup(t, options{})
	for round := range 10 {
		account := fmt.Sprint("a", round)
		b := w.hold(account, 1)
		p := w.pay(account, b)
		w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
		w.endHold(b, time.Minute)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { w.webhook(paidEvent(fmt.Sprintf("evt-%d-%d", round, i), p)) })
		}
		all.Go(func() {
			_, _ = w.db.App.Exec(w.ctx, `SELECT hold_seats($1, $2, $2, 'h', NULL, NULL, 'economy', 1, 3, '{1}', NULL, 1, 12900, now() + interval '2 hours', '[]', '{}', NULL, 'customer', '')`,
				w.sale, fmt.Sprint("other", round))
		})
		all.Wait()
		w.reconcile()
		n, times := w.refunded(p.Gateway.Reference)
		switch s := w.state(b); {
		case s == "booked" && n == 0 && times == 0:
		case s == "lost" && n == price && times == 1:
		default:
			t.Errorf("round %d: %s with %d given back in %d", round, s, n, times)
		}
		w.check()
		// The seat is free again for the next round.
		w.exec(`SELECT cancel_booking($1, $2, $3, '', '') FROM booking WHERE sale_id = $1 AND number = $2 AND state = 'booked'`, w.sale, b, account)
		w.exec(`UPDATE payment SET captured = 0, returning_amount = 0, returned_amount = 0 WHERE sale_id = $1`, w.sale)
		w.exec(`DELETE FROM refund WHERE sale_id = $1`, w.sale)
		w.exec(`SELECT let_go_booking($1, number, account, '', '') FROM booking WHERE sale_id = $1 AND state = 'held'`, w.sale)
	}
}
