// Package reconcile is the safety net: it looks for what is due and was not
// done, because a nudge, a webhook or a process was lost, and does it. It
// believes nothing but Postgres and the gateways, and every step may run in two
// replicas at once.
package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/event"
	"handler/function/shared/idempotency"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
	"handler/function/shared/queue"
	"handler/function/shared/release"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"

	"github.com/redis/go-redis/v9"
)

// Times and limits of the net.
const (
	// Interval is how often it is called (stack.yml). Within the remembered time a
	// replica answers from memory, and within the lease only one runs.
	Interval   = 10 * time.Second
	remembered = Interval - time.Second
	// seldom is for what costs a scan and can wait.
	seldom = time.Minute
	// endedFor is how long a hold must have ended before the net moves it: the
	// tick comes first.
	endedFor = 15 * time.Second
	compared = time.Hour
	leaseKey = "reconcile"
)

// Options of a Net.
type Options struct {
	DB          *store.DB
	Payments    *payment.Service
	Outbox      *outbox.Box
	Idempotency *idempotency.Store
	Releases    *release.Service
	Lines       *line.Lines   // the queues of standby; may be nil: then nobody tends them
	Bus         *event.Bus    // may be nil
	Redis       *queue.Client // may be nil: then there is no lease
}

// Net is the safety net of one replica. It is safe for concurrent use.
type Net struct {
	o Options

	mu      sync.Mutex
	last    Did
	lastAt  time.Time
	rarely  time.Time
	running bool
}

// New makes a Net.
func New(o Options) *Net { return &Net{o: o} }

// Did is what one run did, in counts.
type Did struct {
	Events      int     `json:"events"`     // recorded events applied
	Replayed    int     `json:"replayed"`   // events moved from the stream
	Asked       int     `json:"asked"`      // payments asked about
	CalledOff   int     `json:"called_off"` // cancelled sales given back
	Refunded    int     `json:"refunded"`   // refunds carried out
	Cancelled   int     `json:"cancelled"`  // payments cancelled at their gateway
	Failed      int     `json:"failed"`     // of both, due again later
	Nudged      int     `json:"nudged"`     // sales whose tickets were called for again
	Expired     int     `json:"expired"`    // ended holds moved
	Told        int     `json:"told"`       // releases that nobody had been told of
	Untold      int     `json:"untold"`     // sales with some that wait too long
	Overdue     int     `json:"overdue"`    // kinds of outbox rows late in a sale
	MoneyFaults int     `json:"money_faults"`
	Forgotten   int     `json:"forgotten"` // idempotency rows
	Standby     Standby `json:"standby"`
	Errors      int     `json:"errors"` // steps that could not finish
}

// Standby counts what was done for the queues of standby.
type Standby struct {
	Ended     int `json:"ended"`     // orders whose time is over
	Charged   int `json:"charged"`   // matched orders charged, or ended where that failed
	Recovered int `json:"recovered"` // pending orders whose position is known now
	Mirrored  int `json:"mirrored"`  // changes of orders brought to the queues
	Rebuilt   int `json:"rebuilt"`   // orders put back into queues that were lost
	Split     int `json:"split"`     // queues put into shards
	Ghosts    int `json:"ghosts"`    // orders taken out of queues that they had left
	Missing   int `json:"missing"`   // waiting orders put back into their queues
	Beside    int `json:"beside"`    // waiting orders beside seats that they could have, due again
	Rechecked int `json:"rechecked"` // seats that came free and nobody considered, due again
	Nudged    int `json:"nudged"`    // sales whose match was called for again
	Late      int `json:"late"`      // releases that nobody has looked at in time
}

// Tick is one cron call: it runs the net unless it ran within the interval here
// (answered from memory, before anything else) or elsewhere (the lease).
func (n *Net) Tick(ctx context.Context) Did {
	n.mu.Lock()
	if n.running || time.Since(n.lastAt) < remembered {
		defer n.mu.Unlock()
		return n.last
	}
	n.running = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.running = false
		n.mu.Unlock()
	}()
	if !n.lease(ctx) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lastAt = time.Now()
		return n.last
	}
	did := n.Run(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.lastAt = did, time.Now()
	return did
}

// lease keeps other replicas from doing the same work again. It only saves
// work: without Redis everybody runs.
func (n *Net) lease(ctx context.Context) bool {
	if n.o.Redis == nil {
		return true
	}
	ours := true
	err := n.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		var err error
		ours, err = rdb.SetNX(ctx, queue.Key(leaseKey, "lease"), "1", remembered).Result()
		return err
	})
	return err != nil || ours
}

// Now is Run with everything that otherwise has its hour or its minute.
func (n *Net) Now(ctx context.Context) Did {
	n.mu.Lock()
	n.rarely = time.Time{}
	n.mu.Unlock()
	return n.run(ctx, true)
}

// Run does everything that is due now. A step that fails is logged and counted
// and does not keep the others from running; when Postgres is away the first
// step says so and the rest is left.
func (n *Net) Run(ctx context.Context) Did { return n.run(ctx, false) }

