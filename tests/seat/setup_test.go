// Package seat_test tries the seats of migrations 00001 to 00003 and the map on a
// real Postgres and Redis.
package seat_test

import (
	"context"
	"fmt"
	"strings"
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
	stops := make([]string, legs+1)
	amounts := make([]string, legs)
	for i := range stops {
		stops[i] = fmt.Sprintf(`{"id":"%d","name":"Stop %d","timezone":"UTC","arrives":null,"departs":null,"board":"yes","alight":"yes","km":%d}`, i, i, i)
	}
	for i := range amounts {
		amounts[i] = "500"
	}
	id := scan[int64](w, `INSERT INTO sale (org, kind, title, service_date, timezone, state, legs, stops, currency, opens_at, closes_at, departs_at, gateways, test)
		VALUES ('o', 'train', 'T', '2026-12-24', 'UTC', 'open', $1, $2, 'CAD', now() - interval '1 hour', now() + interval '1 day', now() + interval '2 days', '{sandbox}', true)
		RETURNING sale_id`, legs, "["+strings.Join(stops, ",")+"]")
	w.owner(`INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES ($1, 'second', 0, 'Second', 'numbered', $2)`,
		id, `{"kind":"per_leg","amounts":[`+strings.Join(amounts, ",")+`]}`)
	w.owner(`SELECT seat_create($1, 'second', $2, (SELECT array_agg(n) FROM generate_series(1, $3) n), false)`, id, legs, seats)
	w.owner(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name)
		SELECT $1, n, '1-' || n, '1', (n - 1) / 4, chr(65 + (n - 1) % 4) FROM generate_series(1, $2) n`, id, seats)
	return id
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
