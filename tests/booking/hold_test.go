package booking_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/problem"
	"handler/function/shared/seat"
	"handler/function/shared/store"
)

// bookIt is the part of confirm that moves a held booking to booked.
const bookIt = `WITH b AS (UPDATE booking SET state = 'booked' WHERE sale_id = $1 AND number = $2 AND state = 'held' RETURNING seats, leg_from, leg_to)
	SELECT seat_book($1, $2, seats, leg_from, leg_to) FROM b`

// field case 1: one seat, fifty who hold and confirm.
func TestFieldCase1(t *testing.T) {
	w := setup(t)
	for _, named := range []bool{false, true} {
		sale := w.sale(1, 1, "")
		got := together(50, func(i int) string {
			wish := w.wish(sale, fmt.Sprint("a", i), 1)
			if named {
				wish = w.wish(sale, fmt.Sprint("a", i), 0, "1-1")
			}
			h, err := w.books.Hold(w.ctx, sale, wish)
			if err != nil {
				return string(problem.From(err).Code)
			}
			if _, err := w.db.App.Exec(w.ctx, bookIt, sale.ID, h.Number); err != nil {
				return err.Error()
			}
			return "booked"
		})
		if got["booked"] != 1 || got["sold-out"]+got["seat-taken"] != 49 {
			t.Errorf("named %t: %v", named, got)
		}
		w.check(sale)
	}
}

// field case 2: ten seats, two hundred buyers in one second.
func TestFieldCase2(t *testing.T) {
	w := setup(t)
	sale := w.sale(3, 10, "")
	got := together(200, func(i int) string { return w.try(sale, w.wish(sale, fmt.Sprint("a", i), 1)) })
	if got["held"] != 10 || got["sold-out"] != 190 {
		t.Errorf("%v", got)
	}
	w.check(sale)
}

// field case 3: two left, two holds of two at once.
func TestFieldCase3(t *testing.T) {
	w := setup(t)
	for range 20 {
		sale := w.sale(1, 2, "")
		if got := together(2, func(i int) string { return w.try(sale, w.wish(sale, fmt.Sprint("a", i), 2)) }); got["held"] != 1 || got["sold-out"] != 1 {
			t.Errorf("%v", got)
		}
		w.check(sale)
	}
}

// field case 4: hold all, let the holds end, five times: all free each time.
func TestFieldCase4(t *testing.T) {
	w := setup(t)
	sale := w.sale(2, 12, "")
	for round := range 5 {
		for i := range 2 {
			w.must(sale, w.wish(sale, fmt.Sprint("a", i), 6))
		}
		if got := w.try(sale, w.wish(sale, "late", 1)); got != "sold-out" {
			t.Fatalf("round %d: %s with all held", round, got)
		}
		w.check(sale)
		w.end(sale)
	}
	// The tick's part: what ended becomes expired, and is a release once.
	if n := scan[int](w, `SELECT expire_ended_holds($1, 100)`, sale.ID); n != 2 {
		t.Errorf("%d holds expired", n)
	}
	if n := scan[int](w, `SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = 'TIMEOUT'`, sale.ID); n != 5*12 {
		t.Errorf("%d releases", n)
	}
	if n := scan[int](w, `SELECT sum(live_seats) FROM account_sale WHERE sale_id = $1`, sale.ID); n != 0 {
		t.Errorf("%d seats still count", n)
	}
	w.check(sale)
}

