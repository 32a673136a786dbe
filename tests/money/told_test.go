package money

import (
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/event"
	"handler/function/shared/payment"
	"handler/function/tests/harness"
)

// told says how many releases of a kind went out, and how many did not.
func (w *world) told(kind string) (told, untold int) {
	w.Helper()
	return w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = $2 AND told_at IS NOT NULL`, w.sale, kind),
		w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = $2 AND told_at IS NULL`, w.sale, kind)
}

func (w *world) release(account string, number int64) payment.Release {
	return payment.Release{Account: account, Booking: w.ids.Booking(w.sale, number), Key: w.key(), Hash: []byte("h")}
}

// booked is a booking of these seats, paid for.
func (w *world) booked(account string, seats ...int) int64 {
	w.Helper()
	b := w.hold(account, seats...)
	w.act(w.pay(account, b).Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	return b
}

// Whoever releases tells of it at once: a refund, a hold let go, the end of a
// hold that money comes too late for, and a cancelled sale.
func TestReleasesTold(t *testing.T) {
	n := harness.NATS(t)
	bus, err := event.Open(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	w := setup(t, options{bus: bus})
	w.eventually("nats", bus.Up)
	is := func(kind string, told int) {
		t.Helper()
		if got, left := w.told(kind); got != told || left != 0 {
			t.Errorf("%s: %d told and %d not, want %d", kind, got, left, told)
		}
	}

	if _, _, err := w.payments.Return(w.ctx, w.release("a", w.booked("a", 1, 2))); err != nil {
		t.Fatal(err)
	}
	is("REFUND", 2)

	let := w.hold("b", 3)
	w.pay("b", let) // a payment to cancel first
	if _, _, err := w.payments.Abandon(w.ctx, w.release("b", let)); err != nil {
		t.Fatal(err)
	}
	is("ABANDON", 1)

	late := w.hold("c", 4)
	p := w.pay("c", late)
	w.endHold(late, 0) // past its limit
	if got := w.webhook(paidEvent("late", p)); got != 200 {
		t.Fatalf("webhook: %d", got)
	}
	w.becomes(late, "lost")
	w.eventually("told", func() bool { got, _ := w.told("TIMEOUT"); return got == 1 })

	w.booked("d", 5, 6)
	w.exec(`UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`, w.sale)
	w.exec(`INSERT INTO outbox (sale_id, kind, subject) VALUES ($1::bigint, 'sale_cancelled', $1::bigint::text)`, w.sale)
	if _, err := w.payments.Sweep(w.ctx, payment.KindCallOff); err != nil {
		t.Fatal(err)
	}
	is("REFUND", 4)
	w.check()
}

// NATS away: a refund works as ever, and reconcile tells of its seats later.
func TestToldByReconcile(t *testing.T) {
	n := harness.NATS(t)
	bus, err := event.Open(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	w := setup(t, options{bus: bus})
	w.eventually("nats", bus.Up)
	b := w.booked("a", 1)
	_ = n.Close()
	started := time.Now()
	if _, _, err := w.payments.Return(w.ctx, w.release("a", b)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the refund took %v", took)
	}
	if told, left := w.told("REFUND"); told != 0 || left != 1 {
		t.Errorf("%d told, %d not", told, left)
	}
	if did := w.reconcile(); did.Told != 0 || did.Errors != 0 {
		t.Errorf("without NATS: %+v", did)
	}
	w.exec(`UPDATE seat_release SET released_at = now() - interval '2 minutes'`)
	if did := w.reconcile(); did.Untold != 1 {
		t.Errorf("after two minutes: %+v", did)
	}
	n.Restart(t)
	w.eventually("nats is back", bus.Up)
	told := 0
	w.eventually("told", func() bool { told += w.reconcile().Told; return told > 0 })
	if got, left := w.told("REFUND"); told != 1 || got != 1 || left != 0 {
		t.Errorf("reconcile told %d; %d told, %d not", told, got, left)
	}
	if did := w.reconcile(); did.Told != 0 || did.Untold != 0 {
		t.Errorf("again: %+v", did)
	}
	if open := w.count(`SELECT count(*) FROM alert WHERE kind = 'release-untold' AND closed_at IS NULL`); open != 0 {
		t.Errorf("%d alerts are open", open)
	}
}
