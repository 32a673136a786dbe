// Package line keeps the queues of standby in Redis: a sorted set for each
// (sale, class, interval), the mirror of the table standby_queue. It answers
// where an order stands and why somebody else got a seat first. `match` never
// reads it, so whatever is wrong here is a wrong position and no more (law 1);
// what is lost is made again from Postgres.
//
// How a queue is kept. A sale's keys carry its hash tag {sale:N}. Each queue has a
// sorted set of decimal order numbers by score, and a set of tombstones: orders
// that left within ten minutes, which a call that comes late cannot bring back
// (an order that has left its queue never comes back to it). The hash of modes
// names the sale's queues and how each is kept:
//
//	whole ──▶ due ──▶ splitting ──▶ split
//
// A queue that has grown above the threshold is due; whoever tends the queues
// copies it into 32 shards, each with a hash tag of its own, while everybody who
// changes it writes both; then the shards are the queue. Until that moment the
// whole queue is read, so nobody is lost and no position is wrong meanwhile.
//
// A sale's queues count as built once a marker says so. Without it (wiped, or
// never built) a position is not known rather than wrong.
package line

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/uuid/v5"
	"github.com/redis/go-redis/v9"

	"handler/function/shared/alert"
	"handler/function/shared/clock"
	"handler/function/shared/event"
	"handler/function/shared/outbox"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

//go:embed line.sql
var sqlFile string

var sql = store.Queries(sqlFile)

var (
	//go:embed put.lua
	putLua string
	//go:embed look.lua
	lookLua string
	//go:embed flip.lua
	flipLua string
	//go:embed identity.lua
	identityLua string
	//go:embed leave.lua
	leaveLua string
)

// Kind is the kind of the outbox rows that name an order to be looked at again.
const Kind = "standby_queue"

// Defaults and limits.
const (
	Shards     = 32     // of a split queue (DESIGN 8)
	SplitAbove = 50_000 // orders of a queue that stays whole (DESIGN 8)
	Refresh    = 5 * time.Second

	tombstone = 10 * time.Minute    // longer than any call may take
	keep      = 40 * 24 * time.Hour // of a sale's markers after its queues were last tended
	// What follows a commit is gathered: many who join at once cost one look, and
	// `match` scans for new orders four times a second, not once for each of them, as
	// what comes free waits while it does. The first of them are served at once.
	nudgeEvery    = 250 * time.Millisecond
	mirrorEvery   = 100 * time.Millisecond
	mirrorMost    = 1000             // calls of Mirror that one run answers
	mirrorFlights = 16               // runs at a time; one of a sale, as two would do the same rows
	mirrorTime    = 30 * time.Second // of a run

	pageSize  = 1000 // orders read from Postgres, or moved in Redis, at once
	leaseLife = time.Minute
	fewOrders = 1000 // of a sale whose queues are built by whoever finds them missing
)

// Options of Lines.
type Options struct {
	DB         *store.DB
	Redis      *queue.Client
	Outbox     *outbox.Box
	Bus        *event.Bus // may be nil: then nobody is nudged, and nothing kept in the stream
	Alerts     *alert.Board
	Clock      clock.Clock   // of the replica's cache; nil: the machine's
	SplitAbove int           // 0: the default
	Refresh    time.Duration // how old a replica's copy of a queue gets; 0: the default
}

// Lines are the queues of every sale, as one replica sees them. It is safe for
// concurrent use.
type Lines struct {
	o Options

	mirrors    [mirrorFlights]*queue.Gather[int64, error] // a sale has always the same
	mirrorSoon *soon
	nudgeSoon  *soon

	mu    sync.Mutex
	known map[place]*entry
	split map[place]bool // queues that were in shards when last written or read
}

// place is a queue of a sale.
type place struct {
	sale int64
	Queue
}

// Queue names a queue within a sale: legs From to To, 1-based and inclusive.
type Queue struct {
	Class    string
	From, To int
}

// name is the queue's name in Redis, unique in its sale.
func (q Queue) name() string {
	return q.Class + ":" + strconv.Itoa(q.From) + ":" + strconv.Itoa(q.To)
}

// parseQueue reads a queue's name. A class may have colons in its id.
func parseQueue(name string) (q Queue, ok bool) {
	parts := strings.Split(name, ":")
	if len(parts) < 3 {
		return q, false
	}
	from, err := strconv.Atoi(parts[len(parts)-2])
	to, err2 := strconv.Atoi(parts[len(parts)-1])
	return Queue{strings.Join(parts[:len(parts)-2], ":"), from, to}, err == nil && err2 == nil
}

// New makes Lines.
func New(o Options) *Lines {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.SplitAbove <= 0 {
		o.SplitAbove = SplitAbove
	}
	if o.Refresh <= 0 {
		o.Refresh = Refresh
	}
	l := &Lines{o: o, known: map[place]*entry{}, split: map[place]bool{}}
	for i := range l.mirrors {
		l.mirrors[i] = queue.NewGather(mirrorMost, 1, l.mirrorSales).Apart(mirrorEvery)
	}
	l.mirrorSoon = newSoon(mirrorEvery, l.mirrorLater)
	l.nudgeSoon = newSoon(nudgeEvery, func(sale int64) { l.nudge(context.Background(), sale) })
	return l
}

