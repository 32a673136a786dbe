package line

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"handler/function/shared/store"
)

// comparePage is how many orders of a queue are compared at once.
const comparePage = 5000

// Found is what a comparison found and mended.
type Found struct {
	Ghosts  int // orders in Redis that do not wait in that queue: taken out
	Missing int // waiting orders that were not there, or with another score: put back with the score they have
	Beside  int // waiting orders beside seats that they could have: due for `match` again
}

func (f *Found) add(o Found) {
	f.Ghosts += o.Ghosts
	f.Missing += o.Missing
	f.Beside += o.Beside
}

// Compare compares the queues of a sale in Redis with Postgres, and mends them;
// and it looks for waiting orders beside a free gap that fits. Whatever differs is
// looked up in Postgres once more before it is changed, so joins and leaves may go
// on. One replica compares at a time; where another tends the sale's queues
// already, nothing is compared.
func (l *Lines) Compare(ctx context.Context, sale int64) (found Found, err error) {
	le, err := l.take(ctx, sale)
	if err != nil || le == nil {
		return found, err
	}
	defer le.leave(ctx)
	return l.compare(ctx, le, sale)
}

func (l *Lines) compare(ctx context.Context, le *lease, sale int64) (found Found, err error) {
	identity, err := l.identity(ctx, sale)
	if err != nil {
		return found, err
	}
	modes, err := l.modes(ctx, sale)
	if err != nil {
		return found, err
	}
	waiting, err := l.queues(ctx, sale)
	if err != nil {
		return found, err
	}
	for _, q := range waiting {
		if _, ok := modes[q]; !ok {
			modes[q] = ""
		}
	}
	for q, mode := range modes {
		if mode == "" {
			if err := l.chooseMode(ctx, sale, q); err != nil {
				return found, err
			}
			if mode, err = l.mode(ctx, sale, q); err != nil {
				return found, err
			}
		}
		one, err := l.compareQueue(ctx, le, sale, q, mode == modeSplit)
		found.add(one)
		if err != nil {
			return found, fmt.Errorf("line: comparing %s of sale %d: %w", q.name(), sale, err)
		}
	}
	if err := l.markBuilt(ctx, sale, identity); err != nil {
		return found, err
	}
	found.Beside, err = l.beside(ctx, sale)
	if found.Ghosts > 0 || found.Missing > 0 || found.Beside > 0 {
		slog.WarnContext(ctx, "standby: the comparison found differences", "sale", sale,
			"ghosts", found.Ghosts, "missing", found.Missing, "beside", found.Beside)
	}
	return found, err
}

// compareQueue goes through a queue in Postgres's order.
func (l *Lines) compareQueue(ctx context.Context, le *lease, sale int64, q Queue, split bool) (found Found, err error) {
	for after, last := int64(math.MinInt64), false; !last; {
		page, err := l.page(ctx, sale, q, after, comparePage)
		if err != nil {
			return found, err
		}
		last = len(page) < comparePage
		upTo := int64(math.MaxInt64)
		if !last {
			upTo = page[len(page)-1].score
		}
		here, err := l.between(ctx, sale, q, split, after, upTo)
		if err != nil {
			return found, err
		}
		differ := make([]int64, 0, 16)
		for _, p := range page {
			if score, ok := here[p.number]; !ok || score != p.score {
				differ = append(differ, p.number)
			}
			delete(here, p.number)
		}
		for number := range here {
			differ = append(differ, number)
		}
		one, err := l.mend(ctx, sale, q, split, differ)
		found.add(one)
		if err != nil {
			return found, err
		}
		if err := le.renew(ctx); err != nil {
			return found, err
		}
		after = upTo
	}
	return found, nil
}

// between reads who stands in a queue in Redis with a score above after and up to
// upTo.
func (l *Lines) between(ctx context.Context, sale int64, q Queue, split bool, after, upTo int64) (map[int64]int64, error) {
	by := &redis.ZRangeBy{Min: "-inf", Max: "+inf"}
	if after > math.MinInt64 {
		by.Min = "(" + strconv.FormatInt(after, 10)
	}
	if upTo < math.MaxInt64 {
		by.Max = strconv.FormatInt(upTo, 10)
	}
	var cmds []*redis.ZSliceCmd
	err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		cmds = cmds[:0]
		pipe := rdb.Pipeline()
		for _, set := range sets(sale, q, split) {
			cmds = append(cmds, pipe.ZRangeByScoreWithScores(ctx, set, by))
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	here := map[int64]int64{}
	for _, cmd := range cmds {
		for _, z := range cmd.Val() {
			text, _ := z.Member.(string)
			number, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				slog.ErrorContext(ctx, "standby: a queue has something that is no order", "sale", sale, "queue", q.name(), "member", text)
				continue
			}
			here[number] = int64(z.Score)
		}
	}
	return here, err
}

