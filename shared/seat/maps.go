package seat

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

// Limits of the map.
const (
	life      = time.Second            // a map is at most this old (DESIGN section 5)
	loadTime  = 3 * time.Second        // of one load, whoever waits for it
	waitFor   = 400 * time.Millisecond // for another replica's load
	waitStep  = 8 * time.Millisecond
	keepInRam = 2 * time.Minute // of a map that nobody asks for
	manyMaps  = 256             // sales a replica keeps before it looks for idle ones
	keepFor   = time.Hour       // in Redis, for when Postgres is away
)

//go:embed map_ask.lua
var askLua string

//go:embed map_put.lua
var putLua string

var (
	askScript = redis.NewScript(askLua)
	putScript = redis.NewScript(putLua)
)

// Maps gives a replica the map of any sale, at most a second old. One caller of
// one replica loads it from Postgres; the others of the replica wait for it, and
// other replicas find it in Redis. It is safe for concurrent use.
type Maps struct {
	db    *store.DB
	redis *queue.Client

	entries sync.Map // sale id → *entry
	count   atomic.Int64

	lower lowering
}

// entry is what a replica keeps of one sale.
type entry struct {
	now     atomic.Pointer[current]
	askedAt atomic.Int64 // unix nanoseconds

	mu     sync.Mutex
	flight *flight

	took tookList
}

// current is a map and until when it is served.
type current struct {
	m     *Map
	until time.Time
}

// flight is a load that several callers wait for.
type flight struct {
	done chan struct{}
	m    *Map
	err  error
}

// NewMaps makes Maps; redis may be nil, then every load comes from Postgres.
func NewMaps(db *store.DB, redis *queue.Client) *Maps {
	ms := &Maps{db: db, redis: redis}
	ms.lower.redis = redis
	return ms
}

// OnGone sets what is told, at once, that a hold took the last seat of a sale with
// one leg and a room: the room's status. Call it before the first use.
func (ms *Maps) OnGone(tell func(ctx context.Context, sale *catalog.Sale) error) {
	ms.lower.gone = tell
}

// Get returns the map of a sale, at most a second old, loaded from Postgres at
// most once a second by all replicas together. While Postgres is away it is the
// last one known, with Stale set; with none known the error is unavailable.
func (ms *Maps) Get(ctx context.Context, sale *catalog.Sale) (*Map, error) {
	e := ms.entry(sale.ID)
	if m := e.fresh(); m != nil {
		return m, nil
	}
	e.mu.Lock()
	if m := e.fresh(); m != nil { // another caller's load ended meanwhile
		e.mu.Unlock()
		return m, nil
	}
	f := e.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		e.flight = f
		go ms.fly(context.WithoutCancel(ctx), e, f, sale)
	}
	e.mu.Unlock()
	select {
	case <-f.done:
		return f.m, f.err
	case <-ctx.Done():
		return nil, problem.New(problem.Unavailable, "System busy, please wait").After(life).Because(ctx.Err())
	}
}

// Fresh is the map of a sale if the replica has one that need not be loaded.
func (ms *Maps) Fresh(saleID int64) *Map {
	if e, ok := ms.entries.Load(saleID); ok {
		return e.(*entry).fresh()
	}
	return nil
}

// Recent is Get, but content with a map that the replica read up to within longer
// ago: then nobody waits and a newer one is on its way.
func (ms *Maps) Recent(ctx context.Context, sale *catalog.Sale, within time.Duration) (*Map, error) {
	e := ms.entry(sale.ID)
	if m := e.fresh(); m != nil {
		return m, nil
	}
	if c := e.now.Load(); c != nil && time.Since(c.until) < within {
		e.mu.Lock()
		if e.flight == nil && e.fresh() == nil {
			f := &flight{done: make(chan struct{})}
			e.flight = f
			go ms.fly(context.WithoutCancel(ctx), e, f, sale)
		}
		e.mu.Unlock()
		return c.m, nil
	}
	return ms.Get(ctx, sale)
}

func (e *entry) fresh() *Map {
	now := time.Now()
	e.askedAt.Store(now.UnixNano())
	if c := e.now.Load(); c != nil && now.Before(c.until) {
		return c.m
	}
	return nil
}

func (ms *Maps) entry(saleID int64) *entry {
	if e, ok := ms.entries.Load(saleID); ok {
		return e.(*entry)
	}
	if ms.count.Load() >= manyMaps {
		ms.drop()
	}
	e, there := ms.entries.LoadOrStore(saleID, &entry{})
	if !there {
		ms.count.Add(1)
	}
	return e.(*entry)
}

// drop forgets the maps that nobody has asked for lately.
func (ms *Maps) drop() {
	old := time.Now().Add(-keepInRam).UnixNano()
	ms.entries.Range(func(id, e any) bool {
		if e.(*entry).askedAt.Load() < old {
			if _, was := ms.entries.LoadAndDelete(id); was {
				ms.count.Add(-1)
			}
		}
		return true
	})
}

