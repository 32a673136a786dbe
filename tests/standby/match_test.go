package standby_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"handler/function/shared/alert"
	"handler/function/shared/standby"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// matching is a sale of a test with the matcher beside it.
type matching struct {
	t    *testing.T
	ctx  context.Context
	db   *harness.Database
	sale int64
	m    *standby.Matcher

	mu       sync.Mutex
	outcomes []line.Outcome
}

// Seated and Considered are the aftermath of a test: it keeps what it is told.
func (w *matching) Seated(context.Context, int64) {}

func (w *matching) Considered(_ context.Context, _ int64, _ string, outcomes []line.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, outcomes...)
}

func newMatching(t *testing.T, legs, seats int) *matching {
	t.Parallel()
	w := &matching{t: t, ctx: context.Background(), db: harness.DB(t)}
	w.sale = w.db.OpenSale(t, legs, seats)
	db := store.New(w.db.App)
	w.m = standby.NewMatcher(db, alert.New(db, ""), w)
	return w
}

func (w *matching) match() standby.Did {
	w.t.Helper()
	did, err := w.m.Match(w.ctx, w.sale)
	if err != nil {
		w.t.Fatal(err)
	}
	return did
}

// hold holds seats for an account: held by a customer until its end.
func (w *matching) hold(account string, from, to int, seats ...int) (booking int64) {
	w.t.Helper()
	var code string
	err := w.db.App.QueryRow(w.ctx, `SELECT a->>'code', coalesce((a->>'number')::bigint, 0) FROM (
		SELECT hold_seats($1, $2, gen_random_uuid()::text, '\x00', NULL, NULL, 'second', $3, $4, $5, NULL, $6, 0, NULL, '[]', '{}', NULL, 'customer', '') AS a) x`,
		w.sale, account, from, to, seats, len(seats)).Scan(&code, &booking)
	if err != nil {
		w.t.Fatal(err)
	}
	if code != "held" {
		w.t.Fatalf("hold of %v on %d..%d: %s", seats, from, to, code)
	}
	return booking
}

// take holds one seat for each of an account of its own, so that limits play no
// part.
func (w *matching) take(from, to int, seats ...int) (bookings []int64) {
	for _, s := range seats {
		bookings = append(bookings, w.hold(fmt.Sprintf("seat-%d-%d", s, from), from, to, s))
	}
	return bookings
}

func (w *matching) letGo(account string, booking int64) {
	w.t.Helper()
	var code string
	if err := w.db.App.QueryRow(w.ctx, `SELECT let_go_booking($1, $2, $3, 'test', '')->>'code'`, w.sale, booking, account).Scan(&code); err != nil || code != "released" {
		w.t.Fatalf("let go of %d: %s %v", booking, code, err)
	}
}

func (w *matching) order(account string, from, to, quantity int) int64 {
	return w.db.QueueOrder(w.t, w.sale, account, "second", from, to, quantity)
}

// seats are those that an order has; nil while it has none.
func (w *matching) seats(order int64) (seats []int) {
	w.t.Helper()
	err := w.db.App.QueryRow(w.ctx, `SELECT coalesce((SELECT b.seats FROM booking b WHERE b.sale_id = $1 AND b.number = o.booking), '{}')
		FROM standby_order o WHERE o.sale_id = $1 AND o.number = $2`, w.sale, order).Scan(&seats)
	if err != nil {
		w.t.Fatal(err)
	}
	return seats
}

func (w *matching) state(order int64) (state string) {
	w.t.Helper()
	if err := w.db.App.QueryRow(w.ctx, `SELECT state FROM standby_order WHERE sale_id = $1 AND number = $2`, w.sale, order).Scan(&state); err != nil {
		w.t.Fatal(err)
	}
	return state
}