// sets are the sorted sets of a queue.
func sets(sale int64, q Queue, split bool) []string {
	if !split {
		set, _ := setKeys(sale, q)
		return []string{set}
	}
	all := make([]string, Shards)
	for k := range all {
		all[k], _, _ = shardKeys(sale, q, k)
	}
	return all
}

// mend makes a queue right for orders that differ. First it reads their
// tombstones, then Postgres: an order that waits after its tombstone was written
// has a wrong one, as none comes back to a queue that it has left. It may be put
// in over this tombstone, and no other.
func (l *Lines) mend(ctx context.Context, sale int64, q Queue, split bool, numbers []int64) (found Found, err error) {
	for len(numbers) > 0 {
		some := numbers[:min(len(numbers), pageSize)]
		numbers = numbers[len(some):]
		seen, err := l.tombstones(ctx, sale, q, split, some)
		if err != nil {
			return found, err
		}
		standing := map[int64]int64{}
		err = l.o.DB.Do(ctx, func(ctx context.Context, db store.Querier) error {
			rows, err := db.Query(ctx, sql["standing"], sale, q.Class, q.From, q.To, some)
			if err != nil {
				return err
			}
			var p placed
			_, err = pgx.ForEachRow(rows, []any{&p.number, &p.score}, func() error {
				standing[p.number] = p.score
				return nil
			})
			return err
		})
		if err != nil {
			return found, err
		}
		var put, out []change
		for i, number := range some {
			if score, ok := standing[number]; ok {
				put = append(put, change{what: again, number: number, score: score, seen: seen[i]})
			} else {
				out = append(out, change{what: leave, number: number})
			}
		}
		for _, list := range []struct {
			changes []change
			count   *int
		}{{put, &found.Missing}, {out, &found.Ghosts}} {
			if len(list.changes) == 0 {
				continue
			}
			did, err := l.put(ctx, sale, map[Queue][]change{q: list.changes})
			if err != nil {
				return found, err
			}
			*list.count += did.changed
		}
	}
	return found, nil
}

// tombstones are the scores of orders' tombstones, "" for none.
func (l *Lines) tombstones(ctx context.Context, sale int64, q Queue, split bool, numbers []int64) ([]string, error) {
	cmds := make([]*redis.FloatCmd, len(numbers))
	err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		for i, number := range numbers {
			_, gone := setKeys(sale, q)
			if split {
				_, gone, _ = shardKeys(sale, q, shardOf(number))
			}
			cmds[i] = pipe.ZScore(ctx, gone, strconv.FormatInt(number, 10))
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil && err != redis.Nil {
		return nil, err
	}
	seen := make([]string, len(numbers))
	for i, cmd := range cmds {
		if cmd.Err() == nil {
			seen[i] = strconv.FormatFloat(cmd.Val(), 'f', 0, 64)
		}
	}
	return seen, nil
}

// beside makes orders due for `match` again that stand among the first of their
// queue beside as many free seats as they want, none of which is due itself.
func (l *Lines) beside(ctx context.Context, sale int64) (n int, err error) {
	type gap struct{ from, to int }
	gaps := map[string][]gap{}
	var due []int64
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		clear(gaps)
		due = due[:0]
		rows, err := q.Query(ctx, sql["gaps"], sale)
		if err != nil {
			return err
		}
		var class string
		var g gap
		if _, err = pgx.ForEachRow(rows, []any{&class, &g.from, &g.to}, func() error {
			gaps[class] = append(gaps[class], g)
			return nil
		}); err != nil || len(gaps) == 0 {
			return err
		}
		if rows, err = q.Query(ctx, sql["heads-checked"], sale, lookedAt); err != nil {
			return err
		}
		var from, to, quantity int
		var number int64
		_, err = pgx.ForEachRow(rows, []any{&class, &from, &to, &number, &quantity}, func() error {
			free := 0
			for _, g := range gaps[class] {
				if g.from <= from && to <= g.to {
					free++
				}
			}
			if free >= quantity {
				due = append(due, number)
			}
			return nil
		})
		return err
	})
	if err != nil || len(due) == 0 {
		return 0, err
	}
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["recheck-orders"], sale, due).Scan(&n)
	})
	if err == nil && n > 0 {
		l.nudge(ctx, sale)
	}
	return n, err
}

// Placed is one order of a queue in Redis.
type Placed struct {
	Queue
	Number, Score int64
}

// Read reads all queues of a sale as they stand in Redis, for the audit.
func (l *Lines) Read(ctx context.Context, sale int64) ([]Placed, error) {
	modes, err := l.modes(ctx, sale)
	if err != nil {
		return nil, err
	}
	var all []Placed
	for q, mode := range modes {
		here, err := l.between(ctx, sale, q, mode == modeSplit, math.MinInt64, math.MaxInt64)
		if err != nil {
			return nil, err
		}
		for number, score := range here {
			all = append(all, Placed{q, number, score})
		}
	}
	return all, nil
}
