package seat

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
)

// made is a sale with one class and its map, from a model's seats.
func made(seats []slowSeat, legs int) *Map {
	d := catalog.Document{Kind: catalog.Train, Title: "T", Timezone: "UTC", Currency: "CAD", State: catalog.Open,
		Classes: []catalog.Class{{ID: "c", Title: "C", Stock: catalog.Numbered, Fare: catalog.Fare{Kind: catalog.PerLeg, Amounts: make([]int64, legs)}}}}
	now := time.Now()
	d.OpensAt, d.ClosesAt = &now, &now
	one := 1
	d.HoldSeconds, d.ExtendSeconds, d.BookingLimit, d.AccountLimit = &one, &one, &one, &one
	for i := range legs + 1 {
		d.Stops = append(d.Stops, catalog.Stop{ID: fmt.Sprint(i), Name: fmt.Sprint(i), Board: catalog.CallYes, Alight: catalog.CallYes})
	}
	for i, s := range seats {
		attributes := []string{}
		for name, has := range map[string]bool{catalog.Window: s.window, catalog.Accessible: s.accessible, catalog.Companion: s.companion} {
			if has {
				attributes = append(attributes, name)
			}
		}
		d.Coaches = append(d.Coaches, catalog.Coach{Coach: s.coach, Class: "c", Seats: []catalog.Seat{{Seat: fmt.Sprint(i + 1), Row: s.row, Attributes: attributes}}})
	}
	m := &Map{sale: d.Sale(), legs: legs, AsOf: now.UTC().Truncate(time.Microsecond)}
	m.sale.ID = 12
	c := &class{id: "c", legs: legs}
	for i, s := range seats {
		c.seats = append(c.seats, int32(i+1))
		for _, leg := range s.legs {
			c.states = append(c.states, State(leg))
		}
	}
	m.classes = []*class{c}
	return m
}

// drawSeats draws seats on legs legs, more free than taken.
func drawSeats(t *rapid.T, legs int) []slowSeat {
	n := rapid.IntRange(1, 14).Draw(t, "seats")
	width := rapid.IntRange(1, 5).Draw(t, "width")
	seats := make([]slowSeat, n)
	for i := range seats {
		s := slowSeat{coach: fmt.Sprint(i / (2 * width)), row: i / width, window: i%width == 0}
		s.accessible = rapid.IntRange(0, 5).Draw(t, "accessible") == 0
		s.companion = !s.accessible && rapid.IntRange(0, 5).Draw(t, "companion") == 0
		for range legs {
			s.legs = append(s.legs, rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "leg"))
		}
		seats[i] = s
	}
	return seats
}

// The counts of a map are those of the slow model, after a journey through Redis
// too.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		legs := rapid.SampledFrom([]int{1, 2, 4, 7, 85}).Draw(t, "legs")
		seats := drawSeats(t, legs)
		m := made(seats, legs)
		f := rapid.IntRange(1, legs).Draw(t, "f")
		to := rapid.IntRange(f, legs).Draw(t, "t")
		m.sale.Stops[f-1].Board = rapid.SampledFrom([]catalog.Call{catalog.CallYes, catalog.CallNo, catalog.CallRequest}).Draw(t, "board")
		again, err := decode(m.sale, m.encode())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*Map{m, again} {
			if got, want := m.Left("c", f, to), slowLeft(seats, f, to); got != want {
				t.Fatalf("Left(%d, %d) = %d, not %d", f, to, got, want)
			}
			sold := func(f, to int) bool { return m.sale.Stops[f-1].Board != catalog.CallNo }
			if got, want := m.LeftAny("c"), slowAny(seats, sold); got != want {
				t.Fatalf("LeftAny = %d, not %d", got, want)
			}
			bits := m.Packed("c", f, to)
			for i, s := range seats {
				worst := 0
				for _, leg := range s.legs[f-1 : to] {
					worst = max(worst, leg%3+leg/3) // 3 reads as 1
				}
				if got := int(bits[i/4] >> (2 * (i % 4)) & 3); got != worst {
					t.Fatalf("seat %d reads %d, not %d", i+1, got, worst)
				}
			}
			if !m.AsOf.Equal(again.AsOf) {
				t.Fatal("the moment changed")
			}
		}
	})
}

