package seat_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"handler/function/shared/seat"
)

// Six ordered pairs of states: four moves pass, two are refused, in SQL and in Go.
func TestSixPairs(t *testing.T) {
	w := setup(t)
	sale := w.sale(4, 2)
	tests := []struct {
		from, to seat.State
		try      []string // every function that could make the move
		legal    bool
	}{
		{seat.Free, seat.Held, []string{holdSeats}, true},
		{seat.Held, seat.Free, []string{letGo}, true},
		{seat.Held, seat.Booked, []string{book}, true},
		{seat.Booked, seat.Free, []string{freeSeats}, true},
		{seat.Free, seat.Booked, []string{book}, false},
		{seat.Booked, seat.Held, []string{holdSeats, extend, letGo}, false},
	}
	words := map[seat.State]string{seat.Free: "f", seat.Held: "h", seat.Booked: "b"}
	for _, test := range tests {
		if test.from.MayBecome(test.to) != test.legal {
			t.Errorf("in Go: %d to %d", test.from, test.to)
		}
		for _, function := range test.try {
			args := []any{sale, 7, []int{1, 2}, 2, 3}
			var undo []string
			if test.from != seat.Free {
				undo = append(undo, holdSeats)
			}
			if test.from == seat.Booked {
				undo = append(undo, book)
			}
			for _, f := range undo {
				if s := w.app(f, args...); s != "" {
					t.Fatalf("%s: %s", f, s)
				}
			}
			state, want := w.app(function, args...), "HF001"
			after := test.from
			if test.legal {
				want, after = "", test.to
			}
			if state != want {
				t.Errorf("%d to %d by %s: %q, not %q", test.from, test.to, function, state, want)
			}
			for n := 1; n <= 2; n++ {
				if got, want := w.legs(sale, n), "f"+strings.Repeat(words[after], 2)+"f"; got != want {
					t.Errorf("%d to %d by %s: seat %d is %s, not %s", test.from, test.to, function, n, got, want)
				}
			}
			switch after { // free again
			case seat.Held:
				w.app(letGo, args...)
			case seat.Booked:
				w.app(freeSeats, args...)
			}
		}
	}
}

// A move takes all its legs and seats or none, and only from who has them.
func TestAllOrNone(t *testing.T) {
	w := setup(t)
	sale := w.sale(4, 3)
	w.app(holdSeats, sale, 1, []int{2}, 2, 2)
	for _, test := range []struct {
		what, sql string
		args      []any
		want      string
	}{
		{"one leg taken", holdSeats, []any{sale, 2, []int{2}, 1, 4}, "HF001"},
		{"one seat taken", holdSeats, []any{sale, 2, []int{1, 2, 3}, 2, 2}, "HF001"},
		{"one seat that is not there", holdSeats, []any{sale, 2, []int{1, 4}, 3, 3}, "HF001"},
		{"a seat twice", holdSeats, []any{sale, 2, []int{1, 1}, 3, 3}, "HF001"},
		{"no seat", holdSeats, []any{sale, 2, []int{}, 3, 3}, "HF001"},
		{"another sale", holdSeats, []any{sale + 1, 2, []int{1}, 3, 3}, "HF001"},
		{"before the first leg", holdSeats, []any{sale, 2, []int{1}, 0, 3}, "HF002"},
		{"past the last leg", holdSeats, []any{sale, 2, []int{1}, 4, 5}, "HF002"},
		{"backwards", holdSeats, []any{sale, 2, []int{1}, 3, 2}, "HF002"},
		{"another's hold let go", letGo, []any{sale, 2, []int{2}, 2, 2}, "HF001"},
		{"another's hold booked", book, []any{sale, 2, []int{2}, 2, 2}, "HF001"},
		{"more legs than held", book, []any{sale, 1, []int{2}, 2, 3}, "HF001"},
		{"a hold without end", `SELECT seat_hold($1, $2, $3, $4, $5, 'infinity', false)`, []any{sale, 2, []int{1}, 1, 1}, "HF002"},
		{"a hold in the past", `SELECT seat_hold($1, $2, $3, $4, $5, now() - interval '1 s', false)`, []any{sale, 2, []int{1}, 1, 1}, "HF002"},
	} {
		if got := w.app(test.sql, test.args...); got != test.want {
			t.Errorf("%s: %q, not %q", test.what, got, test.want)
		}
	}
	for n, want := range map[int]string{1: "ffff", 2: "fhff", 3: "ffff"} {
		if got := w.legs(sale, n); got != want {
			t.Errorf("seat %d is %s, not %s", n, got, want)
		}
	}
}

