package money

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/event"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/shared/sandbox"
	"handler/function/shared/store"
	"handler/function/tests/harness"

	"github.com/jackc/pgx/v5/pgxpool"
)

// field case 12: the gateway never says how it went: the hold is extended to its
// limit, and then ends; the payment is cancelled so that nobody is charged.
func TestPendingForEver(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.exec(`UPDATE booking SET ends_at = now() + interval '20 seconds', limit_at = now() + interval '100 seconds' WHERE sale_id = $1 AND number = $2`, w.sale, b)
	w.exec(`UPDATE seat s SET taken_until = array_fill(b.ends_at, ARRAY[3]) FROM booking b WHERE s.sale_id = $1 AND b.sale_id = $1 AND b.number = $2 AND s.number = ANY (b.seats)`, w.sale, b)
	w.reconcile()
	if n := w.count(`SELECT count(*) FROM booking b JOIN seat s ON s.sale_id = b.sale_id AND s.number = 1
		WHERE b.sale_id = $1 AND b.number = $2 AND b.ends_at = b.limit_at AND b.limit_at = ALL (s.taken_until)`, w.sale, b); n != 1 {
		t.Error("still pending: the hold is not extended to its limit")
	}
	w.check()
	w.endHold(b, -time.Millisecond)
	w.exec(`UPDATE booking SET ends_at = ends_at - interval '1 minute', limit_at = ends_at - interval '1 minute' WHERE sale_id = $1 AND number = $2`, w.sale, b)
	w.reconcile()
	w.reconcile()
	if s := w.state(b); s != "expired" {
		t.Errorf("state %s", s)
	}
	c, err := w.client.LookUp(w.ctx, p.Gateway.Reference)
	if err != nil || c.Status != payment.Cancelled {
		t.Errorf("at the gateway %+v, %v", c, err)
	}
	v, err := w.payments.Show(w.ctx, "a", p.Payment)
	if err != nil || v.Checking || v.State != payment.StateFailed || v.Message != payment.TextFailed {
		t.Errorf("%+v, %v", v, err)
	}
	// And if it is charged all the same, it goes back.
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Force: true})
	w.becomes(b, "lost")
	w.eventually("refund", func() bool { n, _ := w.refunded(p.Gateway.Reference); return n == price })
	w.check()
}

// field case 21: the refund acts and its answer is lost: one refund.
func TestRefundTimesOut(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	w.gateway.SetFaults(sandboxgw.Faults{TimeOut: 2, LoseWebhooks: 9})
	r := payment.Release{Account: "a", Booking: w.ids.Booking(w.sale, b), Key: w.key(), Hash: []byte("h")}
	got, _, err := w.payments.Return(w.ctx, r)
	if err != nil || got.State != "cancelled" || got.Refund.Amount != price || got.Fee.Amount != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if n, times := w.refunded(p.Gateway.Reference); n != price || times != 1 {
		t.Fatalf("the gateway was to act: %d in %d", n, times)
	}
	if n := w.outbox("refund", "done_at IS NULL AND tries = 1"); n != 1 {
		t.Error("the first try was to fail")
	}
	w.reconcile() // the second answer is lost too
	w.reconcile()
	if n, times := w.refunded(p.Gateway.Reference); n != price || times != 1 {
		t.Errorf("given back %d in %d", n, times)
	}
	if n := w.count(`SELECT count(*) FROM refund WHERE sale_id = $1 AND state = 'succeeded'`, w.sale); n != 1 {
		t.Error("the refund is not noted")
	}
	// Asked again: the same answer; with another key: it is cancelled already.
	again, replay, err := w.payments.Return(w.ctx, r)
	if err != nil || !replay || again.Refund != got.Refund {
		t.Errorf("%+v, %v, %v", again, replay, err)
	}
	r.Key = w.key()
	if _, _, err := w.payments.Return(w.ctx, r); !problem.Is(err, problem.WrongState) {
		t.Errorf("returned twice: %v", err)
	}
	w.check()
}

