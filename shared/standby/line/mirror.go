package line

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"handler/function/shared/outbox"
	"handler/function/shared/store"
)

// change is one order of one queue, as put.lua takes it.
type change struct {
	what   string // stand, again or leave
	number int64
	score  int64
	seen   string // of again: the tombstone's score
}

const (
	stand = "+"
	again = "="
	leave = "-"
)

// Mirror works at the due outbox rows of a sale that name orders to be looked
// at: those that stand in standby_queue are put into their queues with their
// score, the others are taken out. It looks how things are, so it may run in many
// replicas at once and again after a crash. Each batch of 100 costs Postgres two
// reads and one write and Redis one call, two for a queue that was split a moment
// ago. Calls that wait together are answered by one run that begins after them.
// Errors: queue.ErrDown and Postgres's; the rows are then due again later.
func (l *Lines) Mirror(ctx context.Context, sale int64) error {
	failed, err := l.mirrors[sale%mirrorFlights].Do(ctx, sale)
	return cmp.Or(err, failed)
}

// MirrorSoon is Mirror for who does not wait for it: `match`, which has the next
// seat to give.
func (l *Lines) MirrorSoon(sale int64) { l.mirrorSoon.ask(sale) }

func (l *Lines) mirrorLater(sale int64) {
	ctx, cancel := context.WithTimeout(context.Background(), mirrorTime)
	defer cancel()
	if err := l.Mirror(ctx, sale); err != nil {
		slog.WarnContext(ctx, "standby: the queues will know later", "sale", sale, "error", err)
	}
}

// mirrorSales is one run of gathered calls.
func (l *Lines) mirrorSales(sales []int64) ([]error, error) {
	errs, did := make([]error, len(sales)), map[int64]error{}
	for i, sale := range sales {
		err, ok := did[sale]
		if !ok {
			ctx, cancel := context.WithTimeout(context.Background(), mirrorTime)
			_, err = l.mirrorDue(ctx, sale)
			cancel()
			did[sale] = err
		}
		errs[i] = err
	}
	return errs, nil
}

func (l *Lines) mirrorDue(ctx context.Context, sale int64) (outbox.Did, error) {
	return l.o.Outbox.Together(ctx, sale, Kind, func(ctx context.Context, rows []outbox.Row) error {
		numbers := make([]int64, 0, len(rows))
		for _, row := range rows {
			var payload struct {
				Order int64 `json:"order"`
			}
			if err := row.Bind(&payload); err != nil {
				return err
			}
			numbers = append(numbers, payload.Order)
		}
		slices.Sort(numbers)
		_, err := l.mirror(ctx, sale, slices.Compact(numbers))
		return err
	})
}

// mirror looks at orders and makes their queues right. It returns how many of
// them had been pending.
func (l *Lines) mirror(ctx context.Context, sale int64, numbers []int64) (recovered int, err error) {
	changes := map[Queue][]change{}
	var pending []int64
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		clear(changes)
		pending = pending[:0]
		rows, err := q.Query(ctx, sql["orders"], sale, numbers)
		if err != nil {
			return err
		}
		var (
			c               change
			classes, stands []string
			from, to        int
			waits           bool
		)
		_, err = pgx.ForEachRow(rows, []any{&c.number, &classes, &from, &to, &c.score, &waits, &stands}, func() error {
			for _, class := range classes {
				c.what = leave
				if slices.Contains(stands, class) {
					c.what = stand
				}
				at := Queue{class, from, to}
				changes[at] = append(changes[at], c)
			}
			if waits {
				pending = append(pending, c.number)
			}
			return nil
		})
		return err
	})
	if err != nil || len(changes) == 0 {
		return 0, err
	}
	did, err := l.put(ctx, sale, changes)
	if err != nil {
		return 0, err
	}
	if len(pending) > 0 {
		err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["recovered"], sale, pending).Scan(&recovered)
		})
	}
	if err == nil && !did.built {
		err = l.buildFew(ctx, sale)
	}
	return recovered, err
}

