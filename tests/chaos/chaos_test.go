package chaos

import (
	"flag"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	opsFlag  = flag.Int("chaos.ops", 0, "operations of TestChaos; 0: 50,000, or 3,000 with -short")
	seedFlag = flag.Uint64("chaos.seed", 0, "seed of TestChaos; 0: another each time")
)

const (
	people         = 8
	defaultOps     = 50_000 // two minutes of two processors; make chaos does 100,000
	shortOps       = 3_000
	segmentOps     = 10_000 // between two quiet moments
	plantedOps     = 40_000 // at most: it ends with the first segment that shows the fault
	plantedSegment = 1_000
	mostFaults     = 20 // printed
)

// many are enough to buy a whole sale, and few enough to come to their limits; few
// want the same of a small one.
var (
	many = crowd{accounts: 24}
	few  = crowd{accounts: 5, intervals: [][2]int{{1, legs}, {1, legs / 2}, {legs/2 + 1, legs}, {1, 1}}}
)

// fault is one that is planted.
type fault struct {
	name        string
	edits       []edit // of functions of the database
	chargeTwice bool
	seenBy      []string // checks, one of which must see it
}

// edit replaces what stands in a function of the database.
type edit struct{ function, old, fresh string }

// chaos does so many operations in segments, by such clients, and returns what is wrong. It ends
// with the first segment that has something wrong.
func (w *world) chaos(ops, segment int, of crowd, seed uint64) (*checker, []*client) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var clients []*client
	for n := range people {
		clients = append(clients, newClient(w, n, of, seed))
	}
	c := newChecker(w)
	segments := 0
	// quiet ends a segment.
	quiet := func(n int, began time.Time, b *background) bool {
		worked := time.Since(began)
		b.stop()
		w.drain(c)
		drained := time.Now()
		c.segment(clients)
		w.holdFor(float64(n) / worked.Seconds())
		if segments++; segments < 3 {
			w.exec(`ANALYZE`) // as autovacuum does, in its time
		}
		w.open()
		w.Logf("segment of %d operations: %v, drained and checked in %v and %v, holds of %d s", n, worked.Round(time.Millisecond),
			drained.Sub(began.Add(worked)).Round(time.Millisecond), time.Since(drained).Round(time.Millisecond), w.hold)
		return len(c.faults) == 0 && !w.Failed()
	}
	began, b := time.Now(), w.begin(rng)
	var filled atomic.Int64
	var wait sync.WaitGroup
	for _, cl := range clients {
		wait.Go(func() { filled.Add(int64(cl.fill())) })
	}
	wait.Wait()
	ops -= int(filled.Load())
	for fine := quiet(int(filled.Load()), began, b); fine && ops > 0; {
		n := min(ops, segment)
		ops -= n
		began, b = time.Now(), w.begin(rng)
		var left atomic.Int64
		left.Store(int64(n))
		for _, cl := range clients {
			wait.Go(func() { cl.run(&left) })
		}
		wait.Wait()
		fine = quiet(n, began, b)
	}
	return c, clients
}

