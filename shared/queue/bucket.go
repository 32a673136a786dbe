package queue

import (
	"context"
	_ "embed"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/clock"
)

//go:embed bucket.lua
var bucketLua string

var bucketScript = redis.NewScript(bucketLua)

const (
	// localBuckets bounds the memory of a replica's own limits, about 100 bytes
	// each.
	localBuckets = 100_000
	// bucketWait bounds a call: a limiter must not be slower than what it guards.
	bucketWait = 250 * time.Millisecond
	// looseBurst is the burst from which a token more a replica does not matter.
	looseBurst = 20
)

// Buckets are token buckets: in the replica first, so that a flood costs no call,
// then in Redis, so that replicas share them. A large bucket (looseBurst) that is
// full in the replica is not asked for in Redis: whoever comes for the first time
// costs no call either, and n replicas give at most n tokens more. While Redis is away the
// replica's own limits hold (field case 58).
type Buckets struct {
	client *Client
	clock  clock.Clock
	redis  *Gather[bucketAsk, time.Duration]

	mu    sync.Mutex
	local map[string]time.Time // when the bucket is full again
}

type bucketAsk struct {
	key   string
	each  time.Duration
	burst int
}

// NewBuckets makes buckets on a Redis; a nil client leaves the replica's limits,
// a nil clock is the system's.
func NewBuckets(client *Client, c clock.Clock) *Buckets {
	if c == nil {
		c = clock.System
	}
	b := &Buckets{client: client, clock: c, local: map[string]time.Time{}}
	b.redis = NewGather(128, 2, b.pipeline)
	return b
}

// Take takes a token from the bucket called key, which fills by rate tokens a
// second up to burst (at least 1). When it is empty ok is false and after says
// when a token will be there. It never fails: without Redis the replica decides.
func (b *Buckets) Take(ctx context.Context, key string, rate float64, burst int) (ok bool, after time.Duration) {
	each := time.Duration(float64(time.Second) / rate)
	wait, full := b.takeHere(key, each, burst)
	if wait > 0 {
		return false, wait
	}
	if full && burst >= looseBurst || b.client == nil || b.client.Down() {
		return true, 0
	}
	wait, err := b.redis.Do(ctx, bucketAsk{key: key, each: each, burst: burst})
	return err != nil || wait <= 0, wait
}

// takeHere is bucket.lua in the replica's memory; full says that the bucket was.
func (b *Buckets) takeHere(key string, each time.Duration, burst int) (wait time.Duration, full bool) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.local[key]
	if full = !at.After(now); full {
		at = now
	}
	if wait = at.Sub(now) - time.Duration(burst-1)*each; wait > 0 {
		return wait, false
	}
	if len(b.local) >= localBuckets {
		b.sweep(now)
	}
	b.local[key] = at.Add(each)
	return 0, full
}

// sweep forgets the buckets that are full; if that is not a half of them, others
// (in Go's random order) until it is.
func (b *Buckets) sweep(now time.Time) {
	for k, at := range b.local {
		if at.Before(now) {
			delete(b.local, k)
		}
	}
	for k := range b.local {
		if len(b.local) <= localBuckets/2 {
			return
		}
		delete(b.local, k)
	}
}

// pipeline asks Redis for many buckets in one round trip.
func (b *Buckets) pipeline(asks []bucketAsk) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bucketWait)
	defer cancel()
	waits := make([]time.Duration, len(asks))
	run := func(ctx context.Context, rdb redis.UniversalClient) error {
		cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, a := range asks {
				bucketScript.EvalSha(ctx, p, []string{Key("bucket:"+a.key, "gcra")}, a.each.Microseconds(), a.burst)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, c := range cmds {
			us, err := c.(*redis.Cmd).Int64()
			if err != nil {
				return err
			}
			waits[i] = time.Duration(us) * time.Microsecond
		}
		return nil
	}
	err := b.client.Do(ctx, run)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		// A fresh server, or one whose scripts were flushed.
		err = b.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
			if err := bucketScript.Load(ctx, rdb).Err(); err != nil {
				return err
			}
			return run(ctx, rdb)
		})
	}
	return waits, err
}