// What is chosen costs no more than anything the slow model can propose.
func TestChooseAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		legs := rapid.IntRange(1, 5).Draw(t, "legs")
		seats := drawSeats(t, legs)
		a := slowAsk{f: rapid.IntRange(1, legs).Draw(t, "f"), n: rapid.IntRange(1, 5).Draw(t, "n")}
		a.t = rapid.IntRange(a.f, legs).Draw(t, "t")
		a.together = a.n > 1 && rapid.Bool().Draw(t, "together")
		switch rapid.IntRange(0, 3).Draw(t, "wish") {
		case 1:
			a.window = true
		case 2:
			a.accessible = true
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 0))
		got := made(seats, legs).Choose("c", a.f, a.t, a.n, Prefer{a.together, a.window, a.accessible}, random.IntN, nil)
		best, near, ok := slowBest(seats, a)
		if !ok {
			if got != nil {
				t.Fatalf("chose %v where nothing fits", got)
			}
			return
		}
		if len(got) != a.n || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != a.n {
			t.Fatalf("chose %v for %d", got, a.n)
		}
		set := make([]int, len(got))
		for i, number := range got {
			set[i] = number - 1
			if !slowFree(seats[set[i]], a.f, a.t) {
				t.Fatalf("seat %d is not free", number)
			}
		}
		// How far apart they are is the least that describes them.
		for apart := range 4 {
			c := slowCostOf(seats, set, a, apart)
			if !near { // equals by themselves may leave others alone or not
				c[4], best[4] = 0, 0
			}
			if !best.less(c) {
				return
			}
		}
		t.Fatalf("chose %v at %v, the model has %v", got, slowCostOf(seats, set, a, 0), best)
	})
}

func free(legs int) []int { return make([]int, legs) }

func seatRow(n int, coach string, r, legs int) (seats []slowSeat) {
	for i := range n {
		seats = append(seats, slowSeat{coach: coach, row: r, window: i == 0 || i == n-1, legs: free(legs)})
	}
	return seats
}

func TestChoose(t *testing.T) {
	first := func(int) int { return 0 }
	tests := []struct {
		name   string
		seats  func() []slowSeat
		f, t   int
		n      int
		prefer Prefer
		want   []int // one of which is right where it is the only
	}{
		{"the tightest gap", func() []slowSeat {
			s := seatRow(4, "1", 1, 4)
			s[2].legs[0], s[2].legs[3] = 1, 2
			return s
		}, 2, 3, 1, Prefer{}, []int{3}},
		{"no single seat left alone", func() []slowSeat { return seatRow(3, "1", 1, 1) }, 1, 1, 2, Prefer{Together: true}, []int{1, 2}},
		{"a single seat that is alone goes first", func() []slowSeat {
			s := append(seatRow(4, "1", 1, 1), seatRow(3, "1", 2, 1)...)
			s[5].legs[0] = 1
			return s
		}, 1, 1, 1, Prefer{}, []int{5}},
		{"accessible places last", func() []slowSeat {
			s := seatRow(3, "1", 1, 1)
			s[0].accessible, s[1].companion = true, true
			return s
		}, 1, 1, 1, Prefer{}, []int{3}},
		{"companions beside an accessible place", func() []slowSeat {
			s := append(seatRow(4, "1", 1, 1), seatRow(4, "1", 2, 1)...)
			s[4].accessible, s[5].companion = true, true
			return s
		}, 1, 1, 2, Prefer{Accessible: true}, []int{5, 6}},
		{"together across rows where no row has so many", func() []slowSeat {
			s := append(seatRow(2, "1", 1, 1), append(seatRow(2, "1", 2, 1), seatRow(2, "2", 1, 1)...)...)
			return s
		}, 1, 1, 3, Prefer{Together: true}, []int{1, 2, 3}},
		{"a window", func() []slowSeat { return seatRow(4, "1", 1, 1) }, 1, 1, 1, Prefer{Window: true}, []int{1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := made(test.seats(), len(test.seats()[0].legs))
			if got := m.Choose("c", test.f, test.t, test.n, test.prefer, first, nil); !slices.Equal(got, test.want) {
				t.Errorf("chose %v, not %v", got, test.want)
			}
		})
	}
}

// A crowd that asks the same gets different seats.
func TestChooseSpreads(t *testing.T) {
	m := made(seatRow(100, "1", 1, 1), 1)
	seen := map[string]bool{}
	for range 100 {
		seen[fmt.Sprint(m.Choose("c", 1, 1, 1, Prefer{}, rand.IntN, nil))] = true
	}
	if len(seen) < 20 {
		t.Errorf("a hundred people were shown %d seats", len(seen))
	}
}

