package money

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/audit"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/shared/sandbox"
	"handler/function/shared/standby"
)

// Fares of the standby sale, three legs: 15.00 in second, 27.00 in first.
const (
	second = 1500
	first  = 2700
)

// waiting is a world whose sale has six seats of second (rows of four and two) and
// two of first.
func waiting(t *testing.T, o options) *world {
	w := setup(t, o)
	w.sale = w.db.OpenSale(t, 3, 6)
	w.exec(`INSERT INTO class (sale_id, class, position, title, stock, fare)
		VALUES ($1, 'first', 1, 'First', 'numbered', '{"kind":"per_leg","amounts":[900,900,900]}')`, w.sale)
	w.exec(`SELECT seat_create($1, 'first', 3, '{7,8}', false)`, w.sale)
	w.exec(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name) VALUES ($1, 7, '2-7', '2', 1, 'A'), ($1, 8, '2-8', '2', 1, 'B')`, w.sale)
	return w
}

// take books a seat for the whole way, without money, for somebody else each time.
func (w *world) take(class string, seat int) int64 {
	w.Helper()
	who := w.key()
	var raw []byte
	w.scan(&raw, `SELECT hold_seats($1, $2, $2, 'h', NULL, NULL, $3, 1, 3, ARRAY[$4::int], NULL, 1, 0, NULL, '[]', '{}', NULL, 'customer', '')`,
		w.sale, who, class, seat)
	var a struct {
		Code   string
		Number int64
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Code != "held" {
		w.Fatalf("seat %d: %s, %v", seat, raw, err)
	}
	w.exec(`SELECT seat_book($1, $2, ARRAY[$3::int], 1, 3)`, w.sale, a.Number, seat)
	w.exec(`UPDATE booking SET state = 'booked' WHERE sale_id = $1 AND number = $2`, w.sale, a.Number)
	return a.Number
}

// sellOut takes every seat; the bookings by seat.
func (w *world) sellOut() map[int]int64 {
	w.Helper()
	taken := map[int]int64{}
	for seat := 1; seat <= 8; seat++ {
		class := "second"
		if seat > 6 {
			class = "first"
		}
		taken[seat] = w.take(class, seat)
	}
	return taken
}

// give gives a booking back: its seat comes free.
func (w *world) give(number int64) {
	w.Helper()
	var raw []byte
	w.scan(&raw, `SELECT cancel_booking($1, $2, (SELECT account FROM booking WHERE sale_id = $1 AND number = $2), '', '')`, w.sale, number)
	if !strings.Contains(string(raw), `"cancelled"`) {
		w.Fatalf("%s", raw)
	}
}

// wish is an order of one seat in second for the whole way.
func (w *world) wish(account string, change func(*payment.Joining)) payment.Joining {
	k := w.key()
	j := payment.Joining{Hash: []byte(k), Wish: standby.Wish{
		Account: account, Classes: []string{"second"}, From: "0", To: "3", Quantity: 1, Gateway: "sandbox", Key: k, TraceID: "trace-" + k,
		Contact: booking.Contact{Email: account + "@example.org"},
	}}
	if change != nil {
		change(&j)
	}
	return j
}

func (w *world) theSale() *catalog.Sale {
	w.Helper()
	sale, err := w.sales.Sale(w.ctx, w.sale)
	if err != nil {
		w.Fatal(err)
	}
	return sale
}

func (w *world) tryJoin(j payment.Joining) (payment.Joined, error) {
	w.Helper()
	out, _, err := w.payments.JoinStandby(w.ctx, w.theSale(), j)
	return out, err
}

func (w *world) join(account string, change func(*payment.Joining)) payment.Joined {
	w.Helper()
	out, err := w.tryJoin(w.wish(account, change))
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// queued joins and authorises.
func (w *world) queued(account string, change func(*payment.Joining)) payment.Joined {
	w.Helper()
	j := w.join(account, change)
	w.act(j.Authorise.Reference, sandboxgw.Act{Do: "authorise"})
	w.orderBecomes(j, standby.Queued)
	return j
}

func (w *world) order(j payment.Joined) *standby.Order {
	w.Helper()
	ref, err := w.ids.ParseOrder(j.Order)
	if err != nil {
		w.Fatal(err)
	}
	o, err := w.orders.Load(w.ctx, ref.Sale, ref.Number)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) orderBecomes(j payment.Joined, state standby.State) {
	w.Helper()
	w.eventually("order "+string(state), func() bool { return w.order(j).State == state })
}

// serve gives what is free to who waits; the order must be matched by it.
func (w *world) serve(j payment.Joined) {
	w.Helper()
	if _, err := w.match.Match(w.ctx, w.sale); err != nil {
		w.Fatal(err)
	}
	if o := w.order(j); o.State != standby.Matched {
		w.Fatalf("order is %s: %s", o.State, w.story())
	}
}

// fulfil charges what is matched, as the nudge does; rows that failed a moment ago
// are due again.
func (w *world) fulfil() outbox.Did {
	w.Helper()
	w.exec(`UPDATE outbox SET due_at = now() WHERE sale_id = $1 AND kind = 'order_matched' AND done_at IS NULL`, w.sale)
	did, err := w.payments.Fulfil(w.ctx, w.sale)
	if err != nil && !outbox.IsDown(err) {
		w.Fatal(err)
	}
	return did
}

// atGateway is a payment as the sandbox has it.
func (w *world) atGateway(reference string) sandbox.Payment {
	w.Helper()
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/api/payments/"+reference, nil))
	var p sandbox.Payment
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || p.Reference != reference {
		w.Fatalf("%s: %v", rec.Body, err)
	}
	return p
}

// settled holds that every sum authorised is charged for a booking, to the unit, or
// let go; but for orders that still wait.
func (w *world) settled() {
	w.Helper()
	w.check()
	rows, err := w.db.Owner.Query(w.ctx, `SELECT p.reference, o.state, CASE WHEN b.state = 'booked' THEN b.amount ELSE 0 END
		FROM payment p JOIN standby_order o ON o.sale_id = p.sale_id AND o.number = p.standby_order
		LEFT JOIN booking b ON b.sale_id = p.sale_id AND b.number = p.booking WHERE p.sale_id = $1 AND p.amount > 0 AND p.reference IS NOT NULL`, w.sale)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var reference, state string
		var fare int64
		if err := rows.Scan(&reference, &state, &fare); err != nil {
			w.Fatal(err)
		}
		at := w.atGateway(reference)
		switch {
		case standby.State(state).Waits() && at.Status == payment.Authorised:
		case state == "booked" && at.Status == payment.Succeeded && at.Captured-at.Refunded == fare:
		case state == "booked" && fare == 0 && at.Status == payment.Cancelled: // the class it got costs nothing, or the booking was given back
		case (state == "cancelled" || state == "expired") && (at.Status == payment.Cancelled || at.Status == payment.Succeeded && at.Captured == at.Refunded):
		default:
			w.Errorf("an order that is %s for %d: the gateway has %+v", state, fare, at)
		}
	}
}

func (w *world) notices(template string) int {
	w.Helper()
	return w.outbox("notify", "payload->>'template' = '"+template+"'")
}

// between is the sandbox with something that happens before or after its calls.
type between struct {
	*sandbox.Client
	life      time.Duration // 0: the sandbox's
	before    func(call string) error
	after     func(call string) error
	authorise atomic.Int64
	captures  atomic.Int64
}

func (b *between) Traits() payment.Traits {
	t := b.Client.Traits()
	if b.life > 0 {
		t.AuthorisationLife = b.life
	}
	return t
}

func (b *between) do(call string, f func() (payment.Charge, error)) (payment.Charge, error) {
	if b.before != nil {
		if err := b.before(call); err != nil {
			return payment.Charge{}, err
		}
	}
	c, err := f()
	if b.after != nil {
		if lost := b.after(call); lost != nil {
			return payment.Charge{}, lost
		}
	}
	return c, err
}

func (b *between) Authorise(ctx context.Context, o payment.Order) (payment.Charge, error) {
	b.authorise.Add(1)
	return b.do("authorise", func() (payment.Charge, error) { return b.Client.Authorise(ctx, o) })
}

func (b *between) Capture(ctx context.Context, reference string, amount int64, key string) (payment.Charge, error) {
	b.captures.Add(1)
	return b.do("capture", func() (payment.Charge, error) { return b.Client.Capture(ctx, reference, amount, key) })
}

func (b *between) LookUp(ctx context.Context, reference string) (payment.Charge, error) {
	return b.do("look up", func() (payment.Charge, error) { return b.Client.LookUp(ctx, reference) })
}

func (b *between) Cancel(ctx context.Context, reference, key string) (payment.Charge, error) {
	return b.do("cancel", func() (payment.Charge, error) { return b.Client.Cancel(ctx, reference, key) })
}

// through is a world whose gateway is b around the sandbox.
func through(t *testing.T, b *between, o options) *world {
	o.gateway = func(c *sandbox.Client) payment.Gateway { b.Client = c; return b }
	return waiting(t, o)
}

func TestStandbyBooked(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	j := w.join("a", func(j *payment.Joining) { j.Classes, j.Quantity, j.Together = []string{"second", "first"}, 2, true })
	// The dearest class is authorised; the fare of the seats given is charged.
	if j.State != standby.Authorising || j.Price.Amount != 2*first || j.Authorise.ClientSecret == "" || j.Authorise.RedirectURL == "" {
		t.Errorf("%+v", j)
	}
	if at := w.atGateway(j.Authorise.Reference); !at.Manual || at.Amount != 2*first {
		t.Errorf("%+v", at)
	}
	w.act(j.Authorise.Reference, sandboxgw.Act{Do: "authorise"})
	w.orderBecomes(j, standby.Queued)
	v, err := w.payments.Show(w.ctx, "a", j.Payment)
	if err != nil || v.Message != payment.TextWaits || v.Booking != "" {
		t.Errorf("%+v, %v", v, err)
	}
	// What waits is asked about seldom.
	if n := w.count(`SELECT count(*) FROM payment WHERE sale_id = $1 AND ask_at > now() + interval '30 minutes'`, w.sale); n != 1 {
		t.Error("the gateway is asked about a waiting order all the time")
	}
	w.give(taken[1])
	w.give(taken[2])
	w.serve(j)
	o := w.order(j)
	if _, _, err := w.payments.Pay(w.ctx, w.request("a", o.Booking)); !problem.Is(err, problem.WrongState) {
		t.Errorf("paying for a matched booking: %v", err)
	}
	if did := w.fulfil(); did.Done != 1 {
		t.Errorf("%+v", did)
	}
	o = w.order(j)
	if o.State != standby.Booked || o.Step != "confirmed" || o.Class != "second" || w.state(o.Booking) != "booked" {
		t.Errorf("%+v", o)
	}
	if at := w.atGateway(j.Authorise.Reference); at.Captured != 2*second || at.Refunded != 0 {
		t.Errorf("%+v", at)
	}
	if w.outbox("ticket", "true") != 1 || w.notices("standby_matched") != 1 {
		t.Error("no ticket or no message")
	}
	// The webhook of the capture comes too, and asking for all again changes nothing.
	w.exec(`UPDATE outbox SET done_at = NULL WHERE sale_id = $1 AND kind = 'order_matched'`, w.sale)
	w.fulfil()
	w.reconcile()
	if w.outbox("ticket", "true") != 1 || w.notices("standby_matched") != 1 {
		t.Error("told twice")
	}
	w.settled()
}

// The same request again is the same order; its secrets are never stored.
func TestStandbySameKey(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	j := w.wish("a", nil)
	one, err := w.tryJoin(j)
	if err != nil {
		t.Fatal(err)
	}
	w.give(taken[1]) // seats now: the order stands all the same
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			again, replay, err := w.payments.JoinStandby(w.ctx, w.theSale(), j)
			if err != nil || !replay || again.Order != one.Order || again.Payment != one.Payment || again.Authorise != one.Authorise {
				t.Errorf("%+v, %v, %v", again, replay, err)
			}
		})
	}
	all.Wait()
	if n := w.count(`SELECT count(*) FROM payment WHERE sale_id = $1`, w.sale); n != 1 {
		t.Errorf("%d payments", n)
	}
	if n := w.count(`SELECT count(*) FROM idempotency WHERE sale_id = $1 AND (answer::text LIKE '%secret_%' OR answer::text LIKE '%/pay/%')`, w.sale); n != 0 {
		t.Error("a secret is stored")
	}
	j.Hash = []byte("other")
	if _, _, err := w.payments.JoinStandby(w.ctx, w.theSale(), j); !problem.Is(err, problem.IdempotencyMismatch) {
		t.Errorf("another body: %v", err)
	}
}

// A join that died is taken up by the same key from where it stood.
func TestStandbyJoinDies(t *testing.T) {
	for name, die := range map[string]func(w *world, b *between) (heal func()){
		"before its payment": func(w *world, _ *between) func() {
			w.exec(`ALTER FUNCTION payment_begin_order RENAME TO gone`)
			return func() { w.exec(`ALTER FUNCTION gone RENAME TO payment_begin_order`) }
		},
		"before the gateway knows": func(_ *world, b *between) func() {
			b.before = func(string) error { return errors.New("cut") }
			return func() { b.before = nil }
		},
		"after the gateway knows": func(_ *world, b *between) func() {
			b.after = func(string) error { return errors.New("cut") }
			return func() { b.after = nil }
		},
		"before its reference is stored": func(w *world, _ *between) func() {
			w.exec(`ALTER FUNCTION payment_created RENAME TO gone`)
			return func() { w.exec(`ALTER FUNCTION gone RENAME TO payment_created`) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &between{}
			w := through(t, b, options{})
			w.sellOut()
			heal := die(w, b)
			j := w.wish("a", nil)
			if _, err := w.tryJoin(j); err == nil {
				t.Fatal("it did not die")
			}
			heal()
			w.exec(`UPDATE idempotency SET locked_until = now() WHERE sale_id = $1 AND locked_until IS NOT NULL`, w.sale)
			out, err := w.tryJoin(j)
			if err != nil || out.State != standby.Authorising {
				t.Fatalf("%+v, %v", out, err)
			}
			if o, p := w.count(`SELECT count(*) FROM standby_order WHERE sale_id = $1`, w.sale), w.count(`SELECT count(*) FROM payment WHERE sale_id = $1`, w.sale); o != 1 || p != 1 {
				t.Errorf("%d orders, %d payments", o, p)
			}
			w.act(out.Authorise.Reference, sandboxgw.Act{Do: "authorise"})
			w.orderBecomes(out, standby.Queued)
			w.settled()
		})
	}
}

// Whatever webhook is lost, reconcile asks; one that comes first waits for its row.
func TestStandbyAuthorisedLate(t *testing.T) {
	w := waiting(t, options{})
	w.sellOut()
	lost := w.join("a", nil)
	w.act(lost.Authorise.Reference, sandboxgw.Act{Do: "authorise", Silent: true})
	w.reconcile()
	if o := w.order(lost); o.State != standby.Queued {
		t.Errorf("%s: %s", o.State, w.story())
	}
	// "Failed" is not final.
	failed := w.join("b", nil)
	w.act(failed.Authorise.Reference, sandboxgw.Act{Do: "fail-succeed"})
	w.orderBecomes(failed, standby.Queued)
	// One made and never authorised ends in time, and is cancelled at the gateway.
	never := w.join("c", nil)
	w.exec(`UPDATE standby_order SET authorise_by = now() WHERE account = 'c'`)
	w.reconcile()
	w.reconcile()
	if o := w.order(never); o.State != standby.Expired || w.atGateway(never.Authorise.Reference).Status != payment.Cancelled {
		t.Errorf("%+v", o)
	}
	// Authorised all the same afterwards, or by another sum: it is let go.
	w.act(never.Authorise.Reference, sandboxgw.Act{Do: "authorise", Force: true})
	other := w.join("d", nil)
	w.act(other.Authorise.Reference, sandboxgw.Act{Do: "authorise", Silent: true})
	w.webhook(sandbox.Webhook{ID: "other-sum", Type: payment.PaymentAuthorised, Payment: sandbox.WebhookPayment{
		Reference: other.Authorise.Reference, Amount: second - 1, Currency: "CAD", Metadata: map[string]string{sandbox.MetadataPayment: other.Payment},
	}})
	if o := w.order(other); o.State != standby.Cancelled || w.atGateway(other.Authorise.Reference).Status != payment.Cancelled {
		t.Errorf("%+v", o)
	}
	// The event came before the answer to our call.
	w.gateway.SetFaults(sandboxgw.Faults{Auto: "succeed", Early: true})
	early := w.join("e", nil)
	w.orderBecomes(early, standby.Queued)
}

// The gateway made the payment, the answer was lost, and later it says that it will
// not make it: the order ends and the payment counts as settled. What is authorised
// all the same is let go, also for an order that ended before.
func TestStandbyAuthorisedAfterRefusal(t *testing.T) {
	b := &between{}
	w := through(t, b, options{})
	w.sellOut()
	b.after = func(string) error { return errors.New("cut") }
	if _, err := w.tryJoin(w.wish("a", nil)); err == nil {
		t.Fatal("it did not die")
	}
	b.after = nil
	b.before = func(string) error { return payment.ErrRefused }
	w.exec(`UPDATE standby_order SET authorise_by = now()`)
	w.reconcile()
	w.reconcile()
	if n := w.count(`SELECT count(*) FROM payment WHERE step = 'settled' AND reference IS NULL AND sale_id = $1`, w.sale); n != 1 {
		t.Fatalf("not settled: %s", w.story())
	}
	b.before = nil
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/api/payments", nil))
	var list struct {
		Payments []sandbox.Payment `json:"payments"`
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &list); err != nil || len(list.Payments) == 0 {
		t.Fatalf("%s: %v", rec.Body, err)
	}
	made := list.Payments[0].Reference
	w.act(made, sandboxgw.Act{Do: "authorise"})
	w.eventually("it is let go", func() bool { return w.atGateway(made).Status == payment.Cancelled })
	w.settled()
}

// An authorised sum of a payment that is another gateway's, or of no order, moves
// nothing; nor does money.
func TestStandbyWrongGateway(t *testing.T) {
	w := waiting(t, options{})
	w.sellOut()
	j := w.join("a", nil)
	_, id, err := w.ids.ParsePayment(j.Payment)
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{
		`SELECT payment_confirm($1, $2, 'other', 'r', 1500, 'CAD', '')->>'code'`,
		`SELECT payment_authorised($1, $2, 'other', 'r', 1500, 'CAD', 3600, true, '')->>'code'`,
	} {
		var code string
		if w.scan(&code, call, w.sale, id); code != "unknown" {
			t.Errorf("%s: %s", call, code)
		}
	}
	if o := w.order(j); o.State != standby.Authorising {
		t.Errorf("%+v", o)
	}
}

// What fails between match and ticket, as DESIGN 8 lists it.
func TestStandbyFulfilmentFails(t *testing.T) {
	type try struct {
		name string
		// wrong makes something go wrong once the order is matched; mend mends it.
		wrong func(w *world, b *between, o *standby.Order)
		mend  func(w *world, b *between, o *standby.Order)
		state standby.State // in the end
		why   string
		calls int64 // captures, at most
	}
	away := func(call string) func(string) error {
		return func(c string) error {
			if call == "" || c == call {
				return errors.New("nobody answers")
			}
			return nil
		}
	}
	for _, c := range []try{
		{name: "seats taken by somebody else before the capture", state: standby.Cancelled, why: "seats lost before they were paid for",
			wrong: func(w *world, _ *between, o *standby.Order) {
				w.endHold(o.Booking, time.Minute)
				w.exec(`UPDATE seat SET considered_at = clock_timestamp() WHERE sale_id = $1`, w.sale)
				w.take("second", 1)
			}},
		{name: "the hold has ended, the seats are free", state: standby.Booked, calls: 1,
			wrong: func(w *world, _ *between, o *standby.Order) { w.endHold(o.Booking, time.Minute) }},
		{name: "the capture is refused", state: standby.Cancelled, why: "the payment was refused", calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{RefuseCapture: 1})
			}},
		{name: "the authorisation was voided", state: standby.Cancelled, why: "the payment was refused", calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.act(w.reference(), sandboxgw.Act{Do: "cancel", Force: true, Silent: true})
			}},
		{name: "the capture's answer is lost, it was made", state: standby.Booked, calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{TimeOut: 1, LoseWebhooks: 1})
			}},
		{name: "the capture's answer is lost, it was not made", state: standby.Booked, calls: 2,
			wrong: func(_ *world, b *between, _ *standby.Order) { b.before = away("capture") },
			mend:  func(_ *world, b *between, _ *standby.Order) { b.before = nil }},
		{name: "the gateway is away", state: standby.Booked, calls: 2,
			wrong: func(w *world, _ *between, _ *standby.Order) { w.gateway.SetFaults(sandboxgw.Faults{Down: true}) },
			mend:  func(w *world, _ *between, _ *standby.Order) { w.gateway.SetFaults(sandboxgw.Faults{}) }},
		{name: "the gateway is away past the limit, nothing was captured", state: standby.Cancelled, why: "not paid for in time", calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) { w.gateway.SetFaults(sandboxgw.Faults{Down: true}) },
			mend: func(w *world, _ *between, o *standby.Order) {
				w.endHold(o.Booking, -time.Second)
				w.gateway.SetFaults(sandboxgw.Faults{})
			}},
		{name: "captured, and not known before the limit", state: standby.Cancelled, why: "not paid for in time", calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{TimeOut: 1, LoseWebhooks: 1})
			},
			mend: func(w *world, _ *between, o *standby.Order) { w.endHold(o.Booking, -time.Second) }},
		{name: "the sale was cancelled", state: standby.Cancelled, why: "the sale was cancelled",
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.exec(`UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`, w.sale)
			}},
		{name: "its holder lets the booking go", state: standby.Cancelled, why: "left by its holder",
			wrong: func(w *world, _ *between, o *standby.Order) {
				if _, _, err := w.payments.Abandon(w.ctx, payment.Release{Account: "a", Booking: w.ids.Booking(w.sale, o.Booking), Key: "let-go", Hash: []byte("h")}); err != nil {
					w.Fatal(err)
				}
			}},
		{name: "it dies before the step is stored", state: standby.Booked, calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.exec(`ALTER FUNCTION payment_capturing RENAME TO gone`)
			},
			mend: func(w *world, _ *between, _ *standby.Order) {
				w.exec(`ALTER FUNCTION gone RENAME TO payment_capturing`)
			}},
		{name: "it dies after the capture", state: standby.Booked, calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{LoseWebhooks: 1})
				w.exec(`ALTER FUNCTION standby_captured RENAME TO gone`)
			},
			mend: func(w *world, _ *between, _ *standby.Order) {
				w.exec(`ALTER FUNCTION gone RENAME TO standby_captured`)
			}},
		{name: "it dies before the confirm step", state: standby.Booked, calls: 1,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{LoseWebhooks: 1})
				w.exec(`ALTER FUNCTION payment_confirm RENAME TO gone`)
			},
			mend: func(w *world, _ *between, _ *standby.Order) {
				w.exec(`ALTER FUNCTION gone RENAME TO payment_confirm`)
			}},
		{name: "it dies before the end of the order is stored", state: standby.Cancelled, why: "the payment was refused", calls: 2,
			wrong: func(w *world, _ *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{RefuseCapture: 2})
				w.exec(`ALTER FUNCTION standby_failed RENAME TO gone`)
			},
			mend: func(w *world, _ *between, _ *standby.Order) {
				w.exec(`ALTER FUNCTION gone RENAME TO standby_failed`)
			}},
		{name: "the void is not answered", state: standby.Cancelled, why: "the payment was refused", calls: 1,
			wrong: func(w *world, b *between, _ *standby.Order) {
				w.gateway.SetFaults(sandboxgw.Faults{RefuseCapture: 1})
				b.before = away("cancel")
			},
			mend: func(_ *world, b *between, _ *standby.Order) { b.before = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &between{}
			w := through(t, b, options{})
			taken := w.sellOut()
			j := w.queued("a", nil)
			w.give(taken[1])
			w.serve(j)
			o := w.order(j)
			c.wrong(w, b, o)
			w.fulfil()
			if c.mend != nil {
				c.mend(w, b, o)
			}
			w.fulfil()
			w.reconcile()
			o = w.order(j)
			if o.State != c.state || o.Reason != c.why {
				t.Errorf("it ends %s (%s), want %s (%s)\n%s", o.State, o.Reason, c.state, c.why, w.story())
			}
			if got := b.captures.Load(); got > c.calls {
				t.Errorf("%d captures were asked for", got)
			}
			if at := w.atGateway(j.Authorise.Reference); c.state == standby.Booked && (at.Captured != second || at.Refunded != 0) {
				t.Errorf("%+v", at)
			}
			w.exec(`UPDATE sale SET state = 'open' WHERE sale_id = $1`, w.sale)
			if n := w.notices("standby_matched"); c.state == standby.Booked && n != 1 {
				t.Errorf("%d messages of success", n)
			}
			if c.state == standby.Cancelled && w.notices("standby_failed")+w.notices("lost")+w.notices("refunded") != 1 {
				t.Errorf("the holder is not told once: %s", w.story())
			}
			w.settled()
		})
	}
}

// reference is the one payment's at the gateway.
func (w *world) reference() string {
	w.Helper()
	var s string
	w.scan(&s, `SELECT reference FROM payment WHERE sale_id = $1`, w.sale)
	return s
}

// A seat whose order is not charged goes to the next, by the ordinary way.
func TestStandbyNextAfterRefusal(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	a, b := w.queued("a", nil), w.queued("b", nil)
	w.give(taken[1])
	w.serve(a)
	w.gateway.SetFaults(sandboxgw.Faults{RefuseCapture: 1})
	w.fulfil()
	w.serve(b)
	w.fulfil()
	if o := w.order(b); o.State != standby.Booked {
		t.Errorf("%+v", o)
	}
	w.settled()
}

// A ticket or a message that cannot be sent leaves the booking as it is.
func TestStandbyMessageFails(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	j := w.queued("a", nil)
	w.give(taken[1])
	w.serve(j)
	w.fulfil()
	for range outbox.TriesBeforeAlert {
		w.exec(`UPDATE outbox SET due_at = now() WHERE sale_id = $1 AND done_at IS NULL`, w.sale)
		for _, kind := range []string{"ticket", "notify"} {
			if _, err := w.box.Drain(w.ctx, w.sale, kind, 1, func(context.Context, outbox.Row) error { return errors.New("no mail") }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o := w.order(j); o.State != standby.Booked || w.state(o.Booking) != "booked" {
		t.Errorf("%+v", o)
	}
	if n := w.count(`SELECT count(*) FROM alert WHERE sale_id = $1 AND kind = 'outbox' AND closed_at IS NULL`, w.sale); n != 2 {
		t.Errorf("%d alerts", n)
	}
	w.settled()
}

// A gateway that cannot take a part takes the whole, and the difference goes back,
// once.
func TestStandbyWholeOnly(t *testing.T) {
	w := waiting(t, options{gateway: func(c *sandbox.Client) payment.Gateway { return c.WholeOnly() }, faults: sandboxgw.Faults{WholeOnly: true}})
	taken := w.sellOut()
	j := w.queued("a", func(j *payment.Joining) { j.Classes = []string{"first", "second"} })
	w.give(taken[1])
	w.serve(j)
	w.fulfil()
	for range 2 {
		w.reconcile()
	}
	at := w.atGateway(j.Authorise.Reference)
	if o := w.order(j); o.State != standby.Booked || at.Captured != first || at.Refunded != first-second || len(at.Refunds) != 1 {
		t.Errorf("%+v, %+v", o, at)
	}
	if n := w.count(`SELECT count(*) FROM refund WHERE sale_id = $1 AND reason = 'difference'`, w.sale); n != 1 {
		t.Errorf("%d refunds", n)
	}
	// Giving the booking back returns what it cost and no more.
	r, _, err := w.payments.Return(w.ctx, payment.Release{Account: "a", Booking: w.ids.Booking(w.sale, w.order(j).Booking), Key: "back", Hash: []byte("h")})
	if err != nil || r.Refund.Amount != second {
		t.Errorf("%+v, %v", r, err)
	}
	w.reconcile()
	if at := w.atGateway(j.Authorise.Reference); at.Refunded != first {
		t.Errorf("%+v", at)
	}
	w.settled()
}

// Money for an order that has no seats goes back, once, and the order ends.
func TestStandbyPaidWithoutSeats(t *testing.T) {
	w := waiting(t, options{})
	w.sellOut()
	j := w.queued("a", nil)
	if _, err := w.client.Capture(w.ctx, j.Authorise.Reference, second, "by-hand"); err != nil {
		t.Fatal(err)
	}
	w.eventually("refund", func() bool { n, _ := w.refunded(j.Authorise.Reference); return n == second })
	w.reconcile()
	if n, times := w.refunded(j.Authorise.Reference); n != second || times != 1 {
		t.Errorf("%d in %d refunds", n, times)
	}
	if o := w.order(j); o.State != standby.Cancelled || w.notices("standby_cancelled") != 1 {
		t.Errorf("%+v", o)
	}
	w.settled()
	w.exec(`UPDATE refund SET amount = amount - 1 WHERE sale_id = $1`, w.sale)
	if n := w.count(`SELECT count(*) FROM money_faults($1, 10) WHERE subject LIKE 'order %'`, w.sale); n != 1 {
		t.Error("a cent kept of an order's money is no fault")
	}
	report, err := audit.Run(w.ctx, w.db.Owner, w.sale, nil)
	if err != nil || !slices.ContainsFunc(report.Broken, func(b audit.Broken) bool { return b.Check == "money" }) {
		t.Errorf("the audit does not see it: %+v, %v", report.Broken, err)
	}
}

// What costs nothing waits, is matched and booked without a gateway; what costs
// nothing only in the class it gets is not charged.
func TestStandbyFree(t *testing.T) {
	w := waiting(t, options{})
	w.exec(`UPDATE class SET fare = '{"kind":"per_leg","amounts":[0,0,0]}' WHERE sale_id = $1 AND class = 'second'`, w.sale)
	taken := w.sellOut()
	j := w.join("a", nil)
	if j.State != standby.Queued || j.Price.Amount != 0 || j.Authorise.RedirectURL != "" {
		t.Errorf("%+v", j)
	}
	k := w.queued("b", func(j *payment.Joining) { j.Classes = []string{"second", "first"} })
	gone := w.join("c", nil)
	if left, _, err := w.payments.LeaveStandby(w.ctx, payment.Leaving{Account: "c", Order: gone.Order, Key: "l", Hash: []byte("h")}); err != nil || left.State != standby.Cancelled {
		t.Errorf("%+v, %v", left, err)
	}
	w.give(taken[1])
	w.give(taken[2])
	w.serve(j)
	w.fulfil()
	w.reconcile()
	if a, b := w.order(j), w.order(k); a.State != standby.Booked || b.State != standby.Booked {
		t.Errorf("%+v, %+v", a, b)
	}
	if at := w.atGateway(k.Authorise.Reference); at.Status != payment.Cancelled || at.Captured != 0 {
		t.Errorf("%+v", at)
	}
	w.settled()
}

// A screening is a sale with one leg: people wait for a class, name no stops, and
// two of them get the two seats beside each other that come free.
func TestStandbyScreening(t *testing.T) {
	w := setup(t, options{})
	w.sale = w.db.OpenSale(t, 1, 4)
	w.exec(`UPDATE sale SET kind = 'show', title = 'The Lighthouse Keeper' WHERE sale_id = $1`, w.sale)
	var pairs []int64
	for _, seats := range [][]int{{1, 4}, {2, 3}} {
		var number int64
		w.scan(&number, `SELECT (hold_seats($1, $2, $2, 'h', NULL, NULL, 'second', 1, 1, $3, NULL, 2, 0, NULL, '[]', '{}', NULL, 'customer', '')->>'number')::bigint`,
			w.sale, w.key(), seats)
		w.exec(`SELECT seat_book($1, $2, $3, 1, 1)`, w.sale, number, seats)
		w.exec(`UPDATE booking SET state = 'booked' WHERE sale_id = $1 AND number = $2`, w.sale, number)
		pairs = append(pairs, number)
	}
	if _, err := w.tryJoin(w.wish("z", func(j *payment.Joining) { j.From, j.To, j.Quantity = "", "", 5 })); !problem.Is(err, problem.Unprocessable) {
		t.Errorf("five for a hall of four: %v", err)
	}
	j := w.queued("a", func(j *payment.Joining) { j.From, j.To, j.Quantity, j.Together = "", "", 2, true })
	w.give(pairs[1])
	w.serve(j)
	w.fulfil()
	o := w.order(j)
	var seats []int
	w.scan(&seats, `SELECT seats FROM booking WHERE sale_id = $1 AND number = $2`, w.sale, o.Booking)
	if o.State != standby.Booked || !slices.Equal(seats, []int{2, 3}) {
		t.Errorf("%+v has %v", o, seats)
	}
	w.settled()
}

func TestStandbyLeave(t *testing.T) {
	w := waiting(t, options{})
	w.sellOut()
	j := w.queued("a", nil)
	leave := func(account, order, key string) (payment.Left, bool, error) {
		return w.payments.LeaveStandby(w.ctx, payment.Leaving{Account: account, Order: order, Key: key, Hash: []byte(order)})
	}
	for _, who := range []string{"b", ""} {
		if _, _, err := leave(who, j.Order, "k0"); !problem.Is(err, problem.NotFound) {
			t.Errorf("another's order: %v", err)
		}
	}
	// The gateway is away: cancelling until it has answered.
	w.gateway.SetFaults(sandboxgw.Faults{Down: true})
	left, replay, err := leave("a", j.Order, "k1")
	if err != nil || replay || left.State != standby.Cancelling {
		t.Fatalf("%+v, %v, %v", left, replay, err)
	}
	if n := w.count(`SELECT count(*) FROM standby_queue WHERE sale_id = $1`, w.sale); n != 0 {
		t.Error("it stands in its queue")
	}
	if again, replay, err := leave("a", j.Order, "k1"); err != nil || !replay || again.State != standby.Cancelling {
		t.Errorf("the same again: %+v, %v, %v", again, replay, err)
	}
	w.gateway.SetFaults(sandboxgw.Faults{})
	w.reconcile()
	if o := w.order(j); o.State != standby.Cancelled || o.Step != "voided" {
		t.Errorf("%+v", o)
	}
	if left, _, err := leave("a", j.Order, "k2"); err != nil || left.State != standby.Cancelled {
		t.Errorf("leaving what is left: %+v, %v", left, err)
	}
	k := w.join("a", nil) // not authorised yet
	if left, _, err := leave("a", k.Order, "k3"); err != nil || left.State != standby.Cancelled {
		t.Errorf("%+v, %v", left, err)
	}
	w.settled()
}

// A match that races a cancel ends as exactly one of booked and cancelled.
func TestStandbyCancelRacesMatch(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	seat := taken[1]
	ends := map[standby.State]int{}
	const rounds = 40
	for round := range rounds {
		j := w.queued("a", nil)
		w.give(seat)
		var both sync.WaitGroup
		var left error
		both.Go(func() {
			if _, err := w.match.Match(w.ctx, w.sale); err != nil {
				t.Error(err)
			}
			if _, err := w.payments.Fulfil(w.ctx, w.sale); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			time.Sleep(time.Duration(round%10) * 2 * time.Millisecond)
			_, _, left = w.payments.LeaveStandby(w.ctx, payment.Leaving{Account: "a", Order: j.Order, Key: w.key(), Hash: []byte("h")})
		})
		both.Wait()
		w.reconcile()
		o := w.order(j)
		ends[o.State]++
		switch {
		case o.State == standby.Booked && problem.Is(left, problem.WrongState):
			seat = o.Booking
			if at := w.atGateway(j.Authorise.Reference); at.Captured != second {
				t.Fatalf("booked: %+v", at)
			}
		case o.State == standby.Cancelled && left == nil:
			if at := w.atGateway(j.Authorise.Reference); at.Status != payment.Cancelled || at.Captured != 0 {
				t.Fatalf("cancelled: %+v", at)
			}
			if _, err := w.match.Match(w.ctx, w.sale); err != nil {
				t.Fatal(err)
			}
			seat = w.take("second", 1)
		default:
			t.Fatalf("round %d: %+v, leaving said %v\n%s", round, o, left, w.story())
		}
		if o.State == standby.Booked { // given back with its money, for the next round
			if _, _, err := w.payments.Return(w.ctx, payment.Release{Account: "a", Booking: w.ids.Booking(w.sale, o.Booking), Key: w.key(), Hash: []byte("h")}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.match.Match(w.ctx, w.sale); err != nil {
				t.Fatal(err)
			}
			seat = w.take("second", 1)
		}
	}
	t.Logf("%v", ends)
	if ends[standby.Booked]+ends[standby.Cancelled] != rounds {
		t.Errorf("%v", ends)
	}
	w.reconcile()
	w.check()
}

// field case 42: waiting does not count against the limit; whoever comes second to
// a seat over it is refused.
func TestStandbyLimitOfSeats(t *testing.T) {
	w := waiting(t, options{})
	w.exec(`UPDATE sale SET account_limit = 1, booking_limit = 1 WHERE sale_id = $1`, w.sale)
	taken := w.sellOut()
	hold := func(account string, seat int) string {
		var raw string
		w.scan(&raw, `SELECT hold_seats($1, $2, $3, 'h', NULL, NULL, 'second', 1, 3, ARRAY[$4::int], NULL, 1, 0, NULL, '[]', '{}', NULL, 'customer', '')->>'code'`,
			w.sale, account, w.key(), seat)
		return raw
	}
	// A direct purchase first: the match is refused, and the sum let go.
	a := w.queued("a", nil)
	w.exec(`DELETE FROM standby_queue WHERE sale_id = $1`, w.sale) // for a moment nobody seems to wait
	w.give(taken[1])
	if code := hold("a", 1); code != "held" {
		t.Fatal(code)
	}
	w.exec(`INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together)
		SELECT sale_id, 'second', leg_from, leg_to, score, number, quantity, together FROM standby_order WHERE sale_id = $1 AND state = 'queued'`, w.sale)
	w.give(taken[2])
	if _, err := w.match.Match(w.ctx, w.sale); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if o := w.order(a); o.State != standby.Cancelled || o.Reason != "the account has reached its limit of seats" || w.notices("standby_cancelled") != 1 {
		t.Errorf("%+v", o)
	}
	// The match first: the hold is refused.
	taken[2] = w.take("second", 2)
	var b payment.Joined
	w.eventually("sold out by the map", func() bool {
		var err error
		b, err = w.tryJoin(w.wish("b", nil))
		return err == nil
	})
	w.act(b.Authorise.Reference, sandboxgw.Act{Do: "authorise"})
	w.orderBecomes(b, standby.Queued)
	w.give(taken[2])
	w.serve(b)
	w.give(taken[3])
	if _, err := w.match.Match(w.ctx, w.sale); err != nil {
		t.Fatal(err)
	}
	if code := hold("b", 3); code != "limit-reached" {
		t.Errorf("a hold beside the match: %s", code)
	}
	if _, err := w.tryJoin(w.wish("b", func(j *payment.Joining) { j.Classes = []string{"first"} })); !problem.Is(err, problem.LimitReached) {
		t.Errorf("joining with a seat too many: %v", err)
	}
	w.fulfil()
	w.settled()
}

// field case 43: nothing is given after closing; the orders end and their sums are
// let go.
func TestStandbyAfterClosing(t *testing.T) {
	for name, over := range map[string]string{
		"closed":    `UPDATE sale SET state = 'closed' WHERE sale_id = $1`,
		"its time":  `UPDATE sale SET closes_at = now() WHERE sale_id = $1`,
		"cancelled": `UPDATE sale SET state = 'cancelled' WHERE sale_id = $1`,
		"deadline":  `UPDATE standby_order SET until = now() WHERE sale_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			w := waiting(t, options{})
			taken := w.sellOut()
			a, b := w.queued("a", nil), w.queued("b", nil)
			open := w.join("c", nil)
			w.exec(over, w.sale)
			w.give(taken[1])
			if _, err := w.match.Match(w.ctx, w.sale); err != nil {
				t.Fatal(err)
			}
			w.reconcile()
			w.reconcile()
			for _, j := range []payment.Joined{a, b, open} {
				if o := w.order(j); o.State != standby.Expired && !(o.State == standby.Authorising && name == "deadline") || o.Booking != 0 {
					t.Errorf("%+v", o)
				}
				if at := w.atGateway(j.Authorise.Reference); at.Status != payment.Cancelled && w.order(j).State == standby.Expired {
					t.Errorf("%+v", at)
				}
			}
			if n := w.notices("standby_expired"); n != 2 {
				t.Errorf("%d told", n)
			}
			w.settled()
		})
	}
}