func (n *Net) run(ctx context.Context, all bool) Did {
	var did Did
	n.mu.Lock()
	rare := time.Since(n.rarely) >= seldom
	if rare {
		n.rarely = time.Now()
	}
	n.mu.Unlock()
	steps := []struct {
		name   string
		seldom bool
		do     func() error
	}{
		{"events of the stream", false, func() (err error) { did.Replayed, err = n.o.Payments.Replay(ctx); return }},
		{"recorded events", false, func() (err error) { did.Events, err = n.o.Payments.ApplyDue(ctx); return }},
		{"payments kept pending", false, func() (err error) { did.Asked, err = n.o.Payments.AskDue(ctx); return }},
		{"orders whose time is over", false, func() (err error) { did.Standby.Ended, err = n.o.Payments.EndOrders(ctx); return }},
		{"matched orders", false, func() error { return n.sweep(ctx, payment.KindMatched, &did.Standby.Charged, &did.Failed) }},
		{"cancelled sales", false, func() error { return n.sweep(ctx, payment.KindCallOff, &did.CalledOff, &did.Failed) }},
		{"refunds", false, func() error { return n.sweep(ctx, payment.KindRefund, &did.Refunded, &did.Failed) }},
		{"cancelling", false, func() error { return n.sweep(ctx, payment.KindCancel, &did.Cancelled, &did.Failed) }},
		{"tickets", false, func() (err error) { did.Nudged, err = n.tickets(ctx); return }},
		{"ended holds", false, func() (err error) { did.Expired, err = booking.ExpireEnded(ctx, n.o.DB, endedFor); return }},
		{"releases", false, func() (err error) { did.Told, err = n.o.Releases.TellAll(ctx); return noNATS(err) }},
		{"late releases", false, func() (err error) { did.Untold, err = n.o.Releases.Overdue(ctx); return }},
		{"pending orders", false, n.lines(func(l *line.Lines) (err error) { did.Standby.Recovered, err = l.Recover(ctx); return })},
		{"queues of standby", false, n.lines(func(l *line.Lines) error {
			mirrored, err := l.MirrorAll(ctx)
			did.Standby.Mirrored = mirrored.Done
			return err
		})},
		{"lost queues", false, n.lines(func(l *line.Lines) error {
			tended, err := l.Tend(ctx, all)
			did.Standby.Rebuilt, did.Standby.Split = tended.Rebuilt, tended.Split
			did.Standby.Ghosts, did.Standby.Missing, did.Standby.Beside = tended.Ghosts, tended.Missing, tended.Beside
			return err
		})},
		{"forgotten seats", false, n.lines(func(l *line.Lines) (err error) { did.Standby.Rechecked, err = l.Recheck(ctx); return })},
		{"match", false, n.lines(func(l *line.Lines) (err error) { did.Standby.Nudged, err = l.NudgeDue(ctx); return })},
		{"releases not matched", false, n.lines(func(l *line.Lines) (err error) { did.Standby.Late, err = l.LateReleases(ctx); return })},
		{"rates of standby", true, n.lines(func(l *line.Lines) error { _, err := l.Rates(ctx); return err })},
		{"late outbox rows", false, func() (err error) { did.Overdue, err = n.o.Outbox.Overdue(ctx); return }},
		{"money", true, func() (err error) { did.MoneyFaults, err = n.o.Payments.Compare(ctx, compared); return }},
		{"old keys", true, func() (err error) { did.Forgotten, err = n.o.Idempotency.Sweep(ctx); return }},
	}
	for _, step := range steps {
		if step.seldom && !rare {
			continue
		}
		if err := step.do(); err != nil {
			did.Errors++
			slog.WarnContext(ctx, "reconcile: a step did not finish", "step", step.name, "error", err)
		}
		if ctx.Err() != nil || n.o.DB.Down() {
			did.Errors++
			break
		}
	}
	return did
}

// lines makes a step of one that needs the queues.
func (n *Net) lines(do func(l *line.Lines) error) func() error {
	return func() error {
		if n.o.Lines == nil {
			return nil
		}
		return do(n.o.Lines)
	}
}

// noNATS takes an error for none where NATS is away: the next run tries again, and
// what waits too long has its alert.
func noNATS(err error) error {
	if errors.Is(err, event.ErrDown) {
		return nil
	}
	return err
}

// sweep works at the due outbox rows of one kind.
func (n *Net) sweep(ctx context.Context, kind string, done, failed *int) error {
	did, err := n.o.Payments.Sweep(ctx, kind)
	*done += did.Done
	*failed += did.Failed
	return err
}

// tickets calls the ticket function again for sales with tickets or notices
// due: their first nudge was lost, or what they needed was away.
func (n *Net) tickets(ctx context.Context) (int, error) {
	if n.o.Bus == nil {
		return 0, nil
	}
	sales, err := n.o.Outbox.DueSales(ctx, "ticket", "notify")
	if err != nil {
		return 0, err
	}
	told := 0
	for _, sale := range sales {
		data, err := json.Marshal(map[string]any{"sale": strconv.FormatInt(sale, 10)})
		if err == nil {
			err = n.o.Bus.Nudge(event.BookingConfirmed, sale, data)
		}
		if err != nil {
			return told, noNATS(err)
		}
		told++
	}
	return told, nil
}
