// Package seat owns the map of a sale: which legs of which seats are free, as
// read from the strips in Postgres at most once a second, what is left by it,
// and which seats to offer to who asks for any. It decides nothing: the SQL
// functions of migrations/00002_seat.sql do.
package seat

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"handler/function/shared/catalog"
)

// State is what one leg of a seat is to the open sale. The first three are the
// numbers of the API; Kept reads as Held there.
type State byte

// The states of a leg.
const (
	Free   State = 0
	Held   State = 1 // held by a customer, or blocked by the house
	Booked State = 2
	Kept   State = 3 // free, and standby has not been offered it yet
)

// MayBecome says whether a move of a leg is legal (law 3): of the six between
// free, held and booked four are. The SQL functions of 00002_seat.sql decide.
func (s State) MayBecome(next State) bool {
	if s == Kept {
		s = Free
	}
	switch s {
	case Free:
		return next == Held
	case Held:
		return next == Free || next == Booked
	case Booked:
		return next == Free
	}
	return false
}

// Map is the seats of one sale at one moment. It is shared and never written.
type Map struct {
	AsOf  time.Time // by the database's clock, before the strips were read
	Stale bool      // Postgres is away and this is the last map known

	sale    *catalog.Sale
	legs    int
	classes []*class // in the sale's order

	shown   sync.Map // rendered answers: answerKey → *Answer
	answers atomic.Int64
}

// class is the seats of one class.
type class struct {
	id     string
	seats  []int32 // their numbers, ascending: layout order
	states []State // of each seat's legs in turn: len(seats) × legs
	legs   int

	countOnce sync.Once
	counts    []int32 // of legs f..t, see count

	rowsOnce sync.Once
	layout   layout

	fitsMu sync.Mutex
	fits   map[fitKey]*fits
}

// IntervalLeft is what is left of a class on one interval that is sold.
type IntervalLeft struct {
	LegFrom, LegTo int // 1-based, inclusive
	Left           int
}

// Sale is the sale as it was when the map was read.
func (m *Map) Sale() *catalog.Sale { return m.sale }

func (m *Map) class(id string) *class {
	for _, c := range m.classes {
		if c.id == id {
			return c
		}
	}
	return nil
}

// strip is the legs of the i-th seat of a class.
func (c *class) strip(i int) []State { return c.states[i*c.legs : (i+1)*c.legs] }

// Left is how many seats of a class the open sale may take on legs f..t, 1-based
// and inclusive; 0 for an unknown class or legs outside the sale.
func (m *Map) Left(classID string, f, t int) int {
	c := m.class(classID)
	if c == nil || f < 1 || t < f || t > m.legs {
		return 0
	}
	return c.left(f, t)
}

func (c *class) left(f, t int) int {
	c.countOnce.Do(c.count)
	return int(c.counts[(f-1)*c.legs+t-1])
}

// count fills counts for all intervals at once: how far each leg's free run
// reaches is tallied, then summed from the far end.
func (c *class) count() {
	n := c.legs
	c.counts = make([]int32, n*n)
	for i := range c.seats {
		strip := c.strip(i)
		reach := -1 // last leg of the free run, 0-based
		for leg := n - 1; leg >= 0; leg-- {
			if strip[leg] != Free {
				reach = -1
				continue
			}
			if reach < 0 {
				reach = leg
			}
			c.counts[leg*n+reach]++
		}
	}
	for leg := range n {
		for t := n - 2; t >= leg; t-- {
			c.counts[leg*n+t] += c.counts[leg*n+t+1]
		}
	}
}

// LeftAny is how many seats of a class have at least one interval that is sold
// and that the open sale may take.
func (m *Map) LeftAny(classID string) int {
	c := m.class(classID)
	if c == nil {
		return 0
	}
	nearest := nearestSold(m.sale, classID, m.legs)
	n := 0
	for i := range c.seats {
		if sellable(c.strip(i), nearest) {
			n++
		}
	}
	return n
}

// sellable says whether a strip has a free run that holds an interval on sale.
func sellable(strip []State, nearest []int) bool {
	for leg := 0; leg < len(strip); {
		if strip[leg] != Free {
			leg++
			continue
		}
		end := leg
		for end+1 < len(strip) && strip[end+1] == Free {
			end++
		}
		if nearest[leg] <= end+1 {
			return true
		}
		leg = end + 1
	}
	return false
}

// nearestSold says, for each leg (0-based), the smallest last leg (1-based) of
// an interval on sale that begins there or later; past the end where none does.
func nearestSold(sale *catalog.Sale, classID string, legs int) []int {
	nearest := make([]int, legs)
	best := legs + 1
	for f := legs; f >= 1; f-- {
		for t := f; t <= legs && t < best; t++ {
			if sold(sale, classID, f, t) {
				best = t
			}
		}
		nearest[f-1] = best
	}
	return nearest
}

// sold says whether an interval can be bought at all, by stops and fare.
func sold(sale *catalog.Sale, classID string, f, t int) bool {
	if t > sale.Legs || sale.From(f).Board == catalog.CallNo || sale.To(t).Alight == catalog.CallNo {
		return false
	}
	_, err := sale.Price(classID, f, t)
	return err == nil
}

// Busiest lists at most n intervals of a class that are sold, the fewest left
// first, the shorter and then the earlier first among equals.
func (m *Map) Busiest(classID string, n int) []IntervalLeft {
	c := m.class(classID)
	if c == nil || n <= 0 {
		return nil
	}
	var all []IntervalLeft
	for f := 1; f <= m.legs; f++ {
		for t := f; t <= m.legs; t++ {
			if sold(m.sale, classID, f, t) {
				all = append(all, IntervalLeft{LegFrom: f, LegTo: t, Left: c.left(f, t)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b IntervalLeft) int {
		if a.Left != b.Left {
			return a.Left - b.Left
		}
		return (a.LegTo - a.LegFrom) - (b.LegTo - b.LegFrom)
	})
	return all[:min(n, len(all))]
}

// Free says whether the open sale may take a seat, by number, on legs f..t.
func (m *Map) Free(number, f, t int) bool {
	for _, c := range m.classes {
		if i, ok := slices.BinarySearch(c.seats, int32(number)); ok {
			return f >= 1 && f <= t && t <= c.legs && c.free(i, f, t)
		}
	}
	return false
}

func (c *class) free(i, f, t int) bool {
	for _, s := range c.strip(i)[f-1 : t] {
		if s != Free {
			return false
		}
	}
	return true
}

// Packed is the state of every seat of a class on legs f..t, two bits a seat in
// layout order, the first in the low bits: booked where any leg is booked, else
// held where any is held or kept, else free.
func (m *Map) Packed(classID string, f, t int) []byte {
	c := m.class(classID)
	if c == nil || f < 1 || t < f || t > m.legs {
		return nil
	}
	out := make([]byte, (len(c.seats)+3)/4)
	for i := range c.seats {
		worst := Free
		for _, s := range c.strip(i)[f-1 : t] {
			if s == Kept {
				s = Held
			}
			worst = max(worst, s)
		}
		out[i/4] |= byte(worst) << (2 * (i % 4))
	}
	return out
}