// A refused refund is tried with the same key until it works, with an alert
// from the third time on, which closes when it has healed.
func TestRefundRefused(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	w.gateway.SetFaults(sandboxgw.Faults{RefuseRefund: 3})
	if _, _, err := w.payments.Return(w.ctx, payment.Release{Account: "a", Booking: w.ids.Booking(w.sale, b), Key: w.key(), Hash: []byte("h")}); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		return w.count(`SELECT count(*) FROM alert WHERE sale_id = $1 AND kind = 'outbox' AND subject = 'refund' AND closed_at IS NULL`, w.sale)
	}
	w.reconcile()
	if open() != 0 {
		t.Error("an alert after two failures")
	}
	w.reconcile()
	if open() != 1 {
		t.Error("no alert after three failures")
	}
	w.reconcile()
	if n, times := w.refunded(p.Gateway.Reference); n != price || times != 1 || open() != 0 {
		t.Errorf("given back %d in %d, %d alerts", n, times, open())
	}
	w.check()
}

// A lost webhook is made up for by asking, by reconcile or by the payer's page.
func TestLostWebhook(t *testing.T) {
	w := setup(t, options{})
	w.gateway.SetFaults(sandboxgw.Faults{LoseWebhooks: 2})
	b, c := w.hold("a", 1), w.hold("b", 2)
	p, q := w.pay("a", b), w.pay("b", c)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.act(q.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.reconcile()
	if w.state(b) != "booked" || w.state(c) != "booked" {
		t.Errorf("%s, %s", w.state(b), w.state(c))
	}
	w.check()
}

// A crash anywhere in pay: the same key goes on, with one payment at the gateway.
func TestPayTimesOut(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	r := w.request("a", b)
	w.gateway.SetFaults(sandboxgw.Faults{TimeOut: 1})
	if _, _, err := w.payments.Pay(w.ctx, r); !problem.Is(err, problem.Unavailable) {
		t.Fatalf("%v, want unavailable", err)
	}
	p, replay, err := w.payments.Pay(w.ctx, r)
	if err != nil || replay || p.Gateway.ClientSecret == "" {
		t.Fatalf("%+v, %v, %v", p, replay, err)
	}
	again, replay, err := w.payments.Pay(w.ctx, r)
	if err != nil || !replay || again.Gateway != p.Gateway || again.Payment != p.Payment || !again.EndsAt.Equal(p.EndsAt) {
		t.Errorf("%+v, %v, %v", again, replay, err)
	}
	if n := w.count(`SELECT count(*) FROM idempotency WHERE sale_id = $1 AND function = 'pay' AND answer::text ~ 'secret_|redirect'`, w.sale); n != 0 {
		t.Error("a secret is stored")
	}
	r.Hash = []byte("another")
	if _, _, err := w.payments.Pay(w.ctx, r); !problem.Is(err, problem.IdempotencyMismatch) { // field case 26
		t.Errorf("another body: %v", err)
	}
	if n := w.count(`SELECT count(*) FROM payment WHERE sale_id = $1`, w.sale); n != 1 {
		t.Errorf("%d payments", n)
	}
	w.check()
}

// field case 27: a request that died keeps its key no longer than a lease; what
// it began is taken up, by a retry or by reconcile.
func TestDiedInMidRequest(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	r := w.request("a", b)
	// It died after the row was made and before the gateway answered.
	w.exec(`INSERT INTO idempotency (sale_id, account, function, key, hash, locked_until) VALUES ($1, 'a', 'pay', $2, $3, now() + interval '10 seconds')`, w.sale, r.Key, r.Hash)
	w.exec(`SELECT payment_begin($1, $2, 'a', 'sandbox', $3, gen_random_uuid(), '', 20, '')`, w.sale, b, r.Key)
	_, _, err := w.payments.Pay(w.ctx, r)
	if !problem.Is(err, problem.InProgress) {
		t.Fatalf("%v, want in-progress", err)
	}
	if n := w.count(`SELECT count(*) FROM idempotency WHERE sale_id = $1 AND function = 'pay' AND locked_until <= now() + interval '10 seconds'`, w.sale); n != 1 {
		t.Error("the lease is longer than 10 s")
	}
	w.exec(`UPDATE idempotency SET locked_until = now() WHERE sale_id = $1 AND function = 'pay'`, w.sale)
	p, replay, err := w.payments.Pay(w.ctx, r)
	if err != nil || replay {
		t.Fatalf("%v, %v", replay, err)
	}
	if n := w.count(`SELECT count(*) FROM payment WHERE sale_id = $1`, w.sale); n != 1 {
		t.Errorf("%d payments", n)
	}
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")

	// Nobody retries: reconcile finds the row and asks, and the hold's end ends it.
	c := w.hold("b", 2)
	w.exec(`SELECT payment_begin($1, $2, 'b', 'sandbox', 'dead', gen_random_uuid(), '', 20, '')`, w.sale, c)
	w.reconcile()
	if n := w.count(`SELECT count(*) FROM payment WHERE sale_id = $1 AND booking = $2 AND step = 'created'`, w.sale, c); n != 1 {
		t.Error("reconcile did not take it up")
	}
	w.check()
}

// The same request many times at once: one payment, the rest in-progress or the
// same answer.
func TestPayAtOnce(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	r := w.request("a", b)
	var all sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]int{}
	for range 10 {
		all.Go(func() {
			p, _, err := w.payments.Pay(w.ctx, r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ids[p.Payment]++
			} else if !problem.Is(err, problem.InProgress) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(ids) != 1 || w.count(`SELECT count(*) FROM payment WHERE sale_id = $1`, w.sale) != 1 {
		t.Errorf("payments: %v", ids)
	}
}

// ABANDON cancels the payment at the gateway first.
func TestAbandon(t *testing.T) {
	w := setup(t, options{})
	release := func(account string, b int64) (payment.Released, error) {
		r, _, err := w.payments.Abandon(w.ctx, payment.Release{Account: account, Booking: w.ids.Booking(w.sale, b), Key: w.key(), Hash: []byte("h")})
		return r, err
	}
	plain := w.hold("a", 1)
	if r, err := release("a", plain); err != nil || r.State != "released" || fmt.Sprint(r.Seats) != "[1]" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := release("b", plain); !problem.Is(err, problem.NotFound) {
		t.Errorf("another's: %v", err)
	}
	begun := w.hold("b", 2)
	p := w.pay("b", begun)
	if r, err := release("b", begun); err != nil || r.State != "released" {
		t.Errorf("%+v, %v", r, err)
	}
	if c, err := w.client.LookUp(w.ctx, p.Gateway.Reference); err != nil || c.Status != payment.Cancelled {
		t.Errorf("at the gateway %+v, %v", c, err)
	}
	paid := w.hold("c", 3)
	q := w.pay("c", paid)
	w.act(q.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
	if _, err := release("c", paid); !problem.Is(err, problem.WrongState) {
		t.Errorf("paid meanwhile: %v", err)
	}
	if s := w.state(paid); s != "booked" {
		t.Errorf("state %s", s)
	}
	// The gateway is down: the outbox sees it through.
	down := w.hold("d", 4)
	w.pay("d", down)
	w.gateway.SetFaults(sandboxgw.Faults{Down: true})
	if _, err := release("d", down); !problem.Is(err, problem.Unavailable) {
		t.Errorf("gateway down: %v", err)
	}
	if s := w.state(down); s != "held" {
		t.Errorf("state %s", s)
	}
	w.gateway.SetFaults(sandboxgw.Faults{})
	w.reconcile()
	if s := w.state(down); s != "released" {
		t.Errorf("state %s", s)
	}
	ended := w.hold("e", 5)
	w.endHold(ended, time.Minute)
	if _, err := release("e", ended); !problem.Is(err, problem.HoldEnded) {
		t.Errorf("ended: %v", err)
	}
	if n := w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = 'ABANDON'`, w.sale); n != 3 {
		t.Errorf("%d releases", n)
	}
	w.reconcile()
	w.check()
}

// REFUND of a whole booking.
func TestReturn(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1, 2)
	p := w.pay("a", b)
	r := payment.Release{Account: "a", Booking: w.ids.Booking(w.sale, b), Key: w.key(), Hash: []byte("h"), Preview: true}
	if _, _, err := w.payments.Return(w.ctx, r); !problem.Is(err, problem.WrongState) {
		t.Errorf("a hold: %v", err)
	}
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	r.Key = w.key()
	seen, _, err := w.payments.Return(w.ctx, r)
	if err != nil || seen.State != "booked" || seen.Refund.Amount != 2*price || fmt.Sprint(seen.Seats) != "[1 2]" || w.state(b) != "booked" {
		t.Errorf("preview: %+v, %v", seen, err)
	}
	w.exec(`INSERT INTO check_in (sale_id, booking, serial, seat, account, at) VALUES ($1, $2, 0, 1, 'gate', now())`, w.sale, b)
	r.Key, r.Preview = w.key(), false
	if _, _, err := w.payments.Return(w.ctx, r); !problem.Is(err, problem.WrongState) || w.state(b) != "booked" {
		t.Errorf("checked in: %v", err)
	}
	w.exec(`DELETE FROM check_in WHERE sale_id = $1`, w.sale)
	// Two at once: one refund.
	var all sync.WaitGroup
	for range 4 {
		again := r
		again.Key = w.key()
		all.Go(func() {
			if _, _, err := w.payments.Return(w.ctx, again); err != nil && !problem.Is(err, problem.WrongState) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.reconcile()
	if n, times := w.refunded(p.Gateway.Reference); n != 2*price || times != 1 {
		t.Errorf("given back %d in %d", n, times)
	}
	if n := w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = 'REFUND'`, w.sale); n != 2 {
		t.Errorf("%d releases", n)
	}
	if n := w.count(`SELECT count(*) FROM seat WHERE sale_id = $1 AND now() >= ALL (taken_until)`, w.sale); n != 6 {
		t.Errorf("%d seats are free", n)
	}
	w.hold("b", 1, 2)
	w.check()
}

// Two replicas of reconcile at once: everything once.
func TestTwoNets(t *testing.T) {
	w := setup(t, options{})
	refs := []string{}
	for i := range 6 {
		account := fmt.Sprint("a", i)
		b := w.hold(account, i+1)
		p := w.pay(account, b)
		refs = append(refs, p.Gateway.Reference)
		w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
		if i%2 == 0 {
			w.endHold(b, -time.Millisecond)
		}
	}
	w.exec(`UPDATE payment SET ask_at = now() WHERE ask_at IS NOT NULL`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { w.net.Run(w.ctx) })
	}
	all.Wait()
	w.reconcile()
	for i, ref := range refs {
		n, times := w.refunded(ref)
		if i%2 == 0 && (n != price || times != 1) || i%2 == 1 && times != 0 {
			t.Errorf("payment %d: given back %d in %d", i, n, times)
		}
	}
	w.check()
}

// Postgres is away: the webhook is kept in the stream, answered 2xx, and applied
// by reconcile, with the time it first came.
func TestPostgresAway(t *testing.T) {
	n := harness.NATS(t)
	bus, err := event.Open(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	w := setup(t, options{bus: bus})
	w.eventually("nats", bus.Up)
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed", Silent: true})

	nowhere, err := pgxpool.New(w.ctx, "postgres://x:x@127.0.0.1:1/x?sslmode=disable&connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nowhere.Close)
	blind := payment.New(payment.Options{DB: store.New(nowhere), IDs: w.ids, Gateways: []payment.Gateway{w.client}, Test: true, Bus: bus, Alerts: w.alerts})
	body := []byte(fmt.Sprintf(`{"id":"evt-kept","type":"payment.succeeded","payment":{"reference":%q,"amount":%d,"currency":"CAD"}}`, p.Gateway.Reference, price))
	first := time.Now()
	for i := range 3 {
		at := first.Add(time.Duration(i) * time.Minute)
		got, err := blind.Receive(w.ctx, "sandbox", http.Header{sandbox.SignatureHeader: {sandbox.Sign(w.ring.Sign(), at, body)}}, body, at)
		if err != nil || got.Recorded {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if s := w.state(b); s != "held" {
		t.Fatalf("state %s", s)
	}
	did := w.reconcile()
	if s := w.state(b); s != "booked" || did.Replayed != 1 {
		t.Errorf("state %s after %+v", s, did)
	}
	if n := w.count(`SELECT count(*) FROM gateway_event WHERE event_id = 'evt-kept' AND abs(extract(epoch FROM received_at - $1::timestamptz)) < 0.001`, first); n != 1 {
		t.Error("the first time is not kept")
	}
	if did := w.reconcile(); did.Replayed != 0 {
		t.Errorf("replayed again: %+v", did)
	}
	// Neither takes it: 503, so that the gateway sends it again.
	alone := payment.New(payment.Options{DB: store.New(nowhere), IDs: w.ids, Gateways: []payment.Gateway{w.client}, Test: true, Alerts: w.alerts})
	if _, err := alone.Receive(w.ctx, "sandbox", http.Header{sandbox.SignatureHeader: {sandbox.Sign(w.ring.Sign(), first, body)}}, body, first); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want unavailable", err)
	}
	w.check()
}

// The ticket function is called again for what is still due.
func TestTicketNudged(t *testing.T) {
	n := harness.NATS(t)
	bus, err := event.Open(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	w := setup(t, options{bus: bus})
	w.eventually("nats", bus.Up)
	sub, err := n.Conn.SubscribeSync("booking.confirmed.*")
	if err != nil || n.Conn.Flush() != nil {
		t.Fatal(err)
	}
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil || m.Subject != event.Subject(event.BookingConfirmed, w.sale) {
		t.Fatalf("%v, %v", m, err)
	}
	if did := w.reconcile(); did.Nudged != 1 {
		t.Errorf("%+v", did)
	}
	if _, err := sub.NextMsg(10 * time.Second); err != nil {
		t.Error(err)
	}
}

// Money that does not add up is an alert.
func TestMoneyAlert(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("a", 1)
	p := w.pay("a", b)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	w.exec(`UPDATE payment SET captured = captured + 1 WHERE sale_id = $1`, w.sale)
	if n, err := w.payments.Compare(w.ctx, time.Hour); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	open := func() int { return w.count(`SELECT count(*) FROM alert WHERE kind = 'money' AND closed_at IS NULL`) }
	if open() != 1 {
		t.Error("no alert")
	}
	w.exec(`UPDATE payment SET captured = captured - 1 WHERE sale_id = $1`, w.sale)
	if n, err := w.payments.Compare(w.ctx, time.Hour); err != nil || n != 0 || open() != 0 {
		t.Errorf("%d, %v, %d open", n, err, open())
	}
}

// A cancelled sale gives back all that was sold of it, once.
func TestSaleCancelled(t *testing.T) {
	w := setup(t, options{})
	b, c, held := w.hold("a", 1, 2), w.hold("b", 3), w.hold("c", 4)
	p, q, open := w.pay("a", b), w.pay("b", c), w.pay("c", held)
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.act(q.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.becomes(b, "booked")
	w.becomes(c, "booked")
	w.exec(`UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`, w.sale)
	w.exec(`INSERT INTO outbox (sale_id, kind, subject) VALUES ($1, 'sale_cancelled', 'x')`, w.sale)
	w.reconcile()
	w.reconcile()
	if n, times := w.refunded(p.Gateway.Reference); n != 2*price || times != 1 {
		t.Errorf("given back %d in %d", n, times)
	}
	if n, times := w.refunded(q.Gateway.Reference); n != price || times != 1 {
		t.Errorf("given back %d in %d", n, times)
	}
	if got, err := w.client.LookUp(w.ctx, open.Gateway.Reference); err != nil || got.Status != payment.Cancelled {
		t.Errorf("the open payment is %+v, %v", got, err)
	}
	if n := w.outbox("notify", "payload->>'template' = 'sale_cancelled'"); n != 2 || w.state(b) != "cancelled" || w.state(c) != "cancelled" {
		t.Errorf("%d told, %s, %s", n, w.state(b), w.state(c))
	}
	w.check()
}

// A payment whose confirm step read the sale before it was cancelled, and books
// after the first look for what was sold: it is given back all the same.
func TestCancelledWhilePaying(t *testing.T) {
	w := setup(t, options{})
	b := w.hold("ann", 1)
	p := w.pay("ann", b)
	tx, err := w.db.Owner.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(w.ctx) }()
	if _, err := tx.Exec(w.ctx, `SELECT 1 FROM seat WHERE sale_id = $1 FOR UPDATE`, w.sale); err != nil {
		t.Fatal(err)
	}
	w.act(p.Gateway.Reference, sandboxgw.Act{Do: "succeed"})
	w.eventually("the confirm step waits for its seat", func() bool {
		return w.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	w.exec(`UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`, w.sale)
	w.exec(`INSERT INTO outbox (sale_id, kind, subject) VALUES ($1, 'sale_cancelled', 'x')`, w.sale)
	if _, err := w.payments.Sweep(w.ctx, payment.KindCallOff); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.becomes(b, "booked")
	w.reconcile()
	w.reconcile()
	if n, times := w.refunded(p.Gateway.Reference); w.state(b) != "cancelled" || n != price || times != 1 {
		t.Errorf("booking %s, refunded %d by %d refunds\n%s", w.state(b), n, times, w.story())
	}
	w.exec(`UPDATE outbox SET created_at = now() - interval '2 minutes' WHERE kind = 'sale_cancelled'`)
	w.reconcile()
	if n := w.outbox("sale_cancelled", "done_at IS NULL"); n != 0 {
		t.Error("the call-off never ends")
	}
	w.check()
}

// What costs nothing is booked without a gateway, twice in one sale too.
func TestFree(t *testing.T) {
	w := setup(t, options{})
	for i, account := range []string{"a", "b"} {
		b := w.hold(account, i+1)
		w.exec(`UPDATE booking SET amount = 0 WHERE sale_id = $1 AND number = $2`, w.sale, b)
		r := w.request(account, b)
		p, _, err := w.payments.Pay(w.ctx, r)
		if err != nil || p.State != payment.StateSucceeded || w.state(b) != "booked" {
			t.Errorf("%+v, %v, %s", p, err, w.state(b))
		}
		if again, replay, err := w.payments.Pay(w.ctx, r); err != nil || !replay || again.Payment != p.Payment {
			t.Errorf("%+v, %v, %v", again, replay, err)
		}
		got, _, err := w.payments.Return(w.ctx, payment.Release{Account: account, Booking: p.Booking, Key: w.key(), Hash: []byte("h")})
		if err != nil || got.State != "cancelled" || got.Refund.Amount != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	w.check()
}

// A bad message of the stream is set aside after its third try, and what is
// behind it goes on; a body that Postgres cannot hold as it is is no bad message.
func TestBadMessage(t *testing.T) {
	n := harness.NATS(t)
	bus, err := event.Open(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	w := setup(t, options{bus: bus})
	w.eventually("nats", bus.Up)
	if _, err := w.payments.Replay(w.ctx); err != nil { // makes the stream
		t.Fatal(err)
	}
	js := bus.JetStream()
	if _, err := js.Publish(w.ctx, "gateway.event", []byte("no event")); err != nil {
		t.Fatal(err)
	}
	b := w.hold("a", 1)
	p := w.pay("a", b)
	odd := fmt.Sprintf(`{"event":{"Gateway":"sandbox","ID":"evt-odd","Type":"payment.succeeded","Reference":%q,"Payment":%q,
		"Amount":{"amount":%d,"currency":"CAD"},"Body":{"note":"a \u0000 within"}},"received_at":"2026-01-02T03:04:05Z"}`, p.Gateway.Reference, p.Payment, price)
	if _, err := js.Publish(w.ctx, "gateway.event", []byte(odd)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.payments.Replay(w.ctx); err != nil {
		t.Fatal(err)
	}
	if s := w.state(b); s != "booked" {
		t.Errorf("behind the bad message: %s", s)
	}
	if n := w.count(`SELECT count(*) FROM gateway_event WHERE event_id = 'evt-odd' AND body ? 'base64' AND received_at = '2026-01-02T03:04:05Z'`); n != 1 {
		t.Error("the odd body is not kept")
	}
	w.eventually("an alert", func() bool {
		if _, err := w.payments.Replay(w.ctx); err != nil {
			t.Fatal(err)
		}
		return w.count(`SELECT count(*) FROM alert WHERE kind = 'gateway-event' AND subject = 'stream GATEWAY' AND closed_at IS NULL`) == 1
	})
	consumer, err := js.Consumer(w.ctx, "GATEWAY", "reconcile")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := consumer.Info(w.ctx); err != nil || info.NumAckPending != 0 || info.NumPending != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
