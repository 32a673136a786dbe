package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
)

func TestCreate(t *testing.T) {
	w := setup(t)
	s := w.create(w.train())
	if s.State != catalog.Open || s.Legs != 4 || len(s.Places) != 8 || s.Org != org || s.HoldSeconds != 300 || s.AccountLimit != 6 || s.Version != 1 {
		t.Errorf("loaded %+v", s)
	}
	if n, ok := s.SeatNumber("2-1B"); !ok || n != 4 || s.SeatName(4) != "2-1B" || s.Places[3].Class != "second" {
		t.Errorf("seat 2-1B is number %d", n)
	}
	if !s.Places[0].HasAttribute(catalog.Window) || len(s.Places[1].Attributes) != 0 {
		t.Errorf("attributes %v %v", s.Places[0].Attributes, s.Places[1].Attributes)
	}
	f, to, err := s.Interval("Tianjin", "Zibo")
	if err != nil || f != 2 || to != 3 {
		t.Errorf("legs %d to %d, %v", f, to, err)
	}
	if p, err := s.Price("first", 2, 3); err != nil || p.Amount != 500 || p.Currency != "CNY" {
		t.Errorf("per leg: %v %v", p, err)
	}
	if p, err := s.Price("second", 2, 3); err != nil || p.Amount != 50+2500 {
		t.Errorf("distance: %v %v", p, err)
	}
	if n := w.count(`SELECT count(*) FROM seat WHERE sale_id = $1 AND taken_until = array_fill('-infinity'::timestamptz, ARRAY[4]) AND considered_at = '-infinity'`, s.ID); n != 8 {
		t.Errorf("%d seats are new and free", n)
	}
	if n := w.count(`SELECT count(*) FROM seat_release`); n != 0 {
		t.Errorf("%d releases of a new sale", n)
	}
}

// A refused document leaves nothing behind.
func TestNoHalfSale(t *testing.T) {
	w := setup(t)
	for field, change := range map[string]func(*catalog.Document){
		"stops[1].id":              func(d *catalog.Document) { d.Stops[1].ID = "Beijing" },
		"stops[2].arrives":         func(d *catalog.Document) { at := d.Stops[0].Departs.Add(-time.Hour); d.Stops[2].Arrives = &at },
		"stops[3].km":              func(d *catalog.Document) { d.Stops[3].Km = 1 },
		"stops[3].timezone":        func(d *catalog.Document) { d.Stops[3].Timezone = "Mars/Olympus" },
		"stops[0].departs":         func(d *catalog.Document) { clearTimes(d) },
		"classes[0].fare.amounts":  func(d *catalog.Document) { d.Classes[0].Fare.Amounts = []int64{1} },
		"classes[1].fare.per_km":   func(d *catalog.Document) { d.Classes[1].Fare.PerKm = -1 },
		"classes[1].class":         func(d *catalog.Document) { d.Classes[1].ID = "first" },
		"coaches[1].class":         func(d *catalog.Document) { d.Coaches[1].Class = "third" },
		"coaches[1].seats[1].seat": func(d *catalog.Document) { d.Coaches[1].Seats[1].Seat = "1A" },
		"coaches[0].seats[0].attributes": func(d *catalog.Document) {
			d.Coaches[0].Seats[0].Attributes = []string{"jacuzzi"}
		},
		"currency":      func(d *catalog.Document) { d.Currency = "XYZ" },
		"gateways":      func(d *catalog.Document) { d.Test = false },
		"booking_limit": func(d *catalog.Document) { n := 0; d.BookingLimit = &n },
		"account_limit": func(d *catalog.Document) { n := 2; d.AccountLimit = &n },
		"title":         func(d *catalog.Document) { d.Title = "a\u0007b" },
		"service_date":  func(d *catalog.Document) { d.ServiceDate = "2026-02-30" },
		"closes_at":     func(d *catalog.Document) { at := d.Stops[4].Arrives.Add(time.Hour); d.ClosesAt = &at },
		"room.mode": func(d *catalog.Document) {
			m := "auto"
			d.Room = &catalog.RoomWish{RoomSettings: catalog.RoomSettings{Mode: &m}}
		},
	} {
		w.refused(problem.Unprocessable, field, w.body(w.train(change)))
	}
	if n := w.count(`SELECT (SELECT count(*) FROM sale) + (SELECT count(*) FROM class) + (SELECT count(*) FROM seat) + (SELECT count(*) FROM seat_place)`); n != 0 {
		t.Errorf("%d rows of refused sales", n)
	}
}