// TestChaos lets all of it happen, and everything must be right at each quiet moment.
func TestChaos(t *testing.T) {
	ops, seed := *opsFlag, *seedFlag
	if ops == 0 {
		ops = defaultOps
		if testing.Short() {
			ops = shortOps
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos.seed=%d -chaos.ops=%d", seed, ops)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // there is memory, and not much time
	w := newWorld(t, fault{})
	c, clients := w.chaos(ops, segmentOps, many, seed)
	for i, f := range c.faults {
		if i == mostFaults {
			t.Errorf("and %d more", len(c.faults)-i)
			break
		}
		t.Error(f)
	}
	t.Logf("%s", w.tally())
	t.Logf("%d seats, %d operations of seats through the model, %d seats looked at for standby first\n%s", w.seats.Load(), c.checked, c.first, story(sum(clients)))
}

// tally is what came of it all.
func (w *world) tally() string {
	return strings.Join(read(w, rowText, `
		SELECT 'bookings by ' || origin || ': ' || string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (
			SELECT origin, state, count(*) AS n FROM booking GROUP BY 1, 2) b GROUP BY origin
		UNION ALL SELECT 'rescued: ' || count(*) FROM payment WHERE outcome = 'rescued'
		UNION ALL SELECT 'orders: ' || string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (SELECT state, count(*) AS n FROM standby_order GROUP BY 1) o
		UNION ALL SELECT 'ended for: ' || string_agg(reason || ' ' || n, ', ' ORDER BY reason) FROM (
			SELECT reason, count(*) AS n FROM standby_order WHERE reason IS NOT NULL GROUP BY 1) o
		UNION ALL SELECT 'releases: ' || string_agg(event_type || ' ' || n, ', ' ORDER BY event_type) FROM (
			SELECT event_type, count(*) AS n FROM seat_release GROUP BY 1) r
		UNION ALL SELECT 'refunds: ' || string_agg(reason || ' ' || n, ', ' ORDER BY reason) FROM (SELECT reason, count(*) AS n FROM refund GROUP BY 1) r`), "\n  ")
}

func (f fault) seen(c *checker) bool {
	for _, got := range c.faults {
		for _, want := range f.seenBy {
			if strings.HasPrefix(got.check, want) {
				return true
			}
		}
	}
	return false
}

// planted are faults of the product, each put into a database of its own (or into
// the till), and the checks that must see it.
var planted = []fault{
	{name: "a hold does not look whether the seat is free", seenBy: []string{"linearizable"}, edits: []edit{
		{"seat_take", "v_now >= ALL (taken_until[p_from:p_to])", "'infinity' > ALL (taken_until[p_from:p_to])"}}},
	{name: "a seat given back is free on one leg more", seenBy: []string{"linearizable"}, edits: []edit{
		{"seat_free", "SET taken_until[p_from:p_to] = array_fill(v_now, ARRAY[p_to - p_from + 1])",
			"SET taken_until[p_from:LEAST(p_to + 1, legs)] = array_fill(v_now, ARRAY[LEAST(p_to + 1, legs) - p_from + 1])"}}},
	{name: "the open sale does not wait for standby", seenBy: []string{"standby first"}, edits: []edit{
		{"seat_take", "NOT p_standby_first", "true"}}},
	{name: "match does not look at the account's limit", seenBy: []string{"audit"}, edits: []edit{
		{"standby_seat", "live_seats = a.live_seats + n.quantity", "live_seats = LEAST(a.live_seats + n.quantity, s.account_limit)"},
		{"standby_seat", "WHERE (x.total > s.account_limit) IS NOT FALSE", "WHERE false"}}},
	{name: "who leaves stays in the queue and is matched", seenBy: []string{"orders"}, edits: []edit{
		{"standby_end", "DELETE FROM standby_queue WHERE sale_id = p_sale AND number = p_number", "PERFORM 1"},
		{"standby_seat", "o.state NOT IN ('queued', 'pending')", "o.state NOT IN ('queued', 'pending', 'cancelling', 'cancelled')"}}},
	{name: "the void of who leaves is forgotten", seenBy: []string{"books"}, edits: []edit{
		{"standby_void", "IF v_payment IS NULL THEN", "IF true THEN"}}},
	{name: "a refund is noted and never carried out", seenBy: []string{"books", "audit money"}, edits: []edit{
		{"payment_refund", "VALUES (p_sale, 'refund', v_id::text, jsonb_build_object('refund', v_id), p_trace)",
			"SELECT p_sale, 'refund', v_id::text, jsonb_build_object('refund', v_id), p_trace WHERE false"}}},
	{name: "a booking is returned and its money kept", seenBy: []string{"books"}, edits: []edit{
		{"booking_give_back", "IF p.payment_id IS NOT NULL AND p.kept > p_fee THEN", "IF false THEN"}}},
	{name: "the fare is taken twice", chargeTwice: true, seenBy: []string{"books"}},
	{name: "the last of a queue is served first", seenBy: []string{"fair"}, edits: []edit{
		{"standby_authorised", "v_score := nextval('standby_score')", "v_score := 1000000000 - nextval('standby_score')"}}},
}

// TestPlanted shows that each check can fail: a sale with little left, so that all
// of it happens soon.
func TestPlanted(t *testing.T) {
	for _, f := range planted {
		t.Run(f.name, func(t *testing.T) {
			seed := rand.Uint64()
			w := newWorld(t, f)
			var blocked []int
			for n := int(w.seats.Load()); n > 0; n-- {
				if n > 12 && n <= firstSeats || n > firstSeats+30 {
					blocked = append(blocked, n)
				}
			}
			w.exec(`SELECT block_seats($1, $2, 1, $3, now() + interval '1 day', 'few are sold')`, w.sale, blocked, legs)
			c, clients := w.chaos(plantedOps, plantedSegment, few, seed)
			by := map[string]int{}
			for _, got := range c.faults {
				by[got.check]++
			}
			t.Logf("seen by %v", by)
			if !f.seen(c) {
				t.Errorf("-chaos.seed=%d: not seen by any of %q, but: %v\n%s", seed, f.seenBy, c.faults, story(sum(clients)))
			}
		})
	}
}