// Reachable says whether the queues can be reached now.
func (l *Lines) Reachable(ctx context.Context) bool {
	if l.o.Redis.Down() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error { return rdb.Ping(ctx).Err() }) == nil
}

// Queued is called after an order has taken its place: its queues are brought up
// to date, or while Redis is away the order is kept in the stream for later; and
// `match` is told that it is there. Whatever fails is done by reconcile.
func (l *Lines) Queued(ctx context.Context, sale, number int64) {
	if err := l.Mirror(ctx, sale); err != nil {
		slog.WarnContext(ctx, "standby: the queues will know the order later", "sale", sale, "order", number, "error", err)
		if err := l.keepPending(ctx, sale, number); err != nil {
			slog.WarnContext(ctx, "standby: a pending order is left to reconcile", "sale", sale, "order", number, "error", err)
		}
	}
	l.nudgeSoon.ask(sale)
}

// Gone is called after an order has left its queues.
func (l *Lines) Gone(ctx context.Context, sale, number int64) {
	if err := l.Mirror(ctx, sale); err != nil {
		slog.WarnContext(ctx, "standby: the order stays in the queues' mirror for a while", "sale", sale, "order", number, "error", err)
	}
	l.nudgeSoon.ask(sale)
}

// nudge tells `match` that a sale may have something due. It says whether the
// nudge went out.
func (l *Lines) nudge(ctx context.Context, sale int64) bool {
	if l.o.Bus == nil {
		return false
	}
	err := l.o.Bus.Nudge(event.SeatReleased, sale, []byte(`{"sale":"`+strconv.FormatInt(sale, 10)+`"}`))
	if err != nil && !errors.Is(err, event.ErrDown) {
		slog.WarnContext(ctx, "standby: match not nudged", "sale", sale, "error", err)
	}
	return err == nil
}

// Keys. A shard has its own hash tag, so that it may stand on another node.

func key(sale int64, parts ...string) string { return queue.Key(queue.SaleTag(sale), parts...) }

func modesKey(sale int64) string { return key(sale, "line", "modes") }
func builtKey(sale int64) string { return key(sale, "line", "built") }
func ratesKey(sale int64) string { return key(sale, "line", "rates") }

func saidKey(sale int64, class string) string { return key(sale, "line", "said", class) }

// setKeys are the sorted set and the tombstones of a whole queue.
func setKeys(sale int64, q Queue) (set, gone string) {
	return key(sale, "q", q.name()), key(sale, "gone", q.name())
}

// shardKeys are those of a shard, 0 to Shards-1, and its marker.
func shardKeys(sale int64, q Queue, shard int) (set, gone, built string) {
	tag := queue.SaleTag(sale) + ":q:" + q.name() + ":" + strconv.Itoa(shard)
	return queue.Key(tag, "q"), queue.Key(tag, "gone"), queue.Key(tag, "built")
}

// shardOf is where an order of a split queue stands.
func shardOf(number int64) int { return int(number % Shards) }

// isSplit says what this replica remembers of a queue; remember keeps it. It is
// never trusted: whoever writes or reads is told the mode by the same call.
func (l *Lines) isSplit(p place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.split[p]
}

func (l *Lines) remember(p place, split bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !split:
		delete(l.split, p)
	case len(l.split) < maxQueues:
		l.split[p] = true
	}
}

// lease is the right to tend a sale's queues: one replica at a time. It only
// saves work, as everything done under it may be done twice at once.
type lease struct {
	l     *Lines
	key   string
	token string
	until time.Time
}

// take takes the lease of a sale; nil when another has it.
func (l *Lines) take(ctx context.Context, sale int64) (*lease, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	le := &lease{l: l, key: key(sale, "line", "lease"), token: token.String(), until: time.Now().Add(leaseLife)}
	ours := false
	err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		ours, err = rdb.SetNX(ctx, le.key, le.token, leaseLife).Result()
		return err
	})
	if err != nil || !ours {
		return nil, err
	}
	return le, nil
}

// renew keeps the lease for as long as work goes on.
func (le *lease) renew(ctx context.Context) error {
	if time.Until(le.until) > leaseLife/2 {
		return nil
	}
	le.until = time.Now().Add(leaseLife)
	return le.l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.PExpire(ctx, le.key, leaseLife).Err()
	})
}

// leave gives it back; when that fails it ends by itself.
func (le *lease) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := le.l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.Eval(ctx, leaveLua, []string{le.key}, le.token).Err()
	})
	if err != nil {
		slog.WarnContext(ctx, "standby: a lease ends by itself", "key", le.key, "error", err)
	}
}

// identity is the Redis that has the sale's keys.
func (l *Lines) identity(ctx context.Context, sale int64) (id string, err error) {
	err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		id, err = rdb.Eval(ctx, identityLua, []string{builtKey(sale)}).Text()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("line: which redis: %w", err)
	}
	return id, nil
}
