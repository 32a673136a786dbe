package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/booking"
	"handler/function/shared/event"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
)

// background is what runs beside the clients: `match`, `pay` and `ticket` at
// their nudges, where those are heard, and each second what the tick and the net
// do. Some of their runs die. stop ends it and waits.
type background struct {
	w     *world
	stop_ context.CancelFunc
	wait  sync.WaitGroup
	subs  []*nats.Subscription
}

func (w *world) begin(rng *rand.Rand) *background {
	ctx, stop := context.WithCancel(w.ctx)
	b := &background{w: w, stop_: stop}
	nudged := func(kind string, workers int, do func(ctx context.Context, r *replica) error) {
		signal := make(chan struct{}, workers)
		sub, err := w.services.NATS.Conn.Subscribe(kind+".*", func(*nats.Msg) {
			if now() < w.deaf.Load() {
				return
			}
			select {
			case signal <- struct{}{}:
			default: // who runs next sees what is due
			}
		})
		if err != nil {
			w.Fatal(err)
		}
		b.subs = append(b.subs, sub)
		for range workers {
			rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
			b.wait.Go(func() {
				for {
					select {
					case <-ctx.Done():
						return
					case <-signal:
					}
					w.fated(rng, do)
				}
			})
		}
	}
	nudged(event.SeatReleased, 2, w.match)
	nudged(event.OrderMatched, 2, w.fulfil)
	nudged(event.BookingConfirmed, 1, w.tell)
	every := func(d time.Duration, do func(ctx context.Context, r *replica) error) {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		b.wait.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				w.fated(rng, do)
			}
		})
	}
	every(time.Second, w.tick)
	every(time.Second, w.reconcile)
	return b
}

func (b *background) stop() {
	b.stop_()
	for _, s := range b.subs {
		_ = s.Unsubscribe()
	}
	b.wait.Wait()
}

// fated runs something in the background, once in a while to its death.
func (w *world) fated(rng *rand.Rand, do func(ctx context.Context, r *replica) error) {
	ctx := w.ctx
	if rng.IntN(1000) < cutRuns {
		var cancel context.CancelFunc
		ctx, cancel = fated(ctx, rng)
		defer cancel()
	}
	w.work("", func() error { return do(ctx, w.replicas[rng.IntN(len(w.replicas))]) })
}

func (w *world) match(ctx context.Context, r *replica) error {
	_, err := r.matcher.Match(ctx, w.sale)
	return err
}

func (w *world) fulfil(ctx context.Context, r *replica) error {
	_, err := r.payments.Fulfil(ctx, w.sale)
	return err
}

// tick is what admit-tick does each second for sales without a room.
func (w *world) tick(ctx context.Context, r *replica) error {
	if _, err := booking.ExpireEnded(ctx, r.db, 0); err != nil {
		return err
	}
	_, err := r.releases.TellAll(ctx)
	return err
}

// reconcile is the net, and `match` and `pay` where their nudges were lost.
func (w *world) reconcile(ctx context.Context, r *replica) error {
	did := r.net.Run(ctx)
	_, err := r.matcher.MatchDue(ctx)
	if err == nil {
		err = w.fulfil(ctx, r)
	}
	if err == nil {
		_, err = r.orders.Expire(ctx)
	}
	if err == nil {
		err = w.tell(ctx, r)
	}
	if err == nil && did.Errors > 0 {
		err = fmt.Errorf("%d steps of the net did not finish", did.Errors)
	}
	return err
}

// askAll asks the gateway about every payment that is due to be asked about. The net
// asks about some of a sale in a run, and hundreds of orders may wait.
func (w *world) askAll(ctx context.Context, r *replica) error {
	for {
		if n, err := r.payments.AskDue(ctx); err != nil || n == 0 {
			return err
		}
	}
}

// mail is what somebody was told: a ticket, or news by their template.
type mail struct {
	kind, template string
	booking, order int64
}