// An order does not outlive its authorisation.
func TestStandbyLifeOfAuthorisation(t *testing.T) {
	b := &between{life: 30 * time.Minute}
	w := through(t, b, options{})
	w.sellOut()
	j := w.join("a", func(j *payment.Joining) { j.Until = time.Now().Add(2 * time.Hour) })
	if d := time.Until(j.Until); d < 119*time.Minute || d > 2*time.Hour {
		t.Errorf("it waits %s", d)
	}
	w.act(j.Authorise.Reference, sandboxgw.Act{Do: "authorise"})
	w.orderBecomes(j, standby.Queued)
	o := w.order(j)
	if d := time.Until(o.Until); d > 30*time.Minute {
		t.Errorf("it waits %s, its authorisation lives half an hour", d)
	}
	if last := o.History[len(o.History)-1]; last.Why != "until the end of the authorisation" {
		t.Errorf("its holder is not told: %+v", o.History)
	}
}

func TestStandbyWishes(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	departed := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		change func(*payment.Joining)
		code   problem.Code
		field  string
	}{
		{"no class", func(j *payment.Joining) { j.Classes = nil }, problem.Unprocessable, "classes"},
		{"an unknown class", func(j *payment.Joining) { j.Classes = []string{"second", "third"} }, problem.Unprocessable, "classes[1]"},
		{"a class twice", func(j *payment.Joining) { j.Classes = []string{"second", "second"} }, problem.Unprocessable, "classes[1]"},
		{"no seats", func(j *payment.Joining) { j.Quantity = 0 }, problem.Unprocessable, "quantity"},
		{"too many seats", func(j *payment.Joining) { j.Quantity = 7 }, problem.LimitReached, ""},
		{"backwards", func(j *payment.Joining) { j.From, j.To = "3", "0" }, problem.Unprocessable, "to"},
		{"no such stop", func(j *payment.Joining) { j.From = "x" }, problem.Unprocessable, "from"},
		{"past", func(j *payment.Joining) { j.Until = departed }, problem.Unprocessable, "until"},
		{"after closing", func(j *payment.Joining) { j.Until = time.Now().Add(48 * time.Hour) }, problem.Unprocessable, "until"},
		{"another gateway", func(j *payment.Joining) { j.Gateway = "stripe" }, problem.Unprocessable, "gateway"},
		{"no gateway", func(j *payment.Joining) { j.Gateway = "" }, problem.Unprocessable, "gateway"},
		{"more together than a coach has", func(j *payment.Joining) { j.Classes, j.Quantity, j.Together = []string{"first"}, 3, true }, problem.Unprocessable, "together"},
		{"more than the class has", func(j *payment.Joining) { j.Classes, j.Quantity = []string{"first"}, 3 }, problem.Unprocessable, "quantity"},
		{"more people than seats", func(j *payment.Joining) {
			j.Passengers = []booking.Passenger{{Name: "A"}, {Name: "B"}}
		}, problem.Unprocessable, "passengers"},
		{"no address", func(j *payment.Joining) { j.Contact.Email = "nobody" }, problem.Unprocessable, "contact.email"},
		{"a wrong address to go back to", func(j *payment.Joining) { j.ReturnURL = "javascript:1" }, problem.Unprocessable, "return_url"},
	} {
		_, err := w.tryJoin(w.wish("a", c.change))
		var p *problem.Error
		if !errors.As(err, &p) || p.Code != c.code || c.field != "" && (len(p.Fields) == 0 || p.Fields[0].Field != c.field) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// More than a row holds: one coach will do.
	j := w.join("a", func(j *payment.Joining) { j.Quantity, j.Together = 5, true })
	if o := w.order(j); o.Together != standby.OneCoach {
		t.Errorf("%+v", o)
	}
	if j := w.join("a", func(j *payment.Joining) { j.Quantity, j.Together = 4, true }); w.order(j).Together != standby.OneRow {
		t.Errorf("%+v", w.order(j))
	}
	// Three open orders of an account, whatever their state.
	if j := w.join("a", nil); w.order(j).Together != standby.Apart {
		t.Errorf("%+v", w.order(j))
	}
	if _, err := w.tryJoin(w.wish("a", nil)); !problem.Is(err, problem.LimitReached) {
		t.Errorf("a fourth order: %v", err)
	}
	// What the open sale can give is bought, not waited for.
	w.give(taken[7])
	w.exec(`UPDATE seat SET considered_at = clock_timestamp() WHERE sale_id = $1`, w.sale)
	w.eventually("there are seats", func() bool {
		_, err := w.tryJoin(w.wish("b", func(j *payment.Joining) { j.Classes = []string{"second", "first"} }))
		if err == nil {
			w.exec(`UPDATE standby_order SET state = 'cancelled', ended_at = now() WHERE account = 'b'`)
			w.exec(`UPDATE payment SET step = 'settled', settled_at = now(), ask_at = NULL WHERE account = 'b'`)
		}
		return problem.Is(err, problem.WrongState)
	})
	if _, err := w.tryJoin(w.wish("c", func(j *payment.Joining) { j.Classes, j.Quantity = []string{"first"}, 2 })); err != nil {
		t.Errorf("two where there is one: %v", err)
	}
	w.exec(`UPDATE standby_order SET state = 'cancelled', ended_at = now() WHERE account = 'c'`)
	w.exec(`UPDATE payment SET step = 'settled', settled_at = now(), ask_at = NULL WHERE account = 'c'`)
	w.exec(`DELETE FROM standby_queue WHERE sale_id = $1`, w.sale)
	// Where nobody waits the open sale has what came free before match looked at it.
	w.exec(`UPDATE seat SET considered_at = '-infinity' WHERE sale_id = $1`, w.sale)
	if _, err := w.tryJoin(w.wish("c", func(j *payment.Joining) { j.Classes, j.Key = []string{"first"}, "again" })); !problem.Is(err, problem.WrongState) {
		t.Errorf("a seat that match has not looked at, and nobody waits: %v", err)
	}
	// The last is sold, and whoever comes too late for it may wait at once, though the
	// map still has it.
	w.take("first", 7)
	if _, err := w.tryJoin(w.wish("d", func(j *payment.Joining) { j.Classes = []string{"first"} })); err != nil {
		t.Errorf("a moment after the last seat: %v", err)
	}
	if n := w.count(`SELECT count(*) FROM standby_order WHERE sale_id = $1 AND account = 'a'`, w.sale); n != 3 {
		t.Errorf("%d orders of what was refused", n)
	}
}