func (w *matching) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// A seat that comes free goes to the exact interval's queue, in its order; the
// rest of the gap to the others; a seat nobody can use to the open sale.
func TestMatch(t *testing.T) {
	w := newMatching(t, 4, 3)
	held := w.take(1, 4, 1, 2, 3)
	second, first := w.order("b", 2, 4, 1), w.order("a", 1, 2, 1)
	third := w.order("c", 1, 2, 1)
	if did := w.match(); did.Checked != 3 || did.Matched != 0 {
		t.Fatalf("nothing is free: %+v", did)
	}
	w.letGo("seat-2-1", held[1])
	if did := w.match(); did.Releases != 1 || did.Matched != 1 {
		t.Fatalf("one release: %+v", did)
	}
	// 2..4 is more passenger-legs than 1..2.
	if got := w.seats(second); !slices.Equal(got, []int{2}) || w.state(second) != "matched" {
		t.Errorf("the order of 2..4 has %v, %s", got, w.state(second))
	}
	w.letGo("seat-1-1", held[0])
	w.match()
	if got := w.seats(first); !slices.Equal(got, []int{1}) {
		t.Errorf("the first of 1..2 has %v", got)
	}
	if got := w.seats(third); len(got) != 0 {
		t.Errorf("the second of 1..2 has %v", got)
	}
	// What is left of seat 1 nobody waits for: the open sale may have it.
	w.hold("d", 3, 4, 1)
	if len(w.outcomes) != 2 || len(w.outcomes[1].Served) != 1 || w.outcomes[1].Gaps[0] != [2]int{1, 4} {
		t.Errorf("outcomes: %+v", w.outcomes)
	}
	if did := w.match(); did != (standby.Did{}) {
		t.Errorf("again: %+v", did)
	}
}

// A group gets all its seats or none; passed ten times, seats are kept for it.
func TestMatchGroup(t *testing.T) {
	w := newMatching(t, 2, 3)
	held := w.take(1, 2, 1, 2, 3)
	group := w.order("g", 1, 2, 3)
	single := w.order("s", 1, 1, 1)
	w.match()
	w.letGo("seat-1-1", held[0])
	w.letGo("seat-2-1", held[1])
	if did := w.match(); did.Matched != 1 {
		t.Fatalf("two seats for a group of three and one: %+v", did)
	}
	if len(w.seats(group)) != 0 || len(w.seats(single)) != 1 {
		t.Fatalf("group %v, single %v", w.seats(group), w.seats(single))
	}
	w.exec(`UPDATE standby_queue SET passed = 10 WHERE number = $1`, group)
	w.hold("x", 1, 2, 2)
	var x int64
	if err := w.db.App.QueryRow(w.ctx, `SELECT number FROM booking WHERE account = 'x'`).Scan(&x); err != nil {
		t.Fatal(err)
	}
	w.letGo("x", x)
	if did := w.match(); did.Kept != 1 {
		t.Fatalf("nothing kept: %+v", did)
	}
	// The single lets go, the last seat comes free: kept and free are three.
	var b int64
	if err := w.db.App.QueryRow(w.ctx, `SELECT number FROM booking WHERE account = 's'`).Scan(&b); err != nil {
		t.Fatal(err)
	}
	w.letGo("s", b)
	if did := w.match(); did.Kept != 1 {
		t.Fatalf("the second seat: %+v", did)
	}
	w.letGo("seat-3-1", held[2])
	w.match()
	if got := w.seats(group); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("the group has %v", got)
	}
}

// What is kept for a group that leaves comes free, and goes to who waits in the same
// call of match.
func TestKeptGroupLeaves(t *testing.T) {
	w := newMatching(t, 1, 2)
	held := w.take(1, 1, 1, 2)
	group := w.order("g", 1, 1, 2)
	w.match()
	w.exec(`UPDATE standby_queue SET passed = 10 WHERE number = $1`, group)
	w.letGo("seat-1-1", held[0])
	if did := w.match(); did.Kept != 1 {
		t.Fatalf("nothing kept: %+v", did)
	}
	single := w.order("s", 1, 1, 1)
	w.match()
	if got := w.state(single); got != "queued" {
		t.Fatalf("the seat is kept, and the next is %s", got)
	}
	w.exec(`SELECT standby_leave(sale_id, number, account, '') FROM standby_order WHERE number = $1`, group)
	if did := w.match(); did.Matched != 1 || w.state(single) != "matched" {
		t.Fatalf("%+v, the next is %s", did, w.state(single))
	}
}

// An order joins while a release commits: whichever is first, the other sees it.
func TestJoinRacesRelease(t *testing.T) {
	w := newMatching(t, 1, 1)
	for i := range 30 {
		account := fmt.Sprintf("h%d", i)
		b := w.hold(account, 1, 1, 1)
		var order int64
		var wg sync.WaitGroup
		wg.Go(func() { w.letGo(account, b); _, _ = w.m.Match(w.ctx, w.sale) })
		wg.Go(func() { order = w.order(fmt.Sprintf("o%d", i), 1, 1, 1); _, _ = w.m.Match(w.ctx, w.sale) })
		wg.Wait()
		if got := w.state(order); got != "matched" {
			t.Fatalf("round %d: the order is %s", i, got)
		}
		w.letGo(fmt.Sprintf("o%d", i), w.bookingOf(order))
		w.match()
	}
}

