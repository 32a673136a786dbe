package plan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// strip is a seat from a picture of its legs: '.' taken, 'o' free, '*' free and
// fresh. Rows have two seats and coaches two rows: 1 and 2, 3 and 4.
func strip(number int, legs string) Seat {
	s := Seat{Number: number, Coach: (number - 1) / 4, Row: (number - 1) / 2}
	for _, leg := range legs {
		s.Free = append(s.Free, leg != '.')
		s.Fresh = append(s.Fresh, leg == '*')
	}
	return s
}

func iv(from, to int) Interval { return Interval{from, to} }

func order(number int64, quantity int) Order {
	return Order{Number: number, Score: number, Quantity: quantity}
}

func TestGaps(t *testing.T) {
	for legs, want := range map[string][]Interval{
		"":          nil,
		"....":      nil,
		"oooo":      nil,
		"*":         {iv(1, 1)},
		"o*oo":      {iv(1, 4)},
		"*.o.o*.*o": {iv(1, 1), iv(5, 6), iv(8, 9)},
		"..oo..o*":  {iv(7, 8)},
	} {
		if got := Gaps(strip(1, legs)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, not %v", legs, got, want)
		}
	}
}

// The named cases of the rule, each a sale with one class "c" of 4 legs where seat
// 1 is due.
func TestMake(t *testing.T) {
	kept := func(o Order, seats ...int) Order { o.Kept = seats; return o }
	passed := func(o Order, times int) Order { o.Passed = times; return o }
	sits := func(o Order, together Together) Order { o.Together = together; return o }
	all := iv(1, 4)
	for _, c := range []struct {
		name      string
		seats     []Seat
		due       []Interval // of seat 1; releases 1, 2 and so on
		queues    map[Interval][]Order
		newcomers []Newcomer
		want      Plan // Class "c" and Considered [1] are filled in
	}{{
		name:   "nobody waits",
		seats:  []Seat{strip(1, "****")},
		due:    []Interval{all},
		queues: nil,
	}, {
		name:   "the exact queue comes first, then the rest of the gap",
		seats:  []Seat{strip(1, "o**o")},
		due:    []Interval{iv(2, 3)},
		queues: map[Interval][]Order{iv(2, 3): {order(9, 1)}, all: {order(1, 1)}, iv(1, 1): {order(2, 1)}, iv(4, 4): {order(3, 1)}},
		want: Plan{Serves: []Serve{
			{Order: 9, Interval: iv(2, 3), Seats: []int{1}, Release: 1, Exact: true},
			{Order: 2, Interval: iv(1, 1), Seats: []int{1}, Release: 1},
			{Order: 3, Interval: iv(4, 4), Seats: []int{1}, Release: 1},
		}},
	}, {
		// Legs 1-2 refunded a second after an unnoticed hold on leg 4 ended: both gaps
		// are the queues', though one release is due.
		name:   "a leg that came free unnoticed is given too",
		seats:  []Seat{strip(1, "**.*")},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(4, 4): {order(7, 1)}},
		want:   Plan{Serves: []Serve{{Order: 7, Interval: iv(4, 4), Seats: []int{1}, Release: 1}}},
	}, {
		name:   "most passenger-legs, not the oldest",
		seats:  []Seat{strip(1, "****")},
		due:    []Interval{iv(1, 2), iv(3, 4)},
		queues: map[Interval][]Order{iv(2, 3): {order(1, 1)}, iv(1, 3): {order(2, 1)}, iv(4, 4): {order(3, 1)}},
		want: Plan{Serves: []Serve{
			{Order: 2, Interval: iv(1, 3), Seats: []int{1}, Release: 1},
			{Order: 3, Interval: iv(4, 4), Seats: []int{1}, Release: 2},
		}},
	}, {
		name:   "among equals the oldest, not the fewest or the sum",
		seats:  []Seat{strip(1, "****")},
		due:    []Interval{iv(2, 3)},
		queues: map[Interval][]Order{all: {order(2, 1)}, iv(1, 2): {order(1, 1)}, iv(3, 4): {order(90, 1)}},
		want: Plan{Serves: []Serve{
			{Order: 1, Interval: iv(1, 2), Seats: []int{1}, Release: 1},
			{Order: 90, Interval: iv(3, 4), Seats: []int{1}, Release: 1},
		}},
	}, {
		// Field case 40: a family of three and two free seats. It gets nothing and
		// is passed; whoever is behind it is served.
		name:   "a group is never served in part",
		seats:  []Seat{strip(1, "****"), strip(2, "oooo")},
		due:    []Interval{all},
		queues: map[Interval][]Order{all: {order(1, 3), order(2, 1)}},
		want: Plan{
			Serves: []Serve{{Order: 2, Interval: all, Seats: []int{1}, Release: 1, Exact: true}},
			Passes: []Pass{{Order: 1, Interval: all, Release: 1, Reason: "group"}},
		},
	}, {
		name:   "field case 40: with a third seat all three of it are",
		seats:  []Seat{strip(1, "****"), strip(2, "oooo"), strip(3, "oooo")},
		due:    []Interval{all},
		queues: map[Interval][]Order{all: {order(1, 3), order(2, 1)}},
		want:   Plan{Serves: []Serve{{Order: 1, Interval: all, Seats: []int{1, 2, 3}, Release: 1, Exact: true}}},
	}, {
		name:   "passenger-legs: a group of two for two legs is more than one person for three",
		seats:  []Seat{strip(1, "****"), strip(2, "oooo")},
		due:    []Interval{all},
		queues: map[Interval][]Order{iv(1, 2): {order(2, 2)}, iv(1, 3): {order(1, 1)}},
		want:   Plan{Serves: []Serve{{Order: 2, Interval: iv(1, 2), Seats: []int{1, 2}, Release: 1}}},
	}, {
		name:   "the others are the tightest",
		seats:  []Seat{strip(1, "****"), strip(2, ".ooo"), strip(3, ".oo."), strip(4, "ooo."), strip(5, ".oo.")},
		due:    []Interval{iv(2, 3)},
		queues: map[Interval][]Order{iv(2, 3): {order(1, 3)}},
		want:   Plan{Serves: []Serve{{Order: 1, Interval: iv(2, 3), Seats: []int{1, 3, 5}, Release: 1, Exact: true}}},
	}, {
		name:      "the others are taken for whoever comes next",
		seats:     []Seat{strip(1, "****"), strip(2, "oooo")},
		due:       []Interval{all},
		queues:    map[Interval][]Order{all: {order(1, 2)}},
		newcomers: []Newcomer{{order(2, 1), iv(2, 3), []string{"c"}}},
		want:      Plan{Serves: []Serve{{Order: 1, Interval: all, Seats: []int{1, 2}, Release: 1, Exact: true}}},
	}, {
		name:   "in one row",
		seats:  []Seat{strip(1, "****"), strip(2, "oooo"), strip(3, "oo..")},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(1, 2): {sits(order(1, 2), Row)}},
		want:   Plan{Serves: []Serve{{Order: 1, Interval: iv(1, 2), Seats: []int{1, 2}, Release: 1, Exact: true}}},
	}, {
		name:   "in one coach",
		seats:  []Seat{strip(1, "****"), strip(4, "oooo"), strip(5, "oo..")},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(1, 2): {sits(order(1, 2), Coach)}},
		want:   Plan{Serves: []Serve{{Order: 1, Interval: iv(1, 2), Seats: []int{1, 4}, Release: 1, Exact: true}}},
	}, {
		name:   "enough seats, but not together",
		seats:  []Seat{strip(1, "****"), strip(3, "oooo"), strip(5, "oo..")},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(1, 2): {sits(order(1, 2), Row)}},
		want:   Plan{Passes: []Pass{{Order: 1, Interval: iv(1, 2), Release: 1, Reason: "apart"}}},
	}, {
		name:   "passed nine times: passed once more",
		seats:  []Seat{strip(1, "****")},
		due:    []Interval{all},
		queues: map[Interval][]Order{iv(1, 2): {passed(order(1, 2), 9)}},
		want:   Plan{Passes: []Pass{{Order: 1, Interval: iv(1, 2), Release: 1, Reason: "group"}}},
	}, {
		name:   "passed ten times: the seat is kept for it, ahead of the exact queue",
		seats:  []Seat{strip(1, "****")},
		due:    []Interval{iv(2, 3)},
		queues: map[Interval][]Order{iv(1, 2): {passed(order(5, 2), 10), order(6, 1)}, iv(2, 3): {order(1, 1)}, iv(3, 3): {order(7, 1)}},
		want: Plan{
			Keeps:  []Keep{{Order: 5, Interval: iv(1, 2), Seat: 1, Release: 1}},
			Serves: []Serve{{Order: 7, Interval: iv(3, 3), Seats: []int{1}, Release: 1}},
			Passes: []Pass{{Order: 5, Interval: iv(1, 2), Release: 1, Reason: "group"}},
		},
	}, {
		name:   "two heads passed ten times: the older first, the other where legs are left",
		seats:  []Seat{strip(1, "****")},
		due:    []Interval{all},
		queues: map[Interval][]Order{iv(1, 2): {passed(order(6, 2), 10)}, iv(2, 3): {passed(order(5, 2), 10)}, iv(4, 4): {passed(order(7, 2), 10)}},
		want: Plan{
			Keeps: []Keep{{Order: 5, Interval: iv(2, 3), Seat: 1, Release: 1}, {Order: 7, Interval: iv(4, 4), Seat: 1, Release: 1}},
			Passes: []Pass{{Order: 5, Interval: iv(2, 3), Release: 1, Reason: "group"}, {Order: 6, Interval: iv(1, 2), Release: 1, Reason: "group"},
				{Order: 7, Interval: iv(4, 4), Release: 1, Reason: "group"}},
		},
	}, {
		name:   "seats are kept for it in another row: not here too",
		seats:  []Seat{{Number: 1, Coach: 1, Row: 1, Free: strip(1, "****").Free, Fresh: strip(1, "****").Fresh}, {Number: 3, Coach: 1, Row: 2, Free: strip(3, "....").Free, Fresh: strip(3, "....").Fresh}},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(1, 2): {sits(kept(passed(order(1, 2), 10), 3), Row), order(2, 1)}},
		want: Plan{
			Serves: []Serve{{Order: 2, Interval: iv(1, 2), Seats: []int{1}, Release: 1, Exact: true}},
			Passes: []Pass{{Order: 1, Interval: iv(1, 2), Release: 1, Reason: "apart"}},
		},
	}, {
		name:   "what is kept and what is free are enough: the keep is let go",
		seats:  []Seat{strip(1, "****"), strip(2, "oo.."), strip(3, "....")},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(1, 2): {kept(passed(order(1, 3), 10), 3)}},
		want:   Plan{Serves: []Serve{{Order: 1, Interval: iv(1, 2), Seats: []int{1, 2, 3}, LetGo: []int{3}, Release: 1, Exact: true}}},
	}, {
		name:   "what is kept for one is not free for another",
		seats:  []Seat{strip(1, "****"), strip(3, "....")},
		due:    []Interval{iv(1, 2)},
		queues: map[Interval][]Order{iv(1, 2): {order(1, 2), kept(order(2, 2), 3)}},
		want: Plan{
			Serves: []Serve{{Order: 2, Interval: iv(1, 2), Seats: []int{1, 3}, LetGo: []int{3}, Release: 1, Exact: true}},
			Passes: []Pass{{Order: 1, Interval: iv(1, 2), Release: 1, Reason: "group"}},
		},
	}, {
		// Kept says 2, the strip says that the house has it no more.
		name:   "a keep that is none counts once, as a free seat",
		seats:  []Seat{strip(1, "****"), strip(2, "oooo")},
		due:    []Interval{all},
		queues: map[Interval][]Order{all: {kept(order(1, 3), 2, 8)}},
		want:   Plan{Passes: []Pass{{Order: 1, Interval: all, Release: 1, Reason: "group"}}},
	}, {
		name:      "a newcomer gets what was left, the tightest seat, in the class it likes best",
		seats:     []Seat{strip(2, "oooo"), strip(3, ".oo."), strip(4, ".oo.")},
		newcomers: []Newcomer{{order(1, 1), iv(2, 3), []string{"x", "c"}}},
		want:      Plan{Serves: []Serve{{Order: 1, Interval: iv(2, 3), Seats: []int{3}}}},
	}, {
		name:      "a newcomer's group starts where there is room for it",
		seats:     []Seat{strip(1, ".oo."), strip(3, "oooo"), strip(4, "oooo")},
		newcomers: []Newcomer{{sits(order(1, 2), Row), iv(2, 3), []string{"c"}}},
		want:      Plan{Serves: []Serve{{Order: 1, Interval: iv(2, 3), Seats: []int{3, 4}}}},
	}, {
		name:      "a newcomer is not served ahead of an older order that fits too",
		seats:     []Seat{strip(2, "oooo")},
		queues:    map[Interval][]Order{all: {order(1, 1), order(2, 1)}},
		newcomers: []Newcomer{{order(2, 1), all, []string{"c"}}},
	}, {
		name:      "a newcomer is served ahead of an older group that does not fit",
		seats:     []Seat{strip(2, "oooo")},
		queues:    map[Interval][]Order{all: {order(1, 2), order(2, 1)}},
		newcomers: []Newcomer{{order(2, 1), all, []string{"c"}}},
		want:      Plan{Serves: []Serve{{Order: 2, Interval: all, Seats: []int{2}}}},
	}, {
		name:      "a release comes before newcomers, and may serve one that stands in its queue",
		seats:     []Seat{strip(1, "****"), strip(2, "oooo")},
		due:       []Interval{all},
		queues:    map[Interval][]Order{all: {order(2, 1)}},
		newcomers: []Newcomer{{order(2, 1), all, []string{"c"}}},
		want:      Plan{Serves: []Serve{{Order: 2, Interval: all, Seats: []int{1}, Release: 1, Exact: true}}},
	}} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{PassMost: 10, Newcomers: c.newcomers, Classes: []Class{{ID: "c", Legs: 4, Seats: c.seats, Queues: c.queues}}}
			for i, iv := range c.due {
				in.Classes[0].Due = append(in.Classes[0].Due, Release{int64(i + 1), 1, iv})
				c.want.Considered = []int{1}
			}
			for i := range c.want.Serves {
				c.want.Serves[i].Class = "c"
			}
			for i := range c.want.Keeps {
				c.want.Keeps[i].Class = "c"
			}
			for i := range c.want.Passes {
				c.want.Passes[i].Class = "c"
			}
			if got := Make(in); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, not %+v", got, c.want)
			}
		})
	}
}