// A hold that ended is free: another may take it, its own booking may not book.
func TestEndedHoldIsFree(t *testing.T) {
	w := setup(t)
	sale := w.sale(2, 1)
	w.app(holdSeats, sale, 1, []int{1}, 1, 2)
	w.owner(`UPDATE seat SET taken_until = ARRAY[now(), now()] WHERE sale_id = $1`, sale)
	for _, f := range []string{book, letGo, extend} {
		if got := w.app(f, sale, 1, []int{1}, 1, 2); got != "HF001" {
			t.Errorf("%s of an ended hold: %q", f, got)
		}
	}
	if got := w.app(holdSeats, sale, 2, []int{1}, 1, 1); got != "" {
		t.Errorf("holding what is free: %q", got)
	}
}

// The textbook case: Beijing–Tianjin–Jinan–Zibo–Qingdao, seat 12A. Beijing→Jinan
// and Jinan→Qingdao are both sold; Tianjin→Zibo overlaps both.
func TestTextbook(t *testing.T) {
	w := setup(t)
	sale := w.sale(4, 1)
	for booking, legs := range map[int][2]int{1: {1, 2}, 2: {3, 4}} {
		for _, f := range []string{holdSeats, book} {
			if got := w.app(f, sale, booking, []int{1}, legs[0], legs[1]); got != "" {
				t.Fatalf("legs %v: %q", legs, got)
			}
		}
	}
	if got := w.app(holdSeats, sale, 3, []int{1}, 2, 3); got != "HF001" {
		t.Errorf("Tianjin→Zibo: %q", got)
	}
	if got := w.legs(sale, 1); got != "bbbb" {
		t.Errorf("the seat is %s", got)
	}
}

// field case 69: routes longer than a machine word.
func TestFieldCase69(t *testing.T) {
	w := setup(t)
	for _, stops := range []int{71, 85, 101} {
		legs := stops - 1
		sale := w.sale(legs, 1)
		for booking, leg := range map[int]int{1: 1, 2: legs} {
			for _, f := range []string{holdSeats, book} {
				if got := w.app(f, sale, booking, []int{1}, leg, leg); got != "" {
					t.Fatalf("%d stops, leg %d: %q", stops, leg, got)
				}
			}
		}
		if got, want := w.legs(sale, 1), "b"+strings.Repeat("f", legs-2)+"b"; got != want {
			t.Errorf("%d stops: %s", stops, got)
		}
		if got := w.app(holdSeats, sale, 3, []int{1}, 1, legs); got != "HF001" {
			t.Errorf("%d stops, the whole route: %q", stops, got)
		}
		if got := w.app(holdSeats, sale, 4, []int{1}, 2, legs-1); got != "" {
			t.Errorf("%d stops, all between: %q", stops, got)
		}
	}
}

// field case 5, at the seats themselves: two that name the same seats in opposite
// orders never deadlock, whatever plan the server has.
func TestFieldCase5(t *testing.T) {
	w := setup(t)
	for _, plan := range []string{"any", "no index scans"} {
		if plan != "any" {
			w.owner(`DO $$ DECLARE f regprocedure; BEGIN
				FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'seat\_%' AND prosecdef LOOP
					EXECUTE 'ALTER FUNCTION ' || f || ' SET enable_seqscan = on SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off';
				END LOOP; END $$`)
			w.db.App.Reset()
		}
		sale := w.sale(2, 40)
		before := scan[int64](w, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'seat'`)
		var wg sync.WaitGroup
		for i, order := range [][]int{{1, 2, 39}, {39, 2, 1}, {2, 39, 1}, {39, 1, 2}} {
			wg.Go(func() {
				for range 100 {
					s := w.app(holdSeats, sale, i+1, order, 1, 2)
					if s == "" {
						s = w.app(letGo, sale, i+1, order, 1, 2)
					}
					if s != "" && s != "HF001" {
						t.Errorf("%s: SQLSTATE %s", plan, s)
					}
				}
			})
		}
		wg.Wait()
		if plan != "any" {
			w.db.App.Reset() // ends the backends, which then tell their counts
			waitFor(t, func() bool {
				return scan[int64](w, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'seat'`) > before+400
			})
		}
	}
}