// putDid is what put found and did.
type putDid struct {
	built   bool // the sale's queues carry their marker
	changed int  // orders that stand elsewhere than before
}

// put makes changes of queues in one call, or two where a queue turns out to be in
// shards that this replica did not know of.
func (l *Lines) put(ctx context.Context, sale int64, changes map[Queue][]change) (did putDid, err error) {
	var (
		built  *redis.IntCmd
		whole  = map[Queue]*redis.Cmd{}
		shards []*redis.Cmd
	)
	run := func(fill func(pipe redis.Pipeliner)) error {
		return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
			pipe := rdb.Pipeline()
			fill(pipe)
			_, err := pipe.Exec(ctx)
			return err
		})
	}
	err = run(func(pipe redis.Pipeliner) {
		built = pipe.Exists(ctx, builtKey(sale))
		for q, list := range changes {
			whole[q] = l.putWhole(ctx, pipe, sale, q, list)
			if l.isSplit(place{sale, q}) {
				shards = append(shards, l.putShards(ctx, pipe, sale, q, list)...)
			}
		}
	})
	if err != nil {
		return did, err
	}
	did.built = built.Val() == 1
	late := map[Queue][]change{}
	for q, cmd := range whole {
		mode, changed, err := putAnswer(cmd)
		if err != nil {
			return did, err
		}
		did.changed += changed
		split := mode == modeSplit || mode == modeSplitting
		if split && !l.isSplit(place{sale, q}) {
			late[q] = changes[q]
		}
		l.remember(place{sale, q}, split)
	}
	if len(late) > 0 {
		err = run(func(pipe redis.Pipeliner) {
			for q, list := range late {
				shards = append(shards, l.putShards(ctx, pipe, sale, q, list)...)
			}
		})
		if err != nil {
			return did, err
		}
	}
	for _, cmd := range shards {
		_, changed, err := putAnswer(cmd)
		if err != nil {
			return did, err
		}
		did.changed += changed
	}
	return did, nil
}

// putWhole queues the changes of a queue as long as it is whole.
func (l *Lines) putWhole(ctx context.Context, pipe redis.Pipeliner, sale int64, q Queue, list []change) *redis.Cmd {
	set, gone := setKeys(sale, q)
	return pipe.Eval(ctx, putLua, []string{set, gone, modesKey(sale)}, l.putArgs(q, list)...)
}

// putShards queues the changes of a queue in shards, a script each.
func (l *Lines) putShards(ctx context.Context, pipe redis.Pipeliner, sale int64, q Queue, list []change) []*redis.Cmd {
	var of [Shards][]change
	for _, c := range list {
		k := shardOf(c.number)
		of[k] = append(of[k], c)
	}
	var cmds []*redis.Cmd
	for k, some := range of {
		if len(some) > 0 {
			set, gone, _ := shardKeys(sale, q, k)
			cmds = append(cmds, pipe.Eval(ctx, putLua, []string{set, gone}, l.putArgs(q, some)...))
		}
	}
	return cmds
}

func (l *Lines) putArgs(q Queue, list []change) []any {
	args := make([]any, 0, 3+4*len(list))
	args = append(args, q.name(), l.o.SplitAbove, tombstone.Microseconds())
	for _, c := range list {
		args = append(args, c.what, c.number, c.score, c.seen)
	}
	return args
}

// putAnswer reads what put.lua said.
func putAnswer(cmd *redis.Cmd) (mode string, changed int, err error) {
	reply, err := cmd.Slice()
	if err != nil {
		return "", 0, err
	}
	if len(reply) != 3 {
		return "", 0, fmt.Errorf("line: put answered %d values", len(reply))
	}
	mode, _ = reply[0].(string)
	n, _ := reply[2].(int64)
	return mode, int(n), nil
}

// toScore reads a score as Redis writes it. Scores are whole and far below 2^53.
func toScore(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	return int64(f), err
}
