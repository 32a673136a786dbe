// Package plan is the rule of standby: who gets what comes free (DESIGN 8). It
// is pure: `match` reads a sale's due work, asks Make what to do, and writes it.
package plan

// LookedAt is how many orders of a queue are looked at for a seat: its first by
// score (DESIGN 8). What a plan costs does not depend on how many wait behind them.
const LookedAt = 10

// Together says how a group sits. It means nothing for one person.
type Together int16

// How a group sits.
const (
	Apart Together = iota // anywhere in the class
	Row                   // all in one row of one coach
	Coach                 // all in one coach
)

// Interval is the legs From..To, counted from 1, both inclusive: 1 <= From <= To
// <= the legs of the sale.
type Interval struct{ From, To int }

// legs is how many legs it has.
func (iv Interval) legs() int { return iv.To - iv.From + 1 }

// inside tells whether every leg of it is one of gap's.
func (iv Interval) inside(gap Interval) bool { return gap.From <= iv.From && iv.To <= gap.To }

// meets tells whether they share a leg.
func (iv Interval) meets(other Interval) bool { return iv.From <= other.To && other.From <= iv.To }

// Order is one candidate in a queue. It stands in one interval's queue of each
// class it waits for, everywhere with the same number and score; no two orders
// of a sale have the same.
type Order struct {
	Number, Score int64
	Quantity      int // 1 or more
	Together      Together
	// Passed is how often this head was passed. Seats are kept for an order from
	// Input.PassMost on; give 0 for one whose time of keeping is over.
	Passed int
	// Kept are the seats that the house keeps for it on its interval, in this
	// class. They must be among Class.Seats, with a free leg or without: where a
	// seat stands is known from there alone, and one not found does not count.
	Kept []int
}

// Seat is one strip. Free and Fresh have one entry a leg (index leg-1): whether
// nobody has it now, and whether it came free after the seat was last
// considered.
type Seat struct {
	Number     int
	Coach, Row int // keys: equal means the same coach; Row keys are unique over the sale
	Free       []bool
	Fresh      []bool
}

// Gaps are the maximal runs of free legs that have a fresh leg, from left to
// right: what a due seat has to give. The queues of the intervals inside them
// are all that a plan looks at for the seat's releases.
func Gaps(s Seat) []Interval {
	var gaps []Interval
	for leg := 1; leg <= len(s.Free); leg++ {
		if !s.Free[leg-1] {
			continue
		}
		run, fresh := Interval{From: leg}, false
		for ; leg <= len(s.Free) && s.Free[leg-1]; leg++ {
			run.To = leg
			fresh = fresh || s.Fresh[leg-1]
		}
		if fresh {
			gaps = append(gaps, run)
		}
	}
	return gaps
}

// Release is a due release of a seat: these legs of it came free. A smaller ID
// is an older release.
type Release struct {
	ID   int64
	Seat int
	Interval
}

// Newcomer is an order that nobody has looked at yet.
type Newcomer struct {
	Order
	Interval
	Classes []string // in order of liking
}

// Class is what a run has to look at in one class.
type Class struct {
	ID    string
	Legs  int
	Seats []Seat    // every seat that has a free leg or is kept for a candidate, ascending; due seats among them
	Due   []Release // oldest first
	// Queues are the first of each queue by score. LookedAt, and as many more as the
	// run may serve, which is one for each due seat of the sale and one a newcomer,
	// are enough; with fewer the plan may be Short.
	Queues map[Interval][]Order
	// Cut are those of Queues that may have more orders than are given, and may be
	// needed.
	Cut map[Interval]bool
}

// Queue names a queue.
type Queue struct {
	Class string
	Interval
}

// Input is all that a run looks at: the classes of one sale and its newcomers
// by score. A newcomer may stand in the queues too.
type Input struct {
	Classes   []Class
	Newcomers []Newcomer
	PassMost  int // a head passed so often has seats kept for it (DESIGN 8: 10)
}

// Serve gives seats to an order: all that it wants, or it is not served.
type Serve struct {
	Class string
	Order int64
	Interval
	Seats   []int // ascending, as many as the order's quantity
	LetGo   []int // of these, those that the house kept for the order; ascending
	Release int64 // the release that brought it; 0 for a newcomer
	Exact   bool  // a release of exactly its interval went to the order
}

// Keep has the house keep a seat for a group that was passed often enough.
type Keep struct {
	Class string
	Order int64
	Interval
	Seat    int
	Release int64
}

// Pass tells that a head could not use what came free, and why.
type Pass struct {
	Class string
	Order int64
	Interval
	Release int64
	Reason  string // TooFew or NotTogether
}

// Reasons of a Pass.
const (
	TooFew      = "group" // the class has too few free seats for the group
	NotTogether = "apart" // it has enough, but not together as the group wants them
)

// Plan is what a run does, in the order in which it was decided. Each part
// builds on those before it: if one cannot be done, plan anew without it.
type Plan struct {
	Serves []Serve
	Keeps  []Keep
	Passes []Pass
	// Considered are the due seats, ascending: those that every queue was offered.
	// The seats that newcomers looked through are not among them. Were they marked
	// considered, a leg of theirs that came free unnoticed would go past the queues
	// to the open sale.
	Considered []int
	// Short are the queues that were looked at to the end of what is given and are
	// Cut, in no order, each once. If there are any the rest is not to be used: give
	// more of these, and plan anew.
	Short []Queue
}