func (w *matching) bookingOf(order int64) (booking int64) {
	w.t.Helper()
	if err := w.db.App.QueryRow(w.ctx, `SELECT booking FROM standby_order WHERE sale_id = $1 AND number = $2`, w.sale, order).Scan(&booking); err != nil {
		w.t.Fatal(err)
	}
	return booking
}

// Field case 42: who bought meanwhile has used the limit; the order that comes
// second is refused, and the seat goes to the next.
func TestMatchLimit(t *testing.T) {
	w := newMatching(t, 1, 1)
	w.exec(`UPDATE sale SET account_limit = 1, booking_limit = 1`)
	held := w.take(1, 1, 1)
	over, next := w.order("a", 1, 1, 1), w.order("b", 1, 1, 1)
	w.match()
	w.exec(`UPDATE account_sale SET live_seats = 1, seat_limit = 1 WHERE account = 'a'`)
	w.letGo("seat-1-1", held[0])
	did := w.match()
	if did.Matched != 1 || did.Refused != 1 || w.state(over) != "cancelled" || w.state(next) != "matched" {
		t.Fatalf("%+v, over %s, next %s", did, w.state(over), w.state(next))
	}
}

// Two orders of one account in one run, of which the first is too many: only that one
// is refused.
func TestMatchLimitOfTwoOrders(t *testing.T) {
	w := newMatching(t, 1, 3)
	w.exec(`UPDATE sale SET account_limit = 4, booking_limit = 4`)
	held := w.take(1, 1, 1, 2, 3)
	two, one := w.order("a", 1, 1, 2), w.order("a", 1, 1, 1)
	w.match()
	w.exec(`UPDATE account_sale SET live_seats = 3, seat_limit = 4 WHERE account = 'a'`)
	for i, b := range held {
		w.letGo(fmt.Sprintf("seat-%d-1", i+1), b)
	}
	did := w.match()
	if did.Matched != 1 || did.Refused != 1 || w.state(two) != "cancelled" || w.state(one) != "matched" {
		t.Fatalf("%+v: of two %s, of one %s", did, w.state(two), w.state(one))
	}
}

// A seat's other legs that came free unnoticed are offered with it (DESIGN 8):
// legs 1..2 refunded a second after a hold on legs 6..8 ended.
func TestUnnoticedEnd(t *testing.T) {
	w := newMatching(t, 8, 1)
	late := w.hold("late", 6, 8, 1)
	b := w.hold("early", 1, 2, 1)
	w.hold("mid", 3, 5, 1)
	early, end := w.order("x", 1, 2, 1), w.order("y", 6, 8, 1)
	w.match()
	w.exec(`SET session_replication_role = replica; UPDATE seat SET taken_until[6:8] = array_fill(now() - interval '1 second', ARRAY[3])`)
	w.exec(`UPDATE booking SET made_at = now() - interval '9 minutes', ends_at = now() - interval '1 second' WHERE number = $1`, late)
	w.letGo("early", b)
	if did := w.match(); did.Matched != 2 || w.state(early) != "matched" || w.state(end) != "matched" {
		t.Fatalf("%+v: early %s, end %s", did, w.state(early), w.state(end))
	}
}

// Field case 63: an event that was handled slower than its time-out comes again,
// while the first still runs: one effect.
func TestMatchTwice(t *testing.T) {
	w := newMatching(t, 1, 6)
	held := w.take(1, 1, 1, 2, 3, 4, 5, 6)
	var orders []int64
	for i := range 12 {
		orders = append(orders, w.order(fmt.Sprintf("o%d", i), 1, 1, 1))
	}
	w.match()
	for i, b := range held {
		w.letGo(fmt.Sprintf("seat-%d-1", i+1), b)
	}
	var mu sync.Mutex
	var did standby.Did
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			d, err := w.m.Match(w.ctx, w.sale)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			did.Matched += d.Matched
			did.Releases += d.Releases
		})
	}
	wg.Wait()
	if did.Matched != 6 || did.Releases != 6 {
		t.Errorf("eight calls did %+v", did)
	}
	for i, o := range orders {
		if want := map[bool]string{true: "matched", false: "queued"}[i < 6]; w.state(o) != want {
			t.Errorf("order %d is %s, not %s", i, w.state(o), want)
		}
	}
}

