package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"handler/function/shared/outbox"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

// What reconcile does for the queues. Each step may run in two replicas at once.
const (
	maxSales = 1000 // of one step
	maxLate  = 1000 // releases that one run raises alerts for
	// uncheckedFor is how long a seat that came free may go without being
	// considered before it is due once more.
	uncheckedFor = 10 * time.Second
	compareEvery = time.Hour
	ratesLife    = time.Hour // of rates that nobody writes anew
	rateOfSale   = "sale"    // the field of the whole sale's; a queue's name has colons
)

// AlertRelease is the kind of alert for a release that nobody looked at; its
// subject is the release's id.
const AlertRelease = "release"

// Tended counts what Tend did.
type Tended struct {
	Rebuilt int // orders put back into queues that were lost
	Split   int // queues put into shards
	Found
}

// MirrorAll works at the outbox rows that were left, of every sale. One sale's
// trouble is no other's, but without Redis it stops.
func (l *Lines) MirrorAll(ctx context.Context) (did outbox.Did, err error) {
	sales, err := l.o.Outbox.DueSales(ctx, Kind)
	if err != nil {
		return did, err
	}
	for _, sale := range sales {
		one, saleErr := l.mirrorDue(ctx, sale)
		did.Add(one)
		err = errors.Join(err, saleErr)
		if errors.Is(saleErr, queue.ErrDown) || l.o.DB.Down() {
			break
		}
	}
	return did, err
}

// Tend looks after the queues of every sale with standby orders: queues that were
// lost are built again, those of a Redis that was restarted or promoted are
// compared, long ones are split, and each sale is compared once an hour (all: now).
func (l *Lines) Tend(ctx context.Context, all bool) (did Tended, err error) {
	if !l.Reachable(ctx) {
		return did, nil // nothing can be done; when it is back the markers say what
	}
	type lined struct {
		id      int64
		waiting bool
	}
	var sales []lined
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["sales"], maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (s lined, err error) {
			err = r.Scan(&s.id, &s.waiting)
			return s, err
		})
		return err
	})
	if err != nil {
		return did, err
	}
	for _, s := range sales {
		saleErr := l.tend(ctx, s.id, s.waiting, all, &did)
		err = errors.Join(err, saleErr)
		if errors.Is(saleErr, queue.ErrDown) || ctx.Err() != nil {
			break
		}
	}
	return did, err
}

// tend looks after the queues of one sale.
func (l *Lines) tend(ctx context.Context, sale int64, waiting, all bool, did *Tended) error {
	has, err := l.has(ctx, sale)
	if err != nil {
		return err
	}
	due := all
	if !due {
		err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
			due, err = rdb.SetNX(ctx, key(sale, "line", "compared"), "1", compareEvery).Result()
			return err
		})
		if err != nil {
			return err
		}
	}
	lost := waiting && (has.built == "" || has.lost)
	if !lost && !due && !has.split && (has.built == "" || has.built == has.identity) {
		return nil
	}
	le, err := l.take(ctx, sale)
	if err != nil || le == nil {
		return err
	}
	defer le.leave(ctx)
	if lost {
		n, err := l.rebuild(ctx, le, sale)
		did.Rebuilt += n
		if err != nil {
			return err
		}
	}
	if due || has.built != "" && has.built != has.identity {
		found, err := l.compare(ctx, le, sale)
		did.add(found)
		if err != nil {
			return err
		}
	}
	if has.split {
		n, err := l.splitDue(ctx, le, sale)
		did.Split += n
		return err
	}
	return nil
}

// had is what Redis has of a sale.
type had struct {
	built, identity string
	split           bool // a queue is to be split
	lost            bool // a split queue lacks a shard's marker
}

func (l *Lines) has(ctx context.Context, sale int64) (h had, err error) {
	var built *redis.StringCmd
	var identity *redis.Cmd
	err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		built = pipe.Get(ctx, builtKey(sale))
		identity = pipe.Eval(ctx, identityLua, []string{builtKey(sale)})
		pipe.Expire(ctx, builtKey(sale), keep)
		pipe.Expire(ctx, modesKey(sale), keep)
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return h, err
	}
	h.built = built.Val()
	if h.identity, err = identity.Text(); err != nil {
		return h, err
	}
	modes, err := l.modes(ctx, sale)
	if err != nil {
		return h, err
	}
	var markers []*redis.IntCmd
	err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		markers = markers[:0]
		pipe := rdb.Pipeline()
		for q, mode := range modes {
			h.split = h.split || mode == modeDue || mode == modeSplitting
			if mode != modeSplit {
				continue
			}
			for k := range Shards {
				_, _, built := shardKeys(sale, q, k)
				markers = append(markers, pipe.Exists(ctx, built))
				pipe.Expire(ctx, built, keep)
			}
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	for _, m := range markers {
		h.lost = h.lost || m.Val() == 0
	}
	return h, err
}

