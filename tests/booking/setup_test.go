// Package booking_test tries holds on a real Postgres, through the service and
// through the function.
package booking_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/key"
	"handler/function/shared/problem"
	"handler/function/shared/seat"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// world is a replica on a database of the test's own.
type world struct {
	testing.TB
	ctx   context.Context
	db    *harness.Database
	store *store.DB
	sales *catalog.Reader
	maps  *seat.Maps
	ids   *id.Maker
	books *booking.Service
	keys  atomic.Int64
}

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return on(t, harness.DB(t))
}

func on(t testing.TB, db *harness.Database) *world {
	ring, err := key.Parse("t1:" + strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, ctx: context.Background(), db: db, store: store.New(db.App), ids: id.New(ring)}
	w.sales = catalog.NewReader(w.store)
	w.maps = seat.NewMaps(w.store, nil)
	w.books = booking.New(w.store, w.sales, w.maps, w.ids)
	return w
}

func (w *world) owner(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func scan[T any](w *world, sql string, args ...any) (v T) {
	w.Helper()
	if err := w.db.Owner.QueryRow(w.ctx, sql, args...).Scan(&v); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return v
}

// sale is an open sale with one class "second" of seats in rows of four on legs
// legs, limits of six; more changes it (SQL of SET).
func (w *world) sale(legs, seats int, more string) *catalog.Sale {
	w.Helper()
	n := w.db.OpenSale(w, legs, seats)
	if more != "" {
		w.owner(`UPDATE sale SET `+more+` WHERE sale_id = $1`, n)
	}
	w.sales.Forget(n) // the reader remembers for a moment that there was no such sale
	s, err := w.sales.Sale(w.ctx, n)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// wish is a hold of the whole route by an account, with a key of its own.
func (w *world) wish(sale *catalog.Sale, account string, quantity int, seats ...string) booking.Wish {
	k := fmt.Sprint("key-", w.keys.Add(1))
	return booking.Wish{
		Account: account, Origin: booking.ByCustomer, Class: "second", From: "0", To: fmt.Sprint(sale.Legs),
		Quantity: quantity, Seats: seats, Key: k, Hash: idempotency.Hash([]byte(k)), TraceID: "test",
	}
}

// try holds and returns the code of the refusal, "held" for none.
func (w *world) try(sale *catalog.Sale, wish booking.Wish) string {
	w.Helper()
	_, err := w.books.Hold(w.ctx, sale, wish)
	if err == nil {
		return "held"
	}
	p := problem.From(err)
	if p.Code == problem.Internal {
		w.Errorf("%s: %v", wish.Account, err)
	}
	return string(p.Code)
}

func (w *world) must(sale *catalog.Sale, wish booking.Wish) *booking.Hold {
	w.Helper()
	h, err := w.books.Hold(w.ctx, sale, wish)
	if err != nil {
		w.Fatalf("%s: %v", wish.Account, err)
	}
	return h
}

// end lets a sale's holds come to their end.
func (w *world) end(sale *catalog.Sale) {
	w.Helper()
	w.owner(`UPDATE booking SET made_at = made_at - interval '1 h', ends_at = clock_timestamp(), limit_at = clock_timestamp() WHERE sale_id = $1 AND state = 'held'`, sale.ID)
	w.owner(`UPDATE seat SET taken_until = ARRAY(SELECT CASE WHEN u = 'infinity' THEN u ELSE LEAST(u, clock_timestamp()) END FROM unnest(taken_until) WITH ORDINALITY x (u, o) ORDER BY o)
		WHERE sale_id = $1`, sale.ID)
}

// together runs n people at once and counts the codes they got.
func together(n int, do func(i int) string) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	got := map[string]int{}
	for i := range n {
		wg.Go(func() {
			<-start
			code := do(i)
			mu.Lock()
			got[code]++
			mu.Unlock()
		})
	}
	close(start)
	wg.Wait()
	return got
}

// check is invariant 1 for a sale: whoever is live has exactly their seats.
func (w *world) check(sale *catalog.Sale) {
	w.Helper()
	if n := scan[int](w, `SELECT count(*) FROM (
			SELECT s, leg FROM booking b, unnest(b.seats) s, generate_series(b.leg_from, b.leg_to) leg
			WHERE b.sale_id = $1 AND (b.state = 'booked' OR b.state = 'held' AND b.ends_at > clock_timestamp()) GROUP BY s, leg HAVING count(*) > 1) twice`, sale.ID); n > 0 {
		w.Errorf("%d legs are sold twice", n)
	}
	if n := scan[int](w, `SELECT count(*) FROM booking b, unnest(b.seats) n, generate_series(b.leg_from, b.leg_to) leg
			JOIN seat s ON true WHERE b.sale_id = $1 AND s.sale_id = $1 AND s.number = n
			AND (b.state = 'booked' OR b.state = 'held' AND b.ends_at > clock_timestamp())
			AND NOT (s.taken_by[leg] = b.number AND s.taken_until[leg] > clock_timestamp())`, sale.ID); n > 0 {
		w.Errorf("%d legs of live bookings are not theirs", n)
	}
	if n := scan[int](w, `SELECT count(*) FROM account_sale a WHERE a.sale_id = $1 AND live_seats <>
			(SELECT coalesce(sum(quantity), 0) FROM booking b WHERE b.sale_id = $1 AND b.account = a.account AND b.state IN ('held', 'booked'))`, sale.ID); n > 0 {
		w.Errorf("%d accounts count wrongly", n)
	}
}

var hour = time.Hour
