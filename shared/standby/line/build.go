package line

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"handler/function/shared/store"
)

// Rebuild puts every waiting order of a sale into its queue from Postgres, with
// the place it has, and marks the sale's queues as built. It is for queues that
// were lost; orders that should not be there are the comparison's. Joining and
// leaving go on meanwhile. One replica rebuilds at a time: where another does so
// already nothing happens. It returns how many orders stand elsewhere than before.
func (l *Lines) Rebuild(ctx context.Context, sale int64) (put int, err error) {
	le, err := l.take(ctx, sale)
	if err != nil || le == nil {
		return 0, err
	}
	defer le.leave(ctx)
	return l.rebuild(ctx, le, sale)
}

func (l *Lines) rebuild(ctx context.Context, le *lease, sale int64) (put int, err error) {
	identity, err := l.identity(ctx, sale)
	if err != nil {
		return 0, err
	}
	queues, err := l.queues(ctx, sale)
	if err != nil {
		return 0, err
	}
	for _, q := range queues {
		if err := l.chooseMode(ctx, sale, q); err != nil {
			return put, err
		}
		for after := int64(0); ; {
			page, err := l.page(ctx, sale, q, after, pageSize)
			if err != nil {
				return put, err
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1].score
			changes := make([]change, len(page))
			for i, p := range page {
				changes[i] = change{what: stand, number: p.number, score: p.score}
			}
			did, err := l.put(ctx, sale, map[Queue][]change{q: changes})
			if err != nil {
				return put, err
			}
			put += did.changed
			if err := le.renew(ctx); err != nil {
				return put, err
			}
			if len(page) < pageSize {
				break
			}
		}
	}
	return put, l.markBuilt(ctx, sale, identity)
}

// markBuilt says which Redis has been given every order. One that was restarted
// or promoted meanwhile has another name, and is compared.
func (l *Lines) markBuilt(ctx context.Context, sale int64, identity string) error {
	return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		pipe.Set(ctx, builtKey(sale), identity, keep)
		pipe.Expire(ctx, modesKey(sale), keep)
		_, err := pipe.Exec(ctx)
		return err
	})
}

// chooseMode begins a queue that Redis does not have in shards at once where it
// is long, and gives a split queue's shards their markers.
func (l *Lines) chooseMode(ctx context.Context, sale int64, q Queue) error {
	mode, err := l.mode(ctx, sale, q)
	if err != nil {
		return err
	}
	if mode == "" {
		long := false
		err := l.o.DB.Do(ctx, func(ctx context.Context, db store.Querier) error {
			return db.QueryRow(ctx, sql["above"], sale, q.Class, q.From, q.To, l.o.SplitAbove).Scan(&long)
		})
		if err != nil || !long {
			return err
		}
		err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
			return rdb.HSetNX(ctx, modesKey(sale), q.name(), modeSplit).Err()
		})
		if err != nil {
			return err
		}
		if mode, err = l.mode(ctx, sale, q); err != nil {
			return err
		}
	}
	if mode != modeSplit {
		return nil
	}
	l.remember(place{sale, q}, true)
	return l.markShards(ctx, sale, q)
}

func (l *Lines) markShards(ctx context.Context, sale int64, q Queue) error {
	return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		for k := range Shards {
			_, _, built := shardKeys(sale, q, k)
			pipe.Set(ctx, built, "1", keep)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// mode is how a queue is kept; "" when Redis does not know it.
func (l *Lines) mode(ctx context.Context, sale int64, q Queue) (mode string, err error) {
	err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		mode, err = rdb.HGet(ctx, modesKey(sale), q.name()).Result()
		if err == redis.Nil {
			err = nil
		}
		return err
	})
	return mode, err
}

// buildFew marks the queues of a sale as built by whoever finds them without a
// marker, where few wait: the first orders of a sale need not wait for reconcile.
func (l *Lines) buildFew(ctx context.Context, sale int64) error {
	few := false
	err := l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["few"], sale, fewOrders).Scan(&few)
	})
	if err != nil || !few {
		return err
	}
	_, err = l.Rebuild(ctx, sale)
	return err
}

// queues names the queues of a sale that have waiting orders.
func (l *Lines) queues(ctx context.Context, sale int64) (queues []Queue, err error) {
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["queues"], sale)
		if err != nil {
			return err
		}
		queues, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Queue])
		return err
	})
	return queues, err
}

// page reads a queue in its order, from behind a score on.
func (l *Lines) page(ctx context.Context, sale int64, q Queue, after int64, most int) (page []placed, err error) {
	err = l.o.DB.Do(ctx, func(ctx context.Context, db store.Querier) error {
		page = page[:0]
		rows, err := db.Query(ctx, sql["page"], sale, q.Class, q.From, q.To, after, most)
		if err != nil {
			return err
		}
		var p placed
		_, err = pgx.ForEachRow(rows, []any{&p.number, &p.score}, func() error {
			page = append(page, p)
			return nil
		})
		return err
	})
	return slices.Clip(page), err
}