// tell stands for `ticket`: it notes who was told, and sends nothing.
func (w *world) tell(ctx context.Context, _ *replica) error {
	for _, kind := range []string{"ticket", "notify"} {
		_, err := w.postman.Together(ctx, w.sale, kind, func(_ context.Context, rows []outbox.Row) error {
			for _, r := range rows {
				var what struct {
					Booking, Order int64
					Template       string
				}
				if err := json.Unmarshal(r.Payload, &what); err != nil {
					return err
				}
				w.mailed.Store(mail{kind, what.Template, what.Booking, what.Order}, true)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mostRounds bounds how often what is due is done at a quiet moment: each round
// does all that is due, and what follows from it is due in the next.
const mostRounds = 12

// drain lets time pass until nothing is due, with a gateway that works, and then
// closes the gate: nobody is at work. The caller opens it again.
func (w *world) drain(c *checker) {
	w.Helper()
	w.deaf.Store(0)
	var due []string
	for range mostRounds {
		w.gateway.SetFaults(sandboxgw.Faults{})
		w.exec(`UPDATE outbox SET due_at = clock_timestamp() WHERE done_at IS NULL`)
		w.exec(`UPDATE payment SET ask_at = clock_timestamp() WHERE ask_at IS NOT NULL`)
		w.exec(`UPDATE gateway_event SET due_at = clock_timestamp() WHERE applied_at IS NULL`)
		for _, r := range w.replicas {
			w.work("", func() error { return w.tick(w.ctx, r) })
			w.work("", func() error { return w.askAll(w.ctx, r) })
			w.work("", func() error { return w.reconcile(w.ctx, r) })
		}
		w.shut()
		if due = w.due(); len(due) == 0 {
			due = w.inTheAir(c)
		}
		if len(due) == 0 {
			return
		}
		w.open()
	}
	w.shut()
	c.fault("due", "after %d rounds of everything there is still due:\n  %s", mostRounds, strings.Join(due, "\n  "))
}

// shut waits until nobody is at work and keeps it so, until open or the end of a
// test that has failed.
func (w *world) shut() { w.gate.Lock(); w.isShut = true }

func (w *world) open() { w.isShut = false; w.gate.Unlock() }

// due lists what is still to be done, and who is still at work in the database.
func (w *world) due() []string {
	return read(w, rowText, `
		SELECT 'outbox ' || kind || ' ' || subject || ' tries ' || tries || ' ' || COALESCE(error, '') FROM outbox WHERE done_at IS NULL
		UNION ALL SELECT 'event ' || event_id || ' ' || event_type || ' ' || COALESCE(effect, '') FROM gateway_event WHERE applied_at IS NULL
		UNION ALL SELECT 'release ' || release_id FROM seat_release WHERE done_at IS NULL OR told_at IS NULL
		UNION ALL SELECT 'order ' || number || ' not looked at' FROM standby_due
		UNION ALL SELECT 'order ' || number || ' ' || state || ' ' || step FROM standby_order WHERE state IN ('matched', 'cancelling', 'pending')
		UNION ALL SELECT 'payment ' || p.payment_id || ' of an order that is ' || o.state
			FROM payment p JOIN standby_order o ON o.sale_id = p.sale_id AND o.number = p.standby_order
			WHERE p.step <> 'settled' AND o.state IN ('cancelled', 'expired', 'booked')
		UNION ALL SELECT 'a backend is at work: ' || left(query, 60) FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'holdfast_app' AND state <> 'idle'
		LIMIT 20`)
}

// inTheAir are payments that the gateway has charged or authorised, and we do not
// know it yet: its webhook is on its way.
func (w *world) inTheAir(c *checker) []string {
	var all []string
	ours := w.payments()
	for key, p := range c.atGateway() {
		is := ours[paymentOf(w, p)]
		if is.step != "settled" && (p.Status == payment.Succeeded || p.Status == payment.Authorised && is.orderState == "authorising") {
			all = append(all, fmt.Sprintf("%s is %s at the gateway, and %s with us", key, p.Status, is.step))
		}
	}
	return all
}