func clearTimes(d *catalog.Document) {
	for i := range d.Stops {
		d.Stops[i].Arrives, d.Stops[i].Departs = nil, nil
	}
}

func TestKeys(t *testing.T) {
	w := setup(t)
	who := catalog.Caller{Account: "anna", Org: org, Key: "one"}
	body := w.body(w.train())
	first, err := w.send(who, body)
	if err != nil || first.Status != 201 || first.Replay {
		t.Fatalf("%+v %v", first, err)
	}
	again, err := w.send(who, body)
	if err != nil || again.Status != 201 || !again.Replay || saleOf(t, again.Body) != saleOf(t, first.Body) {
		t.Errorf("again %d replay %v, %v", again.Status, again.Replay, err)
	}
	_, err = w.send(who, w.body(w.train(func(d *catalog.Document) { d.Number = "G13" })))
	if !problem.Is(err, problem.IdempotencyMismatch) {
		t.Errorf("same key, another body: %v", err)
	}
	if n := w.count(`SELECT count(*) FROM sale`); n != 1 {
		t.Errorf("%d sales", n)
	}
	// A change of a sale, and a refusal of one, come again as they were.
	id := saleOf(t, first.Body)
	block := fmt.Sprintf(`{"sale":%q,"block":{"seats":["1-1A"],"reason":"crew"}}`, id)
	for i := range 2 {
		a, err := w.send(catalog.Caller{Account: "anna", Org: org, Key: "two"}, block)
		if err != nil || a.Replay != (i == 1) {
			t.Errorf("block %d: %+v %v", i, a, err)
		}
	}
	for i := range 2 {
		_, err := w.send(catalog.Caller{Account: "anna", Org: org, Key: "three"}, block)
		var p *problem.Error
		if !errors.As(err, &p) || p.Code != problem.SeatTaken || p.Replay != (i == 1) {
			t.Errorf("blocked twice, %d: %v", i, err)
		}
	}
	// Many at once: one sale.
	var wg sync.WaitGroup
	body = w.body(w.train())
	for range 8 {
		wg.Go(func() {
			_, err := w.send(catalog.Caller{Account: "anna", Org: org, Key: "four"}, body)
			if err != nil && !problem.Is(err, problem.InProgress) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.count(`SELECT count(*) FROM sale`); n != 2 {
		t.Errorf("%d sales after eight at once", n)
	}
}

func saleOf(t *testing.T, body json.RawMessage) string {
	t.Helper()
	var v struct{ Sale string }
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v.Sale
}

// A request that died half way is taken up: the same room, the same sale, and
// until then nobody can see it.
func TestTakenUp(t *testing.T) {
	w := setup(t)
	who := catalog.Caller{Account: "anna", Org: org, Key: "one"}
	body := w.body(w.train(func(d *catalog.Document) { d.Room = &catalog.RoomWish{} }))
	w.rooms.fail = errors.New("the process died")
	if _, err := w.send(who, body); err == nil {
		t.Fatal("did not fail")
	}
	if n := w.count(`SELECT count(*) FROM sale WHERE state <> 'draft'`); n != 0 {
		t.Error("a sale without its room is open")
	}
	a, err := w.send(who, body)
	if err != nil || a.Status != 201 || a.Replay {
		t.Fatalf("%+v %v", a, err)
	}
	s := w.load(saleOf(t, a.Body))
	if len(w.rooms.made) != 1 || s.Room != 1 || s.State != catalog.Open || w.count(`SELECT count(*) FROM sale`) != 1 {
		t.Errorf("%d rooms, sale %+v", len(w.rooms.made), s)
	}
}

// All moves of a sale are tried: those of the picture in state.go pass.
func TestMoves(t *testing.T) {
	w := setup(t)
	legal := "draft>open draft>cancelled open>paused open>closed open>cancelled paused>open paused>closed paused>cancelled closed>cancelled"
	for _, from := range catalog.States {
		for _, to := range catalog.States {
			s := w.create(w.train())
			if _, err := w.db.Owner.Exec(w.ctx, `UPDATE sale SET state = $2 WHERE sale_id = $1`, s.ID, from); err != nil {
				t.Fatal(err)
			}
			w.reader.Forget(s.ID)
			body := fmt.Sprintf(`{"sale":"%d","patch":{"state":%q}}`, s.ID, to)
			want := from == to || strings.Contains(" "+legal+" ", " "+string(from)+">"+string(to)+" ")
			if !want {
				w.refused(problem.WrongState, "", body)
				continue
			}
			if got := w.must(body)["state"]; got != string(to) {
				t.Errorf("%s to %s: is %v", from, to, got)
			}
			if w.load(fmt.Sprint(s.ID)).State != to {
				t.Errorf("%s to %s is not seen at once", from, to)
			}
		}
	}
}

func TestPatch(t *testing.T) {
	w := setup(t)
	s := w.create(w.train(func(d *catalog.Document) { d.Room = &catalog.RoomWish{} }))
	id := s.IDString()
	closes := s.DepartsAt.Add(-time.Hour).UTC().Format(time.RFC3339)
	w.must(fmt.Sprintf(`{"sale":%q,"patch":{"closes_at":%q,"booking_limit":4,"admit_per_second":250}}`, id, closes))
	if got := w.load(id); got.BookingLimit != 4 || got.ClosesAt.UTC().Format(time.RFC3339) != closes {
		t.Errorf("%+v", got)
	}
	if len(w.rooms.patched) != 1 || *w.rooms.patched[0].AdmitPerSecond != 250 {
		t.Errorf("room: %+v", w.rooms.patched)
	}
	w.refused(problem.Unprocessable, "patch.closes_at", fmt.Sprintf(`{"sale":%q,"patch":{"closes_at":"2020-01-01T00:00:00Z"}}`, id))
	w.refused(problem.Unprocessable, "patch.hold_seconds", fmt.Sprintf(`{"sale":%q,"patch":{"hold_seconds":0}}`, id))
	w.refused(problem.Unprocessable, "patch.admit_per_second", fmt.Sprintf(`{"sale":%q,"patch":{"admit_per_second":0}}`, id))
	w.refused(problem.BadRequest, "patch.colour", fmt.Sprintf(`{"sale":%q,"patch":{"colour":"red"}}`, id))
	w.refused(problem.BadRequest, "patch.hold_seconds", fmt.Sprintf(`{"sale":%q,"patch":{"hold_seconds":"long"}}`, id))
	bare := w.create(w.train())
	w.refused(problem.Unprocessable, "patch.room", fmt.Sprintf(`{"sale":"%d","patch":{"admit_per_second":5}}`, bare.ID))
	w.must(fmt.Sprintf(`{"room":"%d","patch":{"paused":true}}`, s.Room))
	w.must(fmt.Sprintf(`{"room":"%d","reset":true}`, s.Room))
	if w.rooms.resets != 1 || len(w.rooms.patched) != 2 || !*w.rooms.patched[1].Paused {
		t.Errorf("%d resets, %+v", w.rooms.resets, w.rooms.patched)
	}
	w.must(fmt.Sprintf(`{"sale":%q,"cancel":true}`, id))
	w.must(fmt.Sprintf(`{"sale":%q,"cancel":true}`, id))
	if n := w.count(`SELECT count(*) FROM outbox WHERE sale_id = $1 AND kind = $2`, s.ID, catalog.CancelledKind); n != 1 {
		t.Errorf("%d rows tell of the cancelled sale", n)
	}
}

// Only its own organisation changes a sale or its room.
func TestOtherOrganisation(t *testing.T) {
	w := setup(t)
	s := w.create(w.train(func(d *catalog.Document) { d.Room = &catalog.RoomWish{} }))
	other := func(body string) {
		t.Helper()
		_, err := w.postAs(catalog.Caller{Account: "anna", Org: "circus", Key: fmt.Sprint(w.keys.Add(1))}, body)
		if !problem.Is(err, problem.NotFound) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{
		`{"sale":"%d","patch":{"state":"closed"}}`, `{"sale":"%d","cancel":true}`, `{"sale":"%d","block":{"seats":["1-1A"]}}`,
		`{"sale":"%d","unblock":{"seats":["1-1A"]}}`, `{"sale":"%d","title":"Mine"}`,
		`{"sale":"%d","add_seats":{"class":"first","coach":"9","seats":[{"seat":"1","row":1,"column":"A"}]}}`,
	} {
		other(fmt.Sprintf(body, s.ID))
	}
	other(fmt.Sprintf(`{"room":"%d","reset":true}`, s.Room))
	other(w.body(w.train(func(d *catalog.Document) { d.Room = &catalog.RoomWish{Room: s.RoomString()} })))
	if got := w.load(s.IDString()); got.State != catalog.Open || w.rooms.resets != 0 {
		t.Errorf("changed: %+v", got)
	}
}

// A GET followed by a POST of the same changes nothing, in either form; what is
// different is changed where it may be, and refused where not.
func TestSentBack(t *testing.T) {
	w := setup(t)
	s := w.create(w.train(func(d *catalog.Document) { d.Room = &catalog.RoomWish{} }))
	before := w.count(`SELECT (xmin::text::bigint)::int FROM sale WHERE sale_id = $1`, s.ID)
	left := 3
	view := s.View(w.ctx, 1, s.Legs, nil)
	view.Classes[0].Left = &left
	b, err := json.Marshal(view)
	if err != nil {
		t.Fatal(err)
	}
	w.must(string(b))
	w.must(`{"sale":` + string(b) + `}`)
	b2, _ := json.Marshal(s.Summary(w.ctx, 2, 3, nil)) // as a list shows it
	w.must(string(b2))
	if got := w.count(`SELECT (xmin::text::bigint)::int FROM sale WHERE sale_id = $1`, s.ID); got != before {
		t.Error("the row was written")
	}
	if w.count(`SELECT count(*) FROM sale`) != 1 || len(w.rooms.patched) != 0 {
		t.Error("something else was changed")
	}
	w.must(strings.Replace(string(b), `"booking_limit":6`, `"booking_limit":5`, 1))
	if w.load(s.IDString()).BookingLimit != 5 {
		t.Error("what was changed in it is not")
	}
	for field, change := range map[string][2]string{
		"stops":    {`"name":"Jinan"`, `"name":"Ji'nan"`},
		"layout":   {`"seat":"1A"`, `"seat":"9A"`},
		"currency": {`"currency":"CNY","opens_at"`, `"currency":"EUR","opens_at"`},
		"classes":  {`"title":"First"`, `"title":"Best"`},
		"test":     {`"test":true`, `"test":false`},
	} {
		w.refused(problem.Unprocessable, field, strings.Replace(string(b), change[0], change[1], 1))
	}
}

func TestExtraSeats(t *testing.T) {
	w := setup(t)
	s := w.create(w.train())
	w.must(fmt.Sprintf(`{"sale":"%d","add_seats":{"class":"second","coach":"3","seats":[{"seat":"1A","row":1,"column":"A"},{"seat":"1B","row":1,"column":"B"}]}}`, s.ID))
	got := w.load(s.IDString())
	if len(got.Places) != 10 || got.SeatName(9) != "3-1A" || got.Places[9].Class != "second" || got.Version != 2 {
		t.Fatalf("%d places, version %d", len(got.Places), got.Version)
	}
	if n := w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = 'EXTRA_SEAT' AND seat IN (9, 10) AND leg_from = 1 AND leg_to = 4`, s.ID); n != 2 {
		t.Errorf("%d EXTRA_SEAT releases", n)
	}
	if n := w.count(`SELECT count(*) FROM seat WHERE sale_id = $1 AND number IN (9, 10) AND considered_at = '-infinity' AND taken_until[1] > now() - interval '1 minute' AND taken_until[1] <= now()`, s.ID); n != 2 {
		t.Errorf("%d seats came free just now", n)
	}
	if !slices.Equal(w.released, []int{2}) {
		t.Errorf("after the commit %v releases were to be told", w.released)
	}
	for field, body := range map[string]string{
		"add_seats.seats[0].seat": `{"class":"second","coach":"3","seats":[{"seat":"1A","row":1,"column":"A"}]}`,
		"add_seats.class":         `{"class":"third","coach":"4","seats":[{"seat":"1A","row":1,"column":"A"}]}`,
		"add_seats.seats":         `{"class":"second","coach":"4","seats":[]}`,
	} {
		w.refused(problem.Unprocessable, field, fmt.Sprintf(`{"sale":"%d","add_seats":%s}`, s.ID, body))
	}
}

func TestBlock(t *testing.T) {
	w := setup(t)
	s := w.create(w.train())
	taken := func() int {
		return w.count(`SELECT count(*) FROM seat WHERE sale_id = $1 AND taken_until[2] > now() AND taken_until[3] > now() AND taken_until[1] < now()`, s.ID)
	}
	post := func(what, seats string) string {
		return fmt.Sprintf(`{"sale":"%d",%q:{"seats":%s,"from":"Tianjin","to":"Zibo","reason":"broken"}}`, s.ID, what, seats)
	}
	w.must(post("block", `["2-1A","2-1B"]`))
	if taken() != 2 || w.count(`SELECT count(*) FROM booking WHERE sale_id = $1 AND account = 'house' AND origin = 'house' AND state = 'held'`, s.ID) != 2 {
		t.Errorf("%d are taken", taken())
	}
	w.refused(problem.SeatTaken, "", post("block", `["2-2A","2-1A"]`))
	if taken() != 2 {
		t.Error("a part was blocked")
	}
	w.refused(problem.WrongState, "", post("unblock", `["2-1A","2-2A"]`))
	if taken() != 2 {
		t.Error("a part was unblocked")
	}
	w.must(post("unblock", `["2-1A","2-1B"]`))
	if taken() != 0 || w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND event_type = 'EXTRA_SEAT'`, s.ID) != 2 {
		t.Errorf("%d are still taken", taken())
	}
	if n := len(w.released); n == 0 || w.released[n-1] != 2 {
		t.Errorf("after the commit %v releases were to be told", w.released)
	}
	w.refused(problem.Unprocessable, "block.seats[0]", post("block", `["9-9Z"]`))
	w.refused(problem.Unprocessable, "block.seats", post("block", `[]`))
}

func TestOneThing(t *testing.T) {
	w := setup(t)
	s := w.create(w.train())
	for _, body := range []string{
		`{}`, fmt.Sprintf(`{"sale":"%d","cancel":true,"patch":{}}`, s.ID), `{"room":"1"}`, `{"cancel":true}`,
		`{"title":"x"}`, fmt.Sprintf(`{"sale":"%d","title":"x","cancel":true}`, s.ID), fmt.Sprintf(`{"sale":"%d","reset":true}`, s.ID),
	} {
		w.refused(problem.BadRequest, "", body)
	}
	w.refused(problem.NotFound, "", `{"sale":"999999","cancel":true}`)
	w.refused(problem.Unprocessable, "sale", `{"sale":"x1","cancel":true}`)
}
