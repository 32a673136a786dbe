package seat_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/seat"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

func (w *world) redis(r *harness.RedisServer) *queue.Client {
	w.Helper()
	c, err := queue.Open(r.URL)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// reads is how often the strips of this database were read.
func (w *world) reads() int64 {
	return scan[int64](w, `SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = current_database() AND s.query LIKE 'SELECT number, class, considered_at, taken_until FROM seat%'`)
}

func (w *world) get(maps *seat.Maps, sale int64) *seat.Map {
	w.Helper()
	s, err := w.sales.Sale(w.ctx, sale)
	if err != nil {
		w.Fatal(err)
	}
	m, err := maps.Get(w.ctx, s)
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// crowd asks replicas for a sale's map, many at a time, for a while; every map
// must be at most a second old when it comes. It returns how many asked.
func (w *world) crowd(sale *catalog.Sale, span time.Duration, replicas ...*seat.Maps) int64 {
	w.Helper()
	var asked atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(span)
	for i := range 16 {
		wg.Go(func() {
			for time.Now().Before(end) {
				from := time.Now()
				m, err := replicas[i%len(replicas)].Get(w.ctx, sale)
				if err != nil {
					w.Error(err)
					return
				}
				if age := from.Sub(m.AsOf); age > time.Second+50*time.Millisecond {
					w.Errorf("a map of %v", age)
					return
				}
				asked.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	return asked.Load()
}

// However many ask, Postgres is read once a second: by all replicas together, and
// by each where Redis is away.
func TestMapReadsPostgresOnceASecond(t *testing.T) {
	w := setup(t)
	w.owner(`CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	r := harness.Redis(t)
	id := w.sale(4, 200)
	sale, err := w.sales.Sale(w.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	one, two := seat.NewMaps(w.store, w.redis(r)), seat.NewMaps(w.store, w.redis(r))
	const span = 3200 * time.Millisecond
	before := w.reads()
	asked := w.crowd(sale, span, one, two)
	if n := w.reads() - before; n < 2 || n > 4 {
		t.Errorf("%d asked for the map and Postgres was read %d times in %v", asked, n, span)
	}
	r.Kill()
	before = w.reads()
	asked = w.crowd(sale, span, one)
	if n := w.reads() - before; n < 2 || n > 5 {
		t.Errorf("Redis away: %d asked for the map and Postgres was read %d times in %v", asked, n, span)
	}
}

// The map shows held, booked, blocked and ended holds as they are, and a change
// within a second.
func TestMapShowsTheStrips(t *testing.T) {
	w := setup(t)
	id := w.sale(3, 5)
	w.app(holdSeats, id, 1, []int{1}, 1, 1)
	w.app(holdSeats, id, 2, []int{2}, 2, 3)
	w.app(book, id, 2, []int{2}, 2, 3)
	w.owner(`SELECT block_seats($1, '{3}', 1, 3, '9999-01-01', 'broken')`, id)
	w.app(holdSeats, id, 4, []int{4}, 1, 3)
	w.owner(`UPDATE seat SET taken_until[1] = clock_timestamp() WHERE sale_id = $1 AND number = 4`, id)
	w.app(holdSeats, id, 5, []int{5}, 3, 3)
	w.app(letGo, id, 5, []int{5}, 3, 3)
	maps := seat.NewMaps(w.store, nil)
	m := w.get(maps, id)
	for _, test := range []struct {
		f, t int
		want string // of seats 1 to 5
		left int
	}{{1, 1, "10100", 3}, {2, 2, "02110", 2}, {2, 3, "02110", 2}, {1, 3, "12110", 1}} {
		got := ""
		bits := m.Packed("second", test.f, test.t)
		for i := range 5 {
			got += string('0' + bits[i/4]>>(2*(i%4))&3)
		}
		if got != test.want || m.Left("second", test.f, test.t) != test.left {
			t.Errorf("legs %d..%d: %s and %d left, not %s and %d", test.f, test.t, got, m.Left("second", test.f, test.t), test.want, test.left)
		}
	}
	if n := m.LeftAny("second"); n != 4 {
		t.Errorf("%d seats with something left", n)
	}
	// While others wait, what came free is kept for them and reads as held.
	w.db.QueueOrder(t, id, "w", "second", 1, 1, 1)
	waitFor(t, func() bool { return w.get(maps, id).Left("second", 3, 3) == 1 })
	if got := w.get(maps, id).Packed("second", 3, 3); got[1]&3 != 1 {
		t.Errorf("a kept seat reads %d", got[1]&3)
	}
	w.app(`SELECT seat_considered($1, '{5}')`, id)
	waitFor(t, func() bool { return w.get(maps, id).Left("second", 3, 3) == 2 })
}

// outage is a way to Postgres that can be cut.
type outage struct {
	to  string
	in  net.Listener
	mu  sync.Mutex
	all []net.Conn
	cut bool
}

func newOutage(t *testing.T, to string) *outage {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &outage{to: to, in: in}
	go func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			cut := o.cut
			o.all = append(o.all, c)
			o.mu.Unlock()
			s, err := net.Dial("tcp", to)
			if cut || err != nil {
				_ = c.Close()
				continue
			}
			go func() { _, _ = io.Copy(s, c); _ = s.Close() }()
			go func() { _, _ = io.Copy(c, s); _ = c.Close() }()
		}
	}()
	t.Cleanup(func() { _ = in.Close() })
	return o
}

func (o *outage) set(cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut = cut
	if cut {
		for _, c := range o.all {
			_ = c.Close()
		}
	}
}

// While Postgres is away the last map is shown and says so, also by a replica that
// never had one; after it the map is fresh again.
func TestMapWhilePostgresIsAway(t *testing.T) {
	w := setup(t)
	id := w.sale(1, 4)
	dsn, err := url.Parse(w.db.AppURL)
	if err != nil {
		t.Fatal(err)
	}
	way := newOutage(t, dsn.Host)
	dsn.Host = way.in.Addr().String()
	db, err := store.Open(dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	r := harness.Redis(t)
	one, two := seat.NewMaps(db, w.redis(r)), seat.NewMaps(db, w.redis(r))
	if m := w.get(one, id); m.Stale || m.Left("second", 1, 1) != 4 {
		t.Fatalf("stale %t, %d left", m.Stale, m.Left("second", 1, 1))
	}
	way.set(true)
	waitFor(t, func() bool { return w.get(one, id).Stale })
	if m := w.get(two, id); !m.Stale || m.Left("second", 1, 1) != 4 {
		t.Errorf("a new replica: stale %t, %d left", m.Stale, m.Left("second", 1, 1))
	}
	alone := seat.NewMaps(db, nil)
	sale, err := w.sales.Sale(w.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Get(w.ctx, sale); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a replica that knows nothing: %v", err)
	}
	w.app(holdSeats, id, 1, []int{1}, 1, 1)
	way.set(false)
	waitFor(t, func() bool { m := w.get(one, id); return !m.Stale && m.Left("second", 1, 1) == 3 })
}

// What is left in Redis falls with each hold; the last seat of a screening is told
// to its room at once.
func TestLastSeatIsTold(t *testing.T) {
	w := setup(t)
	r := harness.Redis(t)
	id := w.sale(1, 3)
	w.owner(`UPDATE sale SET room_id = 7 WHERE sale_id = $1`, id)
	maps := seat.NewMaps(w.store, w.redis(r))
	told := make(chan int64, 1)
	maps.OnGone(func(_ context.Context, sale *catalog.Sale) error { told <- sale.Room; return nil })
	m := w.get(maps, id)
	left := func() string {
		s, _ := r.Client.HGet(w.ctx, queue.Key(queue.SaleTag(id), "left"), "second").Result()
		return strings.TrimSpace(s)
	}
	maps.Took(m, "second", []int{1}, 1, 1)
	waitFor(t, func() bool { return left() == "2" })
	select {
	case <-told:
		t.Fatal("told with two left")
	default:
	}
	maps.Took(m, "second", []int{2, 3}, 1, 1)
	select {
	case room := <-told:
		if room != 7 {
			t.Errorf("room %d", room)
		}
	case <-time.After(soon):
		t.Error("nobody was told")
	}
}
