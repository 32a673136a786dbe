// Package seat_test tries the seats of migrations 00001 to 00003 and the map on a
// real Postgres and Redis.
package seat_test

import (
	"context"
	"testing"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// world is a database of the test's own.
type world struct {
	testing.TB
	ctx   context.Context
	db    *harness.Database
	store *store.DB
	sales *catalog.Reader
}

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{TB: t, ctx: context.Background(), db: harness.DB(t)}
	w.store = store.New(w.db.App)
	w.sales = catalog.NewReader(w.store)
	return w
}

func (w *world) owner(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// app runs a statement as the application and returns its SQLSTATE, "" for none.
func (w *world) app(sql string, args ...any) string {
	w.Helper()
	_, err := w.db.App.Exec(w.ctx, sql, args...)
	if err != nil && store.State(err) == "" {
		w.Fatalf("%s: %v", sql, err)
	}
	return store.State(err)
}

func scan[T any](w *world, sql string, args ...any) (v T) {
	w.Helper()
	if err := w.db.Owner.QueryRow(w.ctx, sql, args...).Scan(&v); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return v
}

// sale is an open sale with one class "second" of seats on legs legs.
func (w *world) sale(legs, seats int) int64 {
	w.Helper()
	return w.db.OpenSale(w, legs, seats)
}

// legs are the states of a seat's legs by the strip: f, h or b.
func (w *world) legs(sale int64, seat int) string {
	w.Helper()
	return scan[string](w, `SELECT string_agg(CASE WHEN u = 'infinity' THEN 'b' WHEN u > clock_timestamp() THEN 'h' ELSE 'f' END, '' ORDER BY o)
		FROM seat, unnest(taken_until) WITH ORDINALITY x (u, o) WHERE sale_id = $1 AND number = $2`, sale, seat)
}

// The four moves and what would be the other two, as the application calls them.
const (
	holdSeats = `SELECT seat_hold($1, $2, $3, $4, $5, clock_timestamp() + interval '1 hour', false)`
	extend    = `SELECT seat_extend($1, $2, $3, $4, $5, clock_timestamp() + interval '2 hours')`
	letGo     = `SELECT seat_let_go($1, $2, $3, $4, $5)`
	book      = `SELECT seat_book($1, $2, $3, $4, $5)`
	freeSeats = `SELECT seat_free($1, $2, $3, $4, $5)`
)

var soon = 5 * time.Second