// The tenth of a queue is looked at, the eleventh is not.
func TestLookedAt(t *testing.T) {
	for _, groups := range []int{9, 10} {
		var q []Order
		for i := range groups {
			q = append(q, order(int64(i+1), 2))
		}
		q = append(q, order(99, 1))
		p := Make(Input{PassMost: 10, Classes: []Class{{ID: "c", Legs: 1, Seats: []Seat{strip(1, "*")},
			Due: []Release{{1, 1, iv(1, 1)}}, Queues: map[Interval][]Order{iv(1, 1): q}}}})
		if served := len(p.Serves) == 1; served != (groups == 9) {
			t.Errorf("after %d groups: %+v", groups, p)
		}
	}
}

// Seats of two classes are worked at by the age of their oldest release, and an
// order that waits for both is served once.
func TestTwoClasses(t *testing.T) {
	in := Input{PassMost: 10, Classes: []Class{
		{ID: "a", Legs: 1, Seats: []Seat{strip(1, "*"), strip(2, "*")}, Due: []Release{{4, 2, iv(1, 1)}, {6, 1, iv(1, 1)}},
			Queues: map[Interval][]Order{iv(1, 1): {order(1, 1), order(3, 1)}}},
		{ID: "b", Legs: 1, Seats: []Seat{strip(3, "*")}, Due: []Release{{2, 3, iv(1, 1)}, {9, 3, iv(1, 1)}},
			Queues: map[Interval][]Order{iv(1, 1): {order(1, 1), order(2, 1)}}},
	}}
	want := Plan{Considered: []int{1, 2, 3}, Serves: []Serve{
		{Class: "b", Order: 1, Interval: iv(1, 1), Seats: []int{3}, Release: 2, Exact: true},
		{Class: "a", Order: 3, Interval: iv(1, 1), Seats: []int{2}, Release: 4, Exact: true},
	}}
	if got := Make(in); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// A newcomer tries its classes in its own order, and gets no second seat.
func TestNewcomersClasses(t *testing.T) {
	in := Input{PassMost: 10, Classes: []Class{
		{ID: "a", Legs: 1, Seats: []Seat{strip(1, "o")}},
		{ID: "b", Legs: 1, Seats: []Seat{strip(2, "o")}},
	}, Newcomers: []Newcomer{{order(1, 1), iv(1, 1), []string{"b", "a"}}, {order(2, 1), iv(1, 1), []string{"b", "a"}}}}
	want := Plan{Serves: []Serve{{Class: "b", Order: 1, Interval: iv(1, 1), Seats: []int{2}}, {Class: "a", Order: 2, Interval: iv(1, 1), Seats: []int{1}}}}
	if got := Make(in); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// A due seat that is taken from end to end is considered, and that is all.
func TestSeatGone(t *testing.T) {
	in := Input{PassMost: 10, Classes: []Class{{ID: "c", Legs: 1, Due: []Release{{1, 7, iv(1, 1)}}, Queues: map[Interval][]Order{iv(1, 1): {order(1, 1)}}}}}
	if got, want := Make(in), (Plan{Considered: []int{7}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// busy is a sale as large as a transaction of match sees: 85 legs, a thousand
// seats with free legs, 200 queues of ten, parties of 1 to 4, due seats due.
func busy(due int) Input {
	r := rand.New(rand.NewPCG(1, 2))
	c := Class{ID: "c", Legs: 85, Queues: map[Interval][]Order{}}
	for i := range 1_000 {
		s := strip(i+1, "")
		s.Coach, s.Row = i/80, i/4
		for leg := range c.Legs {
			free := leg/5%3 == i%3 || r.IntN(3) > 0
			s.Free = append(s.Free, free)
			s.Fresh = append(s.Fresh, free && i < due)
		}
		if i < due { // a coach added
			s.Free = slices.Repeat([]bool{true}, c.Legs)
			s.Fresh = s.Free
			c.Due = append(c.Due, Release{int64(i + 1), i + 1, iv(1, c.Legs)})
		}
		c.Seats = append(c.Seats, s)
	}
	for number := int64(1); len(c.Queues) < 200; {
		from := 1 + r.IntN(c.Legs)
		at := iv(from, from+r.IntN(c.Legs-from+1))
		c.Queues[at] = nil
		for range LookedAt {
			o := order(number, 1+r.IntN(4))
			o.Together = Together(r.IntN(3))
			c.Queues[at] = append(c.Queues[at], o)
			number++
		}
	}
	return Input{PassMost: 10, Classes: []Class{c}}
}

func BenchmarkMake(b *testing.B) {
	for _, due := range []int{1, 100} {
		in := busy(due)
		b.Run(fmt.Sprintf("due=%d", due), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Make(in)
			}
		})
	}
	b.Run("newcomers=500", func(b *testing.B) {
		in := busy(0)
		for i := range 500 {
			o := order(int64(10_000+i), 1+i%4)
			o.Together = Together(i % 3)
			from := 1 + i%50
			in.Newcomers = append(in.Newcomers, Newcomer{o, iv(from, from+i%20), []string{"c"}})
		}
		b.ReportAllocs()
		for b.Loop() {
			Make(in)
		}
	})
}