// Rates writes beside the queues how many orders were matched within 24 hours, of
// each interval and of the sale; and what became of the last releases, where that
// was lost. It returns how many sales have waiting orders.
func (l *Lines) Rates(ctx context.Context) (int, error) {
	if !l.Reachable(ctx) {
		return 0, nil
	}
	sales, err := l.sales(ctx, "waiting-sales")
	if err != nil {
		return 0, err
	}
	for _, sale := range sales {
		saleErr := l.rates(ctx, sale)
		if saleErr == nil {
			saleErr = l.restoreSaid(ctx, sale)
		}
		err = errors.Join(err, saleErr)
		if errors.Is(saleErr, queue.ErrDown) || ctx.Err() != nil {
			break
		}
	}
	return len(sales), err
}

func (l *Lines) rates(ctx context.Context, sale int64) error {
	fields := map[string]any{}
	err := l.o.DB.Do(ctx, func(ctx context.Context, db store.Querier) error {
		clear(fields)
		rows, err := db.Query(ctx, sql["rates"], sale, day)
		if err != nil {
			return err
		}
		var q Queue
		var n, all int
		_, err = pgx.ForEachRow(rows, []any{&q.Class, &q.From, &q.To, &n}, func() error {
			fields[q.name()] = n
			all += n
			return nil
		})
		fields[rateOfSale] = all
		return err
	})
	if err != nil {
		return err
	}
	return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.TxPipeline()
		pipe.Del(ctx, ratesKey(sale))
		pipe.HSet(ctx, ratesKey(sale), fields)
		pipe.Expire(ctx, ratesKey(sale), ratesLife)
		_, err := pipe.Exec(ctx)
		return err
	})
}

// restoreSaid puts the stored outcomes of a class back where the list is gone.
func (l *Lines) restoreSaid(ctx context.Context, sale int64) error {
	var classes []string
	err := l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["waiting-classes"], sale)
		if err != nil {
			return err
		}
		classes, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return err
	}
	for _, class := range classes {
		there := int64(0)
		err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
			there, err = rdb.Exists(ctx, saidKey(sale, class)).Result()
			return err
		})
		if err != nil {
			return err
		}
		if there > 0 {
			continue
		}
		var said []any
		err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
			rows, err := q.Query(ctx, sql["outcomes"], sale, class, outcomesKept)
			if err != nil {
				return err
			}
			texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
			said = said[:0]
			for _, text := range texts {
				said = append(said, text)
			}
			return err
		})
		if err == nil {
			err = l.say(ctx, sale, class, said)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Recheck makes a due row for each seat that came free ten seconds ago, was not
// considered and is not due, where its class has waiting orders (DESIGN 8:
// nothing is stranded), and tells `match`. It returns how many rows.
func (l *Lines) Recheck(ctx context.Context) (rows int, err error) {
	sales, err := l.sales(ctx, "waiting-sales")
	if err != nil {
		return 0, err
	}
	for _, sale := range sales {
		n := 0
		saleErr := l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["recheck"], sale, int(uncheckedFor.Seconds())).Scan(&n)
		})
		if n > 0 {
			l.nudge(ctx, sale)
		}
		rows += n
		err = errors.Join(err, saleErr)
		if l.o.DB.Down() || ctx.Err() != nil {
			break
		}
	}
	return rows, err
}

// NudgeDue tells `match` of sales with a release or a new order that has been due
// for two seconds: the nudge was lost, or `match` was away. It returns how many.
func (l *Lines) NudgeDue(ctx context.Context) (int, error) {
	sales, err := l.sales(ctx, "due-sales")
	told := 0
	for _, sale := range sales {
		if l.nudge(ctx, sale) {
			told++
		}
	}
	return told, err
}

// LateReleases raises an alert for each release that nobody has looked at for 60 s
// (invariant 5), and one for the new orders of a sale, and closes those of what was
// looked at since. It returns how many it raised.
func (l *Lines) LateReleases(ctx context.Context) (int, error) {
	type release struct {
		sale int64
		id   string
		what string
	}
	read := func(statement string) (all []release, err error) {
		err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
			rows, err := q.Query(ctx, sql[statement], AlertRelease, maxLate)
			if err != nil {
				return err
			}
			all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (o release, err error) {
				err = r.Scan(&o.sale, &o.id, &o.what)
				return o, err
			})
			return err
		})
		return all, err
	}
	late, err := read("late-releases")
	if err != nil {
		return 0, err
	}
	for _, r := range late {
		l.o.Alerts.Raise(ctx, r.sale, AlertRelease, r.id, fmt.Sprintf("nobody has looked at it: %s", r.what))
	}
	healed, err := read("healed-releases")
	for _, r := range healed {
		err = errors.Join(err, l.o.Alerts.Close(ctx, r.sale, AlertRelease, r.id))
	}
	return len(late), err
}