// The strip against a slow model: any moves, in any order, by several bookings.
func TestStripAgainstTheModel(t *testing.T) {
	w := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		legs := rapid.SampledFrom([]int{1, 3, 6}).Draw(rt, "legs")
		sale := w.sale(legs, 3)
		type leg struct {
			state byte
			by    int
		}
		model := [3][]leg{}
		for i := range model {
			for range legs {
				model[i] = append(model[i], leg{'f', 0})
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "moves") {
			function := rapid.SampledFrom([]string{holdSeats, holdSeats, book, letGo, freeSeats, extend}).Draw(rt, "function")
			booking := rapid.IntRange(1, 3).Draw(rt, "booking")
			seats := rapid.SliceOfNDistinct(rapid.IntRange(1, 3), 1, 3, rapid.ID[int]).Draw(rt, "seats")
			f := rapid.IntRange(1, legs).Draw(rt, "f")
			to := rapid.IntRange(f, legs).Draw(rt, "t")
			need, becomes := map[string]byte{holdSeats: 'f', book: 'h', letGo: 'h', freeSeats: 'b', extend: 'h'}[function],
				map[string]byte{holdSeats: 'h', book: 'b', letGo: 'f', freeSeats: 'f', extend: 'h'}[function]
			ok := true
			for _, s := range seats {
				for _, l := range model[s-1][f-1 : to] {
					ok = ok && l.state == need && (need == 'f' || l.by == booking)
				}
			}
			got := w.app(function, sale, booking, seats, f, to)
			// What was booked in two parts is freed in two parts: the last guard's
			// rows say how it was booked.
			if ok && function == freeSeats && got == "HF001" {
				continue
			}
			if (got == "") != ok {
				rt.Fatalf("%s by %d of %v on %d..%d: %q, the model says %t", function, booking, seats, f, to, got, ok)
			}
			if ok {
				for _, s := range seats {
					for i := f - 1; i < to; i++ {
						model[s-1][i] = leg{becomes, booking}
					}
				}
			}
		}
		for i := range model {
			want := ""
			for _, l := range model[i] {
				want += string(l.state)
			}
			if got := w.legs(sale, i+1); got != want {
				rt.Fatalf("seat %d is %s, the model says %s", i+1, got, want)
			}
		}
		if n := scan[int](w, `SELECT count(*) FROM seat s, generate_series(1, s.legs) leg WHERE s.sale_id = $1
			AND (s.taken_until[leg] = 'infinity') <> EXISTS (SELECT 1 FROM booked_seat b WHERE b.sale_id = s.sale_id AND b.seat = s.number
				AND b.legs @> leg AND b.booking = s.taken_by[leg])`, sale); n != 0 {
			rt.Fatal("booked_seat and seat disagree")
		}
	})
}

// What standby has not been offered is not for the open sale; a hold, its end and
// a release leave the marks that say so.
func TestStandbyFirst(t *testing.T) {
	w := setup(t)
	sale := w.sale(2, 1)
	const openSale = `SELECT seat_hold($1, $2, $3, $4, $5, clock_timestamp() + interval '1 hour', true)`
	args := []any{sale, 1, []int{1}, 1, 2}
	if got := w.app(openSale, args...); got != "" {
		t.Fatalf("a seat without a past: %q", got)
	}
	w.app(letGo, args...)
	if got := w.app(openSale, args...); got != "HF001" {
		t.Errorf("a seat let go and not considered: %q", got)
	}
	if got := w.app(`SELECT seat_considered($1, $2)`, sale, []int{1}); got != "" {
		t.Fatal(got)
	}
	if got := w.app(openSale, args...); got != "" {
		t.Errorf("a seat that was passed by: %q", got)
	}
	w.app(book, args...)
	w.app(freeSeats, args...)
	if got := w.app(openSale, args...); got != "HF001" {
		t.Errorf("a seat freed and not considered: %q", got)
	}
	if got := w.app(holdSeats, args...); got != "" {
		t.Errorf("for standby: %q", got)
	}
	w.owner(`UPDATE seat SET taken_until = ARRAY[clock_timestamp(), clock_timestamp()] WHERE sale_id = $1`, sale)
	if got := w.app(openSale, args...); got != "HF001" {
		t.Errorf("a hold that ended and was not considered: %q", got)
	}
	w.owner(`SELECT seat_create($1, 'second', 2, '{2}', true)`, sale)
	if got := w.app(openSale, sale, 2, []int{2}, 1, 2); got != "HF001" {
		t.Errorf("a seat added later and not considered: %q", got)
	}
	if n := scan[int](w, `SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = 'EXTRA_SEAT' AND seat = 2`, sale); n != 1 {
		t.Errorf("%d releases of an added seat", n)
	}
}

func TestMovesOfOthersWait(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 1)
	tx, err := w.db.App.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(w.ctx, holdSeats, sale, 1, []int{1}, 1, 1); err != nil {
		t.Fatal(err)
	}
	second := make(chan string)
	go func() { second <- w.app(holdSeats, sale, 2, []int{1}, 1, 1) }()
	waitFor(t, func() bool {
		return scan[int](w, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	if err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-second; got != "HF001" {
		t.Errorf("the second hold: %q", got)
	}
	if by := scan[string](w, `SELECT taken_by::text FROM seat WHERE sale_id = $1`, sale); by != "{1}" {
		t.Errorf("the seat is %s's", fmt.Sprint(by))
	}
}