// field case 5: A holds [1,2], B holds [2,1], a hundred times: no deadlock, no 500.
func TestFieldCase5(t *testing.T) {
	w := setup(t)
	for _, plan := range []string{"any", "no index scans"} {
		if plan != "any" {
			w.owner(`DO $$ DECLARE f regprocedure; BEGIN
				FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND (proname LIKE 'seat\_%' AND prosecdef OR proname = 'hold_seats') LOOP
					EXECUTE 'ALTER FUNCTION ' || f || ' SET enable_seqscan = on SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off';
				END LOOP; END $$`)
			w.db.App.Reset()
		}
		for range 25 {
			sale := w.sale(1, 2, "")
			got := together(4, func(i int) string {
				seats := []string{"1-1", "1-2"}
				if i%2 == 1 {
					slices.Reverse(seats)
				}
				return w.try(sale, w.wish(sale, fmt.Sprint("a", i), 0, seats...))
			})
			if got["held"] != 1 || got["seat-taken"] != 3 {
				t.Errorf("%s: %v", plan, got)
			}
		}
	}
	if n := scan[int64](w, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// field case 8: the same seats again are the same hold.
func TestFieldCase8(t *testing.T) {
	w := setup(t)
	sale := w.sale(2, 4, "")
	first := w.must(sale, w.wish(sale, "a", 0, "1-2", "1-1"))
	again := w.must(sale, w.wish(sale, "a", 0, "1-1", "1-2"))
	if !again.Again || again.ID != first.ID || again.Replay || !again.EndsAt.Equal(first.EndsAt) || again.Price != first.Price {
		t.Errorf("%+v and then %+v", first, again)
	}
	if got := w.try(sale, w.wish(sale, "b", 0, "1-1")); got != "seat-taken" {
		t.Errorf("another's: %s", got)
	}
	part := w.wish(sale, "a", 0, "1-1", "1-2")
	part.To = "1"
	if got := w.try(sale, part); got != "seat-taken" {
		t.Errorf("the same seats, other legs: %s", got)
	}
	w.check(sale)
}

// field case 45: names change also when nothing is left, until the booking ends.
func TestFieldCase45(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 1, "")
	wish := w.wish(sale, "a", 1)
	wish.Passengers = []booking.Passenger{{Name: "张伟"}}
	h := w.must(sale, wish)
	rename := booking.Rename{Account: "a", Booking: h.ID, Passengers: []booking.Passenger{{Name: "विजय कुमार", Category: "adult"}}, Key: "n1", Hash: []byte("1")}
	v, again, err := w.books.Rename(w.ctx, rename)
	if err != nil || again || len(v.Passengers) != 1 || v.Passengers[0].Name != "विजय कुमार" || v.State != booking.Held {
		t.Fatalf("%+v %t %v", v, again, err)
	}
	v2, again, err := w.books.Rename(w.ctx, rename)
	if err != nil || !again || v2.Booking != v.Booking || v2.Passengers[0] != v.Passengers[0] {
		t.Errorf("again: %+v %t %v", v2, again, err)
	}
	for name, test := range map[string]struct {
		change func(r *booking.Rename)
		want   problem.Code
	}{
		"another's booking": {func(r *booking.Rename) { r.Account = "b" }, problem.NotFound},
		"no booking":        {func(r *booking.Rename) { r.Booking = "B123" }, problem.NotFound},
		"too many":          {func(r *booking.Rename) { r.Passengers = append(r.Passengers, booking.Passenger{Name: "x"}) }, problem.Unprocessable},
		"nobody":            {func(r *booking.Rename) { r.Passengers = nil }, problem.Unprocessable},
		"no name":           {func(r *booking.Rename) { r.Passengers = []booking.Passenger{{Name: " "}} }, problem.Unprocessable},
		"a long name":       {func(r *booking.Rename) { r.Passengers = []booking.Passenger{{Name: strings.Repeat("名", 201)}} }, problem.Unprocessable},
		"another body":      {func(r *booking.Rename) { r.Key, r.Hash = "n1", []byte("2") }, problem.IdempotencyMismatch},
		"a key of a hold":   {func(r *booking.Rename) { r.Key = wish.Key }, problem.IdempotencyMismatch},
	} {
		r := rename
		r.Key, r.Hash = "n-"+name, []byte(name)
		test.change(&r)
		if _, _, err := w.books.Rename(w.ctx, r); !problem.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	reused := w.wish(sale, "a", 1)
	reused.Key = "n1"
	if got := w.try(sale, reused); got != "idempotency-mismatch" {
		t.Errorf("a hold with the key of a rename: %s", got)
	}
	w.end(sale)
	rename.Key = "n3"
	if _, _, err := w.books.Rename(w.ctx, rename); !problem.Is(err, problem.HoldEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// field case 46: limit 2 an account, parallel orders of one: two in all.
func TestFieldCase46(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 20, "account_limit = 2, booking_limit = 2")
	for _, account := range []string{"new", "known"} {
		if account == "known" {
			w.owner(`INSERT INTO account_sale VALUES ($1, 'known', 0, 2)`, sale.ID)
		}
		got := together(10, func(int) string { return w.try(sale, w.wish(sale, account, 1)) })
		if got["held"] != 2 || got["limit-reached"] != 8 {
			t.Errorf("%s: %v", account, got)
		}
	}
	if got := w.try(sale, w.wish(sale, "other", 3)); got != "limit-reached" {
		t.Errorf("three at once: %s", got)
	}
	w.check(sale)
}

// 36 seats, 16 parallel holds of any six, thirty rounds: always six winners.
func TestSixWinners(t *testing.T) {
	w := setup(t)
	for round := range 30 {
		sale := w.sale(1+round%3, 36, "")
		got := together(16, func(i int) string { return w.try(sale, w.wish(sale, fmt.Sprint("a", i), 6)) })
		if got["held"] != 6 || got["sold-out"] != 10 {
			t.Errorf("round %d: %v", round, got)
		}
		w.check(sale)
	}
	if n := scan[int64](w, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// field case 69, and the textbook case, through the service.
func TestIntervals(t *testing.T) {
	w := setup(t)
	for _, legs := range []int{4, 70, 84} {
		sale := w.sale(legs, 1, "")
		hold := func(account string, from, to int) string {
			wish := w.wish(sale, account, 1)
			wish.From, wish.To = fmt.Sprint(from), fmt.Sprint(to)
			return w.try(sale, wish)
		}
		got := []string{hold("a", 0, 1), hold("b", legs-1, legs), hold("c", 0, legs), hold("d", 1, legs-1), hold("e", 1, 2)}
		if want := []string{"held", "held", "sold-out", "held", "sold-out"}; !slices.Equal(got, want) {
			t.Errorf("%d legs: %v", legs, got)
		}
		w.check(sale)
	}
}

func TestKeys(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 4, "")
	wish := w.wish(sale, "a", 2)
	first := w.must(sale, wish)
	again := w.must(sale, wish)
	if first.Replay || !again.Replay || again.ID != first.ID || !slices.Equal(again.Seats, first.Seats) || !again.ReadAt.After(first.ReadAt) {
		t.Errorf("%+v and then %+v", first, again)
	}
	other := wish
	other.Hash = []byte("another")
	if got := w.try(sale, other); got != "idempotency-mismatch" {
		t.Errorf("another body: %s", got)
	}
	refused := w.wish(sale, "b", 3)
	if got := w.try(sale, refused); got != "sold-out" {
		t.Fatal(got)
	}
	w.end(sale)
	_, err := w.books.Hold(w.ctx, sale, refused)
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != problem.SoldOut || !p.Replay {
		t.Errorf("a refusal again: %v", err)
	}
	// One request sent many times at once has one effect.
	many := w.wish(sale, "c", 1)
	ids := together(12, func(int) string { return w.must(sale, many).ID })
	if len(ids) != 1 {
		t.Errorf("one key, %d bookings", len(ids))
	}
	w.check(sale)
}

// An admission has one live booking a sale, and two holds in all.
func TestAdmissions(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 8, "")
	admitted := func(account string, admission int64) booking.Wish {
		wish := w.wish(sale, account, 1)
		wish.Admission, wish.AdmissionEnds = admission, time.Now().Add(hour)
		return wish
	}
	h := w.must(sale, admitted("a", 1))
	if got := w.try(sale, admitted("a", 1)); got != "limit-reached" {
		t.Errorf("a second booking beside a live one: %s", got)
	}
	letGo := func(number int64, account string) {
		l, err := booking.Release(w.ctx, w.db.App, sale.ID, number, account, "", "")
		if err != nil || l.Code != "released" || l.ReleasedAt.IsZero() {
			t.Fatalf("%+v %v", l, err)
		}
	}
	letGo(h.Number, "a")
	second := w.must(sale, admitted("a", 1))
	if slices.Equal(second.Seats, h.Seats) {
		t.Errorf("%v was given again to who let it go", h.Seats)
	}
	named := admitted("b", 2)
	named.Quantity, named.Seats = 0, h.Seats
	w.must(sale, named) // but to another it is
	letGo(second.Number, "a")
	if got := w.try(sale, admitted("a", 1)); got != "limit-reached" {
		t.Errorf("a third hold: %s", got)
	}
	if got := w.try(sale, w.wish(sale, "a", 0, second.Seats...)); got != "seat-taken" {
		t.Errorf("the seat just let go: %s", got)
	}
	ended := admitted("c", 3)
	ended.AdmissionEnds = time.Now().Add(-time.Second)
	if got := w.try(sale, ended); got != "admit-expired" {
		t.Errorf("an ended admission: %s", got)
	}
	w.check(sale)
}

// The one rule of closing (docs/states.md): what begins before closes_at may be
// paid until its end, never past the limit nor departure.
func TestClosing(t *testing.T) {
	w := setup(t)
	for _, test := range []struct {
		set  string
		want string
	}{
		{"closes_at = now()", "sale-closed"},
		{"state = 'closed'", "sale-closed"},
		{"state = 'cancelled'", "sale-closed"},
		{"state = 'paused'", "paused"},
		{"opens_at = now() + interval '1 h'", "not-open-yet"},
		{"opens_at = now() + interval '1 s'", "not-open-yet"},
		{"state = 'draft'", "not-open-yet"},
		{"departs_at = now() - interval '1 s'", "sale-closed"},
	} {
		sale := w.sale(1, 1, test.set)
		wish := w.wish(sale, "a", 1)
		if got := w.try(sale, wish); got != test.want {
			t.Errorf("%s: %s, not %s", test.set, got, test.want)
		}
		if n := scan[int](w, `SELECT coalesce(sum(live_seats), 0) FROM account_sale WHERE sale_id = $1`, sale.ID); n != 0 {
			t.Errorf("%s: %d seats count", test.set, n)
		}
		if test.want == "not-open-yet" || test.want == "paused" { // "later" is no last word
			w.owner(`UPDATE sale SET state = 'open', opens_at = now() - interval '1 h' WHERE sale_id = $1`, sale.ID)
			w.sales.Forget(sale.ID)
			open, err := w.sales.Sale(w.ctx, sale.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.try(open, wish); got != "held" {
				t.Errorf("%s, then open: %s", test.set, got)
			}
		}
	}
	sale := w.sale(1, 1, "departs_at = now() + interval '100 s', closes_at = now() + interval '10 s'")
	h := w.must(sale, w.wish(sale, "a", 1))
	if h.EndsAt.After(sale.DepartsAt) || h.LimitAt.After(sale.DepartsAt) || !h.EndsAt.After(sale.ClosesAt) {
		t.Errorf("ends %v, limit %v, departs %v", h.EndsAt, h.LimitAt, sale.DepartsAt)
	}
}

func TestRefusalsSayWhich(t *testing.T) {
	w := setup(t)
	sale := w.sale(1, 4, "")
	w.must(sale, w.wish(sale, "a", 0, "1-2"))
	_, err := w.books.Hold(w.ctx, sale, w.wish(sale, "b", 0, "1-1", "1-2"))
	p := problem.From(err)
	if p.Code != problem.SeatTaken || len(p.Fields) != 1 || p.Fields[0].Field != "seats[1]" || !strings.Contains(p.Error(), "1-2") {
		t.Errorf("%v", err)
	}
	for field, change := range map[string]func(x *booking.Wish){
		"class":              func(x *booking.Wish) { x.Class = "first" },
		"from":               func(x *booking.Wish) { x.From = "z" },
		"to":                 func(x *booking.Wish) { x.To = "0" },
		"quantity":           func(x *booking.Wish) { x.Quantity = 0 },
		"seats[0]":           func(x *booking.Wish) { x.Seats = []string{"9-9"} },
		"seats[1]":           func(x *booking.Wish) { x.Quantity, x.Seats = 2, []string{"1-1", "1-1"} },
		"passengers":         func(x *booking.Wish) { x.Passengers = make([]booking.Passenger, 2) },
		"passengers[0].name": func(x *booking.Wish) { x.Passengers = []booking.Passenger{{Name: "a\tb"}} },
		"contact.email":      func(x *booking.Wish) { x.Contact.Email = "nobody" },
		"contact.phone":      func(x *booking.Wish) { x.Contact.Phone = "12" },
		"contact.language":   func(x *booking.Wish) { x.Contact.Language = "!" },
		"group":              func(x *booking.Wish) { x.Group = strings.Repeat("g", 65) },
	} {
		wish := w.wish(sale, "c", 1)
		change(&wish)
		_, err := w.books.Hold(w.ctx, sale, wish)
		if p := problem.From(err); p.Code != problem.Unprocessable || p.Fields[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	// While others wait, what came free is theirs first.
	h := w.must(sale, w.wish(sale, "d", 0, "1-3"))
	if _, err := booking.Release(w.ctx, w.db.App, sale.ID, h.Number, "d", "", ""); err != nil {
		t.Fatal(err)
	}
	w.db.QueueOrder(t, sale.ID, "w", "second", 1, 1, 1)
	if got := w.try(sale, w.wish(sale, "e", 0, "1-3")); got != "standby-first" {
		t.Errorf("named: %s", got)
	}
	if got := w.try(sale, w.wish(sale, "e", 3)); got != "standby-first" {
		t.Errorf("any: %s", got)
	}
	if got := w.try(sale, w.wish(sale, "e", 2)); got != "held" {
		t.Errorf("what never was taken: %s", got)
	}
}

// What was made is read back by id, locator and list, by its owner alone.
func TestRead(t *testing.T) {
	w := setup(t)
	sale := w.sale(3, 6, "")
	wish := w.wish(sale, "a", 2)
	wish.From, wish.Prefer = "1", seat.Prefer{Together: true}
	wish.Passengers = []booking.Passenger{{Name: "Zoë", Document: "X1"}, {Name: "👩‍👧 אבי"}}
	wish.Contact, wish.Group = booking.Contact{Email: "z@example.org", Phone: "+1 (506) 555-0101", Language: "zh-CN"}, "family"
	h := w.must(sale, wish)
	for _, which := range []string{h.ID, h.Locator, strings.ToLower(h.Locator[:4] + "-" + h.Locator[4:])} {
		b, err := w.books.Find(w.ctx, "a", which)
		if err != nil {
			t.Fatal(err)
		}
		if b.ID != h.ID || !slices.Equal(b.Seats, h.Seats) || b.From != "1" || b.To != "3" || b.LegFrom != 2 || b.LegTo != 3 || b.Price.Amount != 2000 ||
			!slices.Equal(b.Passengers, wish.Passengers) || b.Contact.Phone != "+15065550101" || b.Group != "family" || b.State != booking.Held ||
			len(b.History) != 1 || b.History[0].What != "held" || b.TraceID != "test" || !b.EndsAt.Equal(h.EndsAt) {
			t.Errorf("%s: %+v", which, b)
		}
		if _, err := w.books.Find(w.ctx, "b", which); !problem.Is(err, problem.NotFound) {
			t.Errorf("another's: %v", err)
		}
	}
	if _, err := w.db.App.Exec(w.ctx, bookIt, sale.ID, h.Number); err != nil {
		t.Fatal(err)
	}
	other := w.sale(1, 1, "")
	lost := w.must(other, w.wish(other, "a", 1))
	w.end(other)
	list, err := w.books.List(w.ctx, "a")
	if err != nil || len(list) != 2 {
		t.Fatalf("%v %v", list, err)
	}
	states := map[string]booking.State{}
	for _, b := range list {
		states[b.ID] = b.State
	}
	if states[h.ID] != booking.Booked || states[lost.ID] != booking.Expired {
		t.Errorf("%v", states)
	}
	l, err := booking.Cancel(w.ctx, w.db.App, sale.ID, h.Number, "a", "asked to", "")
	if err != nil || l.Code != "cancelled" || len(l.Seats) != 2 {
		t.Errorf("%+v %v", l, err)
	}
	b, err := w.books.Load(w.ctx, sale.ID, h.Number)
	if err != nil || b.State != booking.Cancelled || b.EndedAt.IsZero() || b.History[len(b.History)-1].Why != "asked to" {
		t.Errorf("%+v %v", b, err)
	}
	if l, err = booking.Release(w.ctx, w.db.App, other.ID, lost.Number, "a", "", ""); err != nil || l.Code != "expired" {
		t.Errorf("letting go what has ended: %+v %v", l, err)
	}
	w.check(sale)
	w.check(other)
}

// Every account that holds, lets go and holds again, all at once, leaves the
// counts right.
func TestChurn(t *testing.T) {
	w := setup(t)
	sale := w.sale(3, 16, "")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for round := range 12 {
				wish := w.wish(sale, fmt.Sprint("a", i%5), 1+round%3)
				wish.From, wish.To = fmt.Sprint(round%2), fmt.Sprint(2+round%2)
				h, err := w.books.Hold(w.ctx, sale, wish)
				if err != nil {
					if p := problem.From(err); p.Code.Status() != 409 {
						t.Error(err)
					}
					continue
				}
				switch round % 3 {
				case 0:
					_, err = booking.Release(w.ctx, w.db.App, sale.ID, h.Number, h.Account, "", "")
				case 1:
					_, err = w.db.App.Exec(w.ctx, bookIt, sale.ID, h.Number)
				}
				if err != nil {
					t.Error(store.State(err), err)
				}
			}
		})
	}
	wg.Wait()
	w.check(sale)
}
