package line

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// splitDue splits the queues of a sale that have grown too long to stand on one
// node, and goes on with those whose splitting was broken off. The caller has the
// lease. While a queue is copied, whoever changes it changes both, and the whole
// queue is read; an order that leaves during the copy has its tombstone in its
// shard before or after the copy comes to it, so the copy cannot bring it back.
func (l *Lines) splitDue(ctx context.Context, le *lease, sale int64) (split int, err error) {
	modes, err := l.modes(ctx, sale)
	if err != nil {
		return 0, err
	}
	for q, mode := range modes {
		if mode != modeDue && mode != modeSplitting {
			continue
		}
		if mode == modeDue {
			if err := l.beginSplit(ctx, sale, q); err != nil {
				return split, err
			}
		}
		if err := l.copy(ctx, le, sale, q); err != nil {
			return split, fmt.Errorf("line: splitting %s of sale %d: %w", q.name(), sale, err)
		}
		split++
	}
	return split, nil
}

// beginSplit empties the shards, in which a replica with an old memory may have
// left something, and from there on has both written.
func (l *Lines) beginSplit(ctx context.Context, sale int64, q Queue) error {
	err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		for k := range Shards {
			set, gone, built := shardKeys(sale, q, k)
			pipe.Unlink(ctx, set)
			pipe.Unlink(ctx, gone)
			pipe.Unlink(ctx, built)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.HSet(ctx, modesKey(sale), q.name(), modeSplitting).Err()
	})
}

// copy puts everybody of the whole queue into the shards, in order of score: who
// comes in behind the copy is put there by whoever puts them into the queue.
func (l *Lines) copy(ctx context.Context, le *lease, sale int64, q Queue) error {
	set, gone := setKeys(sale, q)
	after := "-inf"
	for {
		var page []redis.Z
		err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
			page, err = rdb.ZRangeByScoreWithScores(ctx, set, &redis.ZRangeBy{Min: after, Max: "+inf", Count: pageSize}).Result()
			return err
		})
		if err != nil {
			return err
		}
		var changes []change
		for _, z := range page {
			text, _ := z.Member.(string)
			if number, err := strconv.ParseInt(text, 10, 64); err == nil {
				changes = append(changes, change{what: stand, number: number, score: int64(z.Score)})
			}
		}
		err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
			pipe := rdb.Pipeline()
			l.putShards(ctx, pipe, sale, q, changes)
			_, err := pipe.Exec(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if err := le.renew(ctx); err != nil {
			return err
		}
		if len(page) < pageSize {
			break
		}
		after = fmt.Sprintf("(%.0f", page[len(page)-1].Score)
	}
	if err := l.markShards(ctx, sale, q); err != nil {
		return err
	}
	err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.Eval(ctx, flipLua, []string{set, gone, modesKey(sale)}, q.name()).Err()
	})
	if err == nil {
		l.remember(place{sale, q}, true)
	}
	return err
}

// modes names every queue of a sale that Redis knows, and how it is kept.
func (l *Lines) modes(ctx context.Context, sale int64) (map[Queue]string, error) {
	var all map[string]string
	err := l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		all, err = rdb.HGetAll(ctx, modesKey(sale)).Result()
		return err
	})
	modes := make(map[Queue]string, len(all))
	for name, mode := range all {
		if q, ok := parseQueue(name); ok {
			modes[q] = mode
		}
	}
	return modes, err
}