// The account's own orders, as the page shows them.
func TestStandbyShown(t *testing.T) {
	w := waiting(t, options{})
	taken := w.sellOut()
	j := w.queued("a", func(j *payment.Joining) { j.Passengers = []booking.Passenger{{Name: "张伟"}} })
	v, err := w.orders.Show(w.ctx, "a", j.Order)
	if err != nil || v.State != standby.Queued || v.Position != nil || v.Message != standby.TextUnknown || v.Quantity != 1 ||
		v.Price.Amount != second || len(v.History) != 2 || v.Passengers[0].Name != "张伟" || v.PollAfterMS == 0 || v.From != "0" || v.To != "3" {
		t.Errorf("%+v, %v", v, err)
	}
	for _, c := range [][2]string{{"b", j.Order}, {"a", j.Order + "0"}, {"a", ""}, {"a", w.ids.Booking(w.sale, 1)}} {
		if _, err := w.orders.Show(w.ctx, c[0], c[1]); !problem.Is(err, problem.NotFound) {
			t.Errorf("%v: %v", c, err)
		}
	}
	w.give(taken[1])
	w.serve(j)
	w.fulfil()
	w.eventually("shown as booked", func() bool {
		v, err = w.orders.Show(w.ctx, "a", j.Order)
		return err == nil && v.State == standby.Booked
	})
	if v.Booking != w.ids.Booking(w.sale, w.order(j).Booking) || v.Class != "second" || v.Message != standby.TextBooked || v.PollAfterMS != 0 {
		t.Errorf("%+v", v)
	}
	mine, err := w.orders.Mine(w.ctx, "a")
	if err != nil || len(mine) != 1 || mine[0].Order != j.Order || mine[0].History != nil {
		t.Errorf("%+v, %v", mine, err)
	}
	if none, err := w.orders.Mine(w.ctx, "b"); err != nil || len(none) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
}

// Many matched orders are charged at a time.
func TestStandbyManyAtOnce(t *testing.T) {
	b := &between{}
	var most, now atomic.Int64
	b.before = func(call string) error {
		if call == "capture" {
			n := now.Add(1)
			for {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(500 * time.Millisecond) // longer than it takes to begin another
			now.Add(-1)
		}
		return nil
	}
	w := through(t, b, options{})
	taken := w.sellOut()
	var all []payment.Joined
	for i := range 6 {
		all = append(all, w.queued(fmt.Sprint("p", i), nil))
	}
	for seat := 1; seat <= 6; seat++ {
		w.give(taken[seat])
	}
	if _, err := w.match.Match(w.ctx, w.sale); err != nil {
		t.Fatal(err)
	}
	if did := w.fulfil(); did.Done != 6 || most.Load() < 3 {
		t.Errorf("%+v, at most %d at a time", did, most.Load())
	}
	for _, j := range all {
		if o := w.order(j); o.State != standby.Booked {
			t.Errorf("%+v", o)
		}
	}
	w.settled()
}
