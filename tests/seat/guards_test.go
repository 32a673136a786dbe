package seat_test

import (
	"testing"
	"time"

	"handler/function/shared/store"
)

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come")
		}
	}
}

// The application may read seats and call the moves, nothing else.
func TestApplicationsRights(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 1)
	for _, sql := range []string{
		`UPDATE seat SET class = class WHERE sale_id = $1`,
		`UPDATE seat SET taken_until = ARRAY['infinity'::timestamptz] WHERE sale_id = $1`,
		`DELETE FROM seat WHERE sale_id = $1`,
		`INSERT INTO seat SELECT sale_id, 2, legs, class, considered_at, taken_until, taken_by FROM seat WHERE sale_id = $1`,
		`SELECT 1 FROM seat WHERE sale_id = $1 FOR UPDATE`,
		`SELECT 1 FROM seat WHERE sale_id = $1 FOR SHARE`,
		`UPDATE booked_seat SET booking = 1 WHERE sale_id = $1`,
		`DELETE FROM booked_seat WHERE sale_id = $1`,
		`INSERT INTO booked_seat VALUES ($1, 1, '[1,2)', 1)`,
		`SELECT 1 FROM booked_seat WHERE sale_id = $1 FOR UPDATE`,
		`SELECT seat_lock_interval($1, '{1}', 1, 1)`,
	} {
		if got := w.app(sql, sale); got != "42501" {
			t.Errorf("%s: %q, not 42501", sql, got)
		}
	}
	if got := w.app(`TRUNCATE seat, booked_seat`); got != "42501" {
		t.Errorf("TRUNCATE: %q", got)
	}
	if got := w.app(`SELECT taken_until FROM seat WHERE sale_id = $1`, sale); got != "" {
		t.Errorf("reading: %q", got)
	}
	// Nobody else may call anything of ours, and what runs with the owner's rights
	// looks names up in one schema.
	for what, sql := range map[string]string{
		"executable for all": `SELECT count(*) FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
			AND (proname LIKE 'seat\_%' OR proname LIKE '%\_booking' OR proname LIKE '%\_seats' OR proname LIKE '%\_holds' OR proname LIKE 'hold\_%')
			AND (proacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(proacl) a WHERE a.grantee = 0))`,
		"without a search_path": `SELECT count(*) FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND prosecdef
			AND NOT coalesce('search_path=public, pg_temp' = ANY (proconfig), false)`,
	} {
		if n := scan[int](w, sql); n != 0 {
			t.Errorf("%d functions are %s", n, what)
		}
	}
}

// The last guard (law 4): planted as the owner, past every function.
func TestSchemaRefuses(t *testing.T) {
	w := setup(t)
	sale := w.sale(2, 2)
	w.owner(`INSERT INTO account_sale VALUES ($1, 'a', 2, 6)`, sale)
	w.owner(`INSERT INTO booked_seat VALUES ($1, 1, '[1,3)', 1)`, sale)
	for _, test := range []struct{ what, sql, want string }{
		{"an empty strip", `UPDATE seat SET taken_until = '{}' WHERE sale_id = $1`, "23514"},
		{"a short strip", `UPDATE seat SET taken_until = ARRAY[now()] WHERE sale_id = $1`, "23514"},
		{"an overlong strip", `UPDATE seat SET taken_until[3] = now() WHERE sale_id = $1`, "23514"},
		{"a NULL in a strip", `UPDATE seat SET taken_until[2] = NULL WHERE sale_id = $1`, "23514"},
		{"no strip", `UPDATE seat SET taken_until = NULL WHERE sale_id = $1`, "23502"},
		{"two dimensions", `UPDATE seat SET taken_until = ARRAY[ARRAY[now(), now()]] WHERE sale_id = $1`, "23514"},
		{"another lower bound", `UPDATE seat SET taken_until = '[0:1]={now,now}' WHERE sale_id = $1`, "23514"},
		{"empty bookings", `UPDATE seat SET taken_by = '{}' WHERE sale_id = $1`, "23514"},
		{"overlong bookings", `UPDATE seat SET taken_by = '{1,2,3}' WHERE sale_id = $1`, "23514"},
		{"a NULL booking", `UPDATE seat SET taken_by[1] = NULL WHERE sale_id = $1`, "23514"},
		{"bookings in two dimensions", `UPDATE seat SET taken_by = '{{1,2}}' WHERE sale_id = $1`, "23514"},
		{"more legs than the strip", `UPDATE seat SET legs = 3 WHERE sale_id = $1`, "23514"},
		{"more than a hundred legs", `UPDATE seat SET legs = 101 WHERE sale_id = $1`, "23514"},
		{"a leg sold twice", `INSERT INTO booked_seat VALUES ($1, 1, '[2,3)', 2)`, "23P01"},
		{"all legs sold twice", `INSERT INTO booked_seat VALUES ($1, 1, '[1,3)', 2)`, "23P01"},
		{"no legs sold", `INSERT INTO booked_seat VALUES ($1, 2, 'empty', 2)`, "23514"},
		{"a leg before the first", `INSERT INTO booked_seat VALUES ($1, 2, '[0,2)', 2)`, "23514"},
		{"a seat that is not there", `INSERT INTO booked_seat VALUES ($1, 3, '[1,2)', 2)`, "23503"},
		{"more live seats than the limit", `UPDATE account_sale SET live_seats = 7 WHERE sale_id = $1`, "23514"},
		{"fewer than none", `UPDATE account_sale SET live_seats = -1 WHERE sale_id = $1`, "23514"},
		{"an unknown state", `INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at)
			VALUES ($1, 1, 'a', 'second', 1, 1, '{1}', 1, 'sold', 1, 'CAD', now(), now(), now())`, "23514"},
		{"another quantity than seats", `INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at)
			VALUES ($1, 1, 'a', 'second', 1, 1, '{1}', 2, 'held', 1, 'CAD', now(), now(), now())`, "23514"},
		{"a hold past its limit", `INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at)
			VALUES ($1, 1, 'a', 'second', 1, 1, '{1}', 1, 'held', 1, 'CAD', now(), now() + interval '2 s', now() + interval '1 s')`, "23514"},
	} {
		if _, err := w.db.Owner.Exec(w.ctx, test.sql, sale); store.State(err) != test.want {
			t.Errorf("%s: %v, not %s", test.what, err, test.want)
		}
	}
	w.owner(`INSERT INTO booked_seat VALUES ($1, 2, '[1,2)', 2), ($1, 2, '[2,3)', 3)`, sale)
}
