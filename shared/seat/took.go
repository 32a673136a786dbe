package seat

import (
	"context"
	_ "embed"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/catalog"
	"handler/function/shared/queue"
)

//go:embed map_lower.lua
var lowerLua string

var lowerScript = redis.NewScript(lowerLua)

const (
	lowerEvery = 50 * time.Millisecond // holds of a replica that go to Redis together
	manyTook   = 20_000                // seats remembered between two maps
)

// took is a seat's legs that this replica has seen go since its map was read.
type took struct {
	at   time.Time
	f, t int
}

// tookList remembers them until a newer map shows them.
type tookList struct {
	mu    sync.RWMutex
	seats map[int][]took // by number
}

func (l *tookList) add(seats []int, f, t int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seats == nil {
		l.seats = map[int][]took{}
	}
	if len(l.seats) > manyTook {
		return
	}
	for _, s := range seats {
		l.seats[s] = append(l.seats[s], took{time.Now(), f, t})
	}
}

// forget drops what was taken before a map was read.
func (l *tookList) forget(before time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, list := range l.seats {
		if list = slices.DeleteFunc(list, func(t took) bool { return t.at.Before(before) }); len(list) > 0 {
			l.seats[s] = list
		} else {
			delete(l.seats, s)
		}
	}
}

// taken is a look-up of seats gone on legs f..t.
func (l *tookList) taken(f, t int) func(number int) bool {
	return func(number int) bool {
		l.mu.RLock()
		defer l.mu.RUnlock()
		return slices.ContainsFunc(l.seats[number], func(k took) bool { return k.f <= t && f <= k.t })
	}
}

// Choose is Map.Choose without the seats that this replica has seen go since the
// map was read.
func (ms *Maps) Choose(m *Map, classID string, f, t, n int, prefer Prefer, pick func(int) int) []int {
	return m.Choose(classID, f, t, n, prefer, pick, ms.entry(m.sale.ID).took.taken(f, t))
}

// Took tells the map that seats were held: this replica proposes them no more,
// and what is left in Redis is lowered, many holds in one call. A hint, not
// waited for; the next count is right without it.
func (ms *Maps) Took(m *Map, classID string, seats []int, f, t int) {
	ms.entry(m.sale.ID).took.add(seats, f, t)
	c := m.class(classID)
	if c == nil || ms.redis == nil || m.Stale {
		return
	}
	// How many of them have no interval left that can be bought.
	n := len(seats)
	if m.legs > 1 {
		nearest := nearestSold(m.sale, classID, m.legs)
		n = 0
		for _, s := range seats {
			i, ok := slices.BinarySearch(c.seats, int32(s))
			if !ok {
				continue
			}
			strip := slices.Clone(c.strip(i))
			if !sellable(strip, nearest) {
				continue
			}
			for leg := f - 1; leg < t; leg++ {
				strip[leg] = Held
			}
			if !sellable(strip, nearest) {
				n++
			}
		}
	}
	if n > 0 {
		ms.lower.add(m.sale, classID, n)
	}
}

// lowering gathers what holds took away and sends it on.
type lowering struct {
	redis *queue.Client
	gone  func(ctx context.Context, sale *catalog.Sale) error

	mu      sync.Mutex
	waiting map[*catalog.Sale]map[string]int
	flying  bool
}

func (l *lowering) add(sale *catalog.Sale, classID string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[*catalog.Sale]map[string]int{}
	}
	if l.waiting[sale] == nil {
		l.waiting[sale] = map[string]int{}
	}
	l.waiting[sale][classID] += n
	if !l.flying {
		l.flying = true
		go l.fly()
	}
}

func (l *lowering) fly() {
	for {
		time.Sleep(lowerEvery)
		l.mu.Lock()
		all := l.waiting
		l.waiting = nil
		if len(all) == 0 {
			l.flying = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for sale, classes := range all {
			l.send(sale, classes)
		}
	}
}

func (l *lowering) send(sale *catalog.Sale, classes map[string]int) {
	if l.redis.Down() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var args []any
	for id, n := range classes {
		args = append(args, id, n)
	}
	gone := false
	err := l.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		left, err := lowerScript.Run(ctx, rdb, []string{leftKey(sale.ID)}, args...).Int()
		gone = left == 0
		return err
	})
	if err == nil && gone && sale.Legs == 1 && sale.Room != 0 && l.gone != nil {
		err = l.gone(ctx, sale)
	}
	if err != nil {
		slog.Warn("seats left: redis", "sale", sale.ID, "error", err)
	}
}