func TestChooseSkipsTaken(t *testing.T) {
	m := made(seatRow(4, "1", 1, 2), 2)
	var l tookList
	l.add([]int{1, 2, 3}, 1, 1)
	if got := m.Choose("c", 1, 1, 1, Prefer{}, rand.IntN, l.taken(1, 1)); !slices.Equal(got, []int{4}) {
		t.Errorf("chose %v, the only seat left is 4", got)
	}
	if got := m.Choose("c", 2, 2, 4, Prefer{}, rand.IntN, l.taken(2, 2)); len(got) != 4 {
		t.Errorf("leg 2 was not touched, yet chose %v", got)
	}
	l.forget(time.Now().Add(time.Second))
	if l.taken(1, 1)(1) {
		t.Error("a newer map did not make it forget")
	}
}

func TestStateOf(t *testing.T) {
	const now = 1000
	tests := []struct {
		until, considered int64
		standby           bool
		want              State
	}{
		{never, never, false, Free}, {now, never, false, Free}, {now + 1, never, false, Held}, {forever, now, false, Booked},
		{never, never, true, Free}, {now - 5, now - 6, true, Kept}, {now - 5, now - 5, true, Free}, {now + 1, now, true, Held}, {forever, now, true, Booked},
	}
	for _, test := range tests {
		if got := stateOf(test.until, test.considered, now, test.standby); got != test.want {
			t.Errorf("until %d, considered %d, standby %t: %d, not %d", test.until, test.considered, test.standby, got, test.want)
		}
	}
}

func TestBusiest(t *testing.T) {
	seats := seatRow(2, "1", 1, 3)
	seats[0].legs[1] = 2
	got := made(seats, 3).Busiest("c", 2)
	want := []IntervalLeft{{2, 2, 1}, {1, 2, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("busiest are %v, not %v", got, want)
	}
}

func TestDecodeRefusesAnything(t *testing.T) {
	good := made(seatRow(5, "1", 1, 3), 3).encode()
	for n := range good {
		if _, err := decode(nil, good[:n]); err == nil {
			t.Errorf("%d of %d bytes were read as a map", n, len(good))
		}
	}
	if _, err := decode(nil, append(slices.Clone(good), 0)); err == nil {
		t.Error("a byte too many was read over")
	}
}

// A map of 1,000 seats is at most 400 bytes as sent, however its seats are.
func TestAnswerIsSmall(t *testing.T) {
	for _, kinds := range []int{1, 2, 3} {
		seats := seatRow(1000, "1", 1, 1)
		for i := range seats {
			seats[i].legs[0] = rand.IntN(kinds)
		}
		m := made(seats, 1)
		m.sale.ID = 123456
		a, err := m.show(answerKey{})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Gzip) > 400 {
			t.Errorf("%d bytes with %d states", len(a.Gzip), kinds)
		}
		var sent shownMap
		if err := json.Unmarshal(a.Body, &sent); err != nil {
			t.Fatal(err)
		}
		bits, err := base64.StdEncoding.DecodeString(sent.Classes[0].Seats)
		if err != nil || !bytes.Equal(bits, m.Packed("c", 1, 1)) || sent.Classes[0].Left != m.Left("c", 1, 1) || sent.From != "0" || sent.To != "1" {
			t.Errorf("the answer does not say what the map does: %v", sent)
		}
	}
}

func TestAnswerETag(t *testing.T) {
	seats := seatRow(10, "1", 1, 2)
	show := func(m *Map, key answerKey) *Answer {
		a, err := m.show(key)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	before := made(seats, 2)
	later := made(seats, 2)
	later.AsOf = later.AsOf.Add(time.Second)
	whole := answerKey{from: "0", to: "2"}
	if show(before, whole).ETag != show(later, whole).ETag {
		t.Error("time alone changed the tag")
	}
	seats[3].legs[1] = 1
	if show(before, whole).ETag == show(made(seats, 2), whole).ETag {
		t.Error("a held seat did not change the tag")
	}
	if show(before, whole).ETag == show(before.asStale(), whole).ETag || !strings.HasPrefix(show(before, whole).ETag, `W/"`) {
		t.Error("stale or strong tag")
	}
	if _, err := before.show(answerKey{from: "2", to: "0"}); !problem.Is(err, problem.Unprocessable) {
		t.Errorf("a wrong interval: %v", err)
	}
	if _, err := before.show(answerKey{from: "0", to: "2", class: "x"}); !problem.Is(err, problem.Unprocessable) {
		t.Errorf("a wrong class: %v", err)
	}
}