// Many seats come free at once, more than are looked at of a queue: all of them
// go to who waits, in order, and none to the open sale.
func TestMatchManyAtOnce(t *testing.T) {
	w := newMatching(t, 2, 25)
	var all []int
	for n := 1; n <= 25; n++ {
		all = append(all, n)
	}
	held := w.take(1, 2, all...)
	var orders []int64
	for i := range 40 {
		orders = append(orders, w.order(fmt.Sprintf("o%d", i), 1, 2, 1))
	}
	w.match()
	for i, b := range held {
		w.letGo(fmt.Sprintf("seat-%d-1", i+1), b)
	}
	if did := w.match(); did.Matched != 25 || did.Releases != 25 {
		t.Errorf("of 25 seats for 40 who wait: %+v", did)
	}
	for i, o := range orders {
		if want := map[bool]string{true: "matched", false: "queued"}[i < 25]; w.state(o) != want {
			t.Errorf("order %d is %s, not %s", i, w.state(o), want)
		}
	}
	if code := w.tryHold("stranger", 1, 1, 1); code != "sold-out" {
		t.Errorf("a stranger: %s", code)
	}
}

// Orders leave their queues in order of number, as standby_expire ends them; match
// counts whom it passed, whose places are in another order. Neither ends up
// waiting for the other.
func TestQueueRowsAreLockedInOrder(t *testing.T) {
	w := newMatching(t, 2, 1)
	held := w.take(1, 2, 1)
	first, second := w.order("a", 2, 2, 2), w.order("b", 1, 1, 2) // groups: passed
	for _, order := range []int64{second, first} {
		for _, table := range []string{"standby_queue", "standby_due", "standby_order"} {
			w.exec(`UPDATE `+table+` SET score = 1000000 - number WHERE sale_id = $1 AND number = $2`, w.sale, order)
		}
	}
	w.match()
	w.letGo("seat-1-1", held[0])

	tx, err := w.db.Owner.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(w.ctx)
	leave := func(order int64, account string) {
		t.Helper()
		var code string
		if err := tx.QueryRow(w.ctx, `SELECT standby_leave($1, $2, $3, '')->>'code'`, w.sale, order, account).Scan(&code); err != nil || code != "left" {
			t.Fatalf("%s leaves: %s %v", account, code, err)
		}
	}
	if _, err := tx.Exec(w.ctx, `SET LOCAL lock_timeout = '300ms'`); err != nil { // less than a deadlock lasts
		t.Fatal(err)
	}
	leave(first, "a")
	type result struct {
		did standby.Did
		err error
	}
	done := make(chan result, 1)
	go func() {
		did, err := w.m.Match(w.ctx, w.sale)
		done <- result{did, err}
	}()
	waitFor(t, func() bool {
		var waits bool
		err := w.db.Owner.QueryRow(w.ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	})
	leave(second, "b")
	if err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.did.Releases != 1 || r.did.SetAside != 0 {
		t.Errorf("%+v %v", r.did, r.err)
	}
}

// Field case 43: a release after closing brings no match, and who waits is let
// off; while the sale is paused nothing moves, and what is due stays due.
func TestMatchClosedAndPaused(t *testing.T) {
	w := newMatching(t, 1, 2)
	held := w.take(1, 1, 1, 2)
	a, b := w.order("a", 1, 1, 1), w.order("b", 1, 1, 1)
	w.match()
	w.exec(`UPDATE sale SET state = 'paused'`)
	w.letGo("seat-1-1", held[0])
	if did := w.match(); did != (standby.Did{}) || w.state(a) != "queued" {
		t.Fatalf("paused: %+v, %s", did, w.state(a))
	}
	w.exec(`UPDATE sale SET state = 'open'`)
	if did := w.match(); did.Matched != 1 || w.state(a) != "matched" {
		t.Fatalf("open again: %+v, %s", did, w.state(a))
	}
	w.exec(`UPDATE sale SET closes_at = now() - interval '1 second'`)
	w.letGo("seat-2-1", held[1])
	if did := w.match(); did.Matched != 0 || did.Releases != 1 || w.state(b) != "expired" {
		t.Fatalf("closed: %+v, %s", did, w.state(b))
	}
}

// `match` is away for a minute: what came free stays kept for who waits, and
// nothing is stranded when it is back.
func TestMatchAway(t *testing.T) {
	w := newMatching(t, 2, 4)
	held := w.take(1, 2, 1, 2, 3, 4)
	one, group := w.order("one", 2, 2, 1), w.order("group", 1, 2, 2)
	w.match()
	for i, b := range held {
		w.letGo(fmt.Sprintf("seat-%d-1", i+1), b)
	}
	w.exec(`UPDATE seat_release SET released_at = released_at - interval '1 minute'`)
	if code := w.tryHold("open", 1, 2, 1); code != "standby-first" {
		t.Fatalf("the open sale takes what standby was not offered: %s", code)
	}
	if did := w.match(); did.Matched != 2 || did.Releases != 4 {
		t.Fatalf("back again: %+v", did)
	}
	if w.state(one) != "matched" || w.state(group) != "matched" {
		t.Fatalf("one %s, group %s", w.state(one), w.state(group))
	}
	if code := w.tryHold("open", 1, 2, 1); code != "held" {
		t.Fatalf("what nobody can use is stranded: %s", code)
	}
}

// tryHold asks the open sale for any seats.
func (w *matching) tryHold(account string, from, to, quantity int) (code string) {
	w.t.Helper()
	err := w.db.App.QueryRow(w.ctx, `SELECT hold_seats($1, $2, gen_random_uuid()::text, '\x00', NULL, NULL, 'second', $3, $4, NULL, NULL, $5, 0, NULL, '[]', '{}', NULL, 'customer', '')->>'code'`,
		w.sale, account, from, to, quantity).Scan(&code)
	if err != nil {
		w.t.Fatal(err)
	}
	return code
}

// shift gives the database of this test a clock of its own: every function and
// every statement of ours reads it in place of the server's.
func (w *matching) shift(by string) {
	w.t.Helper()
	w.exec(`CREATE TABLE clock_shift (by interval)`)
	w.exec(`INSERT INTO clock_shift VALUES ($1::text::interval)`, by)
	w.exec(`GRANT SELECT ON clock_shift TO PUBLIC`)
	for f, volatile := range map[string]string{"clock_timestamp": "VOLATILE", "now": "STABLE"} {
		w.exec(`CREATE FUNCTION public.` + f + `() RETURNS timestamptz LANGUAGE sql ` + volatile + ` SECURITY DEFINER
			AS 'SELECT pg_catalog.` + f + `() + (SELECT by FROM public.clock_shift)'`)
	}
	w.exec(`DO $$
		DECLARE f record;
		BEGIN
			FOR f IN SELECT p.oid::regprocedure AS name FROM pg_proc p
					 WHERE p.pronamespace = 'public'::regnamespace AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql') LOOP
				EXECUTE 'ALTER FUNCTION ' || f.name || ' SET search_path = public, pg_catalog, pg_temp';
			END LOOP;
			EXECUTE 'ALTER DATABASE ' || current_database() || ' SET search_path = public, pg_catalog, pg_temp';
		END $$`)
	w.db.App.Reset()
	w.db.Owner.Reset()
}

// The database's clock is a minute ahead for a while, and then right again:
// nothing reaches the open sale before standby, and nothing is stranded.
func TestClockAhead(t *testing.T) {
	w := newMatching(t, 1, 3)
	held := w.take(1, 1, 1, 2, 3)
	a := w.order("a", 1, 1, 1)
	w.match()
	w.shift("1 minute")
	var ahead bool
	if err := w.db.App.QueryRow(w.ctx, `SELECT now() > pg_catalog.now() + interval '59 seconds'`).Scan(&ahead); err != nil || !ahead {
		t.Fatalf("the clock is not ahead: %v", err)
	}
	w.letGo("seat-1-1", held[0])
	if did := w.match(); did.Matched != 1 || w.state(a) != "matched" {
		t.Fatalf("a minute ahead: %+v, %s", did, w.state(a))
	}
	group := w.order("group", 1, 1, 2)
	w.match()
	w.letGo("seat-2-1", held[1]) // free since a minute ahead of what will be now
	w.match()                    // and considered then: the group cannot use it
	w.exec(`UPDATE clock_shift SET by = '0'`)
	late := w.order("late", 1, 1, 1)
	w.letGo("seat-3-1", held[2])
	if code := w.tryHold("open", 1, 1, 1); code == "held" {
		t.Fatal("the open sale got what standby was not offered")
	}
	if w.match(); w.state(late) != "matched" {
		t.Fatalf("right again: late is %s", w.state(late))
	}
	w.exec(`UPDATE clock_shift SET by = '61 seconds'`) // a minute later
	w.match()
	if code := w.tryHold("open", 1, 1, 1); code != "held" {
		t.Fatalf("a seat that nobody can use is stranded: %s, the group is %s", code, w.state(group))
	}
}