// fly runs one load and hands it to who waits.
func (ms *Maps) fly(ctx context.Context, e *entry, f *flight, sale *catalog.Sale) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	begun := time.Now()
	m, until, err := ms.load(ctx, sale, begun)
	if err == nil {
		e.now.Store(&current{m, until})
		e.took.forget(until.Add(-life))
	} else if last := e.now.Load(); last != nil && problem.Is(err, problem.Unavailable) {
		m, err = last.m.asStale(), nil
		e.now.Store(&current{m, time.Now().Add(life)})
	}
	f.m, f.err = m, err
	e.mu.Lock()
	e.flight = nil
	e.mu.Unlock()
	close(f.done)
}

// asStale is the same map, marked.
func (m *Map) asStale() *Map {
	if m.Stale {
		return m
	}
	stale := &Map{AsOf: m.AsOf, Stale: true, sale: m.sale, legs: m.legs}
	for _, c := range m.classes {
		stale.classes = append(stale.classes, &class{id: c.id, seats: c.seats, states: c.states, legs: c.legs})
	}
	return stale
}

// load finds the map of this second in Redis, or reads it from Postgres and puts
// it there. until is a second after its reading began at the latest.
func (ms *Maps) load(ctx context.Context, sale *catalog.Sale, begun time.Time) (*Map, time.Time, error) {
	var token string
	away := false // Postgres, by what another replica has just seen
	for ms.redis != nil && !ms.redis.Down() {
		asked := time.Now()
		a, err := ms.ask(ctx, sale)
		if err != nil {
			slog.WarnContext(ctx, "map: redis", "sale", sale.ID, "error", err)
			break
		}
		if a.m != nil {
			return a.m, asked.Add(a.left), nil
		}
		if a.ours != "" {
			token, begun = a.ours, asked
			break
		}
		if a.away {
			away = true
			break
		}
		if time.Since(begun) > waitFor { // the loader has died or is very slow
			begun = time.Now()
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(waitStep):
		}
	}
	if !away {
		m, err := read(ctx, ms.db, sale)
		if err == nil {
			if token != "" {
				ms.put(ctx, sale, token, m)
			}
			return m, begun.Add(life), nil
		}
		if !problem.Is(err, problem.Unavailable) {
			return nil, begun, err
		}
		if token != "" {
			ms.putAway(ctx, sale, token)
		}
	}
	if m := ms.last(ctx, sale); m != nil {
		return m, time.Now().Add(life), nil
	}
	return nil, begun, problem.New(problem.Unavailable, "Under maintenance, you keep your place").After(2 * time.Second)
}

func leaseKey(sale int64) string { return queue.Key(queue.SaleTag(sale), "map", "lease") }
func mapKey(sale int64) string   { return queue.Key(queue.SaleTag(sale), "map") }
func leftKey(sale int64) string  { return queue.Key(queue.SaleTag(sale), "left") }

// asked is what Redis says about the map of this second.
type asked struct {
	m    *Map          // it is there
	left time.Duration // and good for so long
	ours string        // we load it, by this token
	away bool          // who loads it has found Postgres away
}

func (ms *Maps) ask(ctx context.Context, sale *catalog.Sale) (asked, error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	token := hex.EncodeToString(random[:])
	var reply []any
	err := ms.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		reply, err = askScript.Run(ctx, rdb, []string{leaseKey(sale.ID), mapKey(sale.ID)}, token, life.Milliseconds()).Slice()
		return err
	})
	if err != nil {
		return asked{}, err
	}
	switch what, _ := reply[0].(string); what {
	case "load":
		return asked{ours: token}, nil
	case "away":
		return asked{away: true}, nil
	case "map":
		ms, _ := reply[1].(int64)
		raw, _ := reply[2].(string)
		m, err := decode(sale, []byte(raw))
		if err != nil {
			return asked{}, err
		}
		return asked{m: m, left: time.Duration(ms) * time.Millisecond}, nil
	}
	return asked{}, nil
}

// put gives a map and what is left by it to the other replicas, if the second is
// still ours.
func (ms *Maps) put(ctx context.Context, sale *catalog.Sale, token string, m *Map) {
	args := []any{token, m.encode(), keepFor.Milliseconds()}
	for _, c := range m.classes {
		args = append(args, c.id, m.LeftAny(c.id))
	}
	err := ms.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return putScript.Run(ctx, rdb, []string{leaseKey(sale.ID), mapKey(sale.ID), leftKey(sale.ID)}, args...).Err()
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		slog.WarnContext(ctx, "map: redis", "sale", sale.ID, "error", err)
	}
}

// putAway tells who waits for our load that Postgres is away.
func (ms *Maps) putAway(ctx context.Context, sale *catalog.Sale, token string) {
	_ = ms.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return putScript.Run(ctx, rdb, []string{leaseKey(sale.ID), mapKey(sale.ID), leftKey(sale.ID)}, token, "", 0).Err()
	})
}

// last is the newest map that Redis has, marked stale.
func (ms *Maps) last(ctx context.Context, sale *catalog.Sale) *Map {
	if ms.redis == nil {
		return nil
	}
	var raw string
	err := ms.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		raw, err = rdb.Get(ctx, mapKey(sale.ID)).Result()
		return err
	})
	if err != nil || len(raw) < tokenLen {
		return nil
	}
	m, err := decode(sale, []byte(raw[tokenLen:]))
	if err != nil {
		return nil
	}
	m.Stale = true
	return m
}

// tokenLen is the length of the loader's token before a map in Redis.
const tokenLen = 16
