// Package model is the rule of standby once more (DESIGN 8), for tests: slow,
// plain, and without anything of the planner's. Seats are looked at leg by leg
// and nothing is remembered between two questions.
package model

import (
	"math/big"
	"slices"
)

// Order waits in a queue. Together: 0 apart, 1 one row, 2 one coach.
type Order struct {
	Number, Score              int64
	Quantity, Together, Passed int
	Kept                       []int // seats the house keeps for it
}

// Queue is who waits for legs From..To (from 1, inclusive), by score.
type Queue struct {
	From, To int
	Orders   []Order
}

// Seat is a strip. Free and Fresh by leg-1.
type Seat struct {
	Number, Coach, Row int
	Free, Fresh        []bool
}

// Release is due work. A smaller ID is older.
type Release struct {
	ID             int64
	Seat, From, To int
}

// Class is one class of a sale.
type Class struct {
	ID     string
	Seats  []Seat
	Due    []Release
	Queues []Queue
}

// Newcomer is an order not looked at yet.
type Newcomer struct {
	Order
	From, To int
	Classes  []string
}

// Sale is what there is to decide.
type Sale struct {
	Classes   []Class
	Newcomers []Newcomer // by score
	PassMost  int
}

// Deed is one thing decided: What is "serve", "keep" or "pass".
type Deed struct {
	What     string
	Class    string
	Order    int64
	From, To int
	Seats    []int // of a serve all, of a keep the one
	LetGo    []int
	Release  int64
	Exact    bool
	Reason   string
}

// Notes say what a run came across, so that a test can tell that it tried it.
type Notes struct {
	Ties int // sets of offers with the most passenger-legs that were not the one chosen
}

// lookedAt is how many orders of a queue count.
const lookedAt = 10

type world struct {
	sale   *Sale
	free   map[int][]bool // of each seat, by number
	served map[int64]bool
	deeds  []Deed
	notes  Notes
}

// Decide tells what the rule says is done, in order.
func Decide(sale *Sale) ([]Deed, Notes) {
	w := &world{sale: sale, free: map[int][]bool{}, served: map[int64]bool{}}
	for _, c := range sale.Classes {
		for _, s := range c.Seats {
			w.free[s.Number] = slices.Clone(s.Free)
		}
	}
	// Seats in order of their oldest due release: walk all releases by age, and
	// work at a seat when it is met for the first time.
	type due struct {
		class *Class
		Release
	}
	var all []due
	for i := range sale.Classes {
		for _, r := range sale.Classes[i].Due {
			all = append(all, due{&sale.Classes[i], r})
		}
	}
	slices.SortFunc(all, func(a, b due) int { return int(a.ID - b.ID) })
	met := map[int]bool{}
	for _, d := range all {
		if met[d.Seat] {
			continue
		}
		met[d.Seat] = true
		var releases []Release
		for _, e := range all {
			if e.Seat == d.Seat {
				releases = append(releases, e.Release)
			}
		}
		for i := range d.class.Seats {
			if s := &d.class.Seats[i]; s.Number == d.Seat {
				w.seat(d.class, s, releases)
			}
		}
	}
	for i := range sale.Newcomers {
		w.newcomer(&sale.Newcomers[i])
	}
	return w.deeds, w.notes
}

// isFree: the seat is free on all of f..t.
func (w *world) isFree(s *Seat, f, t int) bool {
	for leg := f; leg <= t; leg++ {
		if !w.free[s.Number][leg-1] {
			return false
		}
	}
	return true
}

// isFreeFor: free, or kept for the order.
func (w *world) isFreeFor(o *Order, s *Seat, f, t int) bool {
	return w.isFree(s, f, t) || slices.Contains(o.Kept, s.Number)
}

// run is the length of the free run around f..t.
func (w *world) run(s *Seat, f, t int) int {
	free := w.free[s.Number]
	for f > 1 && free[f-2] {
		f--
	}
	for t < len(free) && free[t] {
		t++
	}
	return t - f + 1
}

func together(o *Order, a, b *Seat) bool {
	switch o.Together {
	case 1:
		return a.Coach == b.Coach && a.Row == b.Row
	case 2:
		return a.Coach == b.Coach
	}
	return true
}

// seatsFor are the seats with which the order would be served, s among them; nil
// if it cannot be.
func (w *world) seatsFor(c *Class, o *Order, s *Seat, f, t int) []int {
	var others []*Seat
	for i := range c.Seats {
		if other := &c.Seats[i]; other != s && together(o, s, other) && w.isFreeFor(o, other, f, t) {
			others = append(others, other)
		}
	}
	if len(others) < o.Quantity-1 {
		return nil
	}
	slices.SortFunc(others, func(a, b *Seat) int {
		if ra, rb := w.run(a, f, t), w.run(b, f, t); ra != rb {
			return ra - rb
		}
		return a.Number - b.Number
	})
	seats := []int{s.Number}
	for _, other := range others[:o.Quantity-1] {
		seats = append(seats, other.Number)
	}
	slices.Sort(seats)
	return seats
}

// candidates are the first ten of a queue that are not served.
func (w *world) candidates(q *Queue) (list []*Order) {
	for i := range q.Orders {
		if len(list) < lookedAt && !w.served[q.Orders[i].Number] {
			list = append(list, &q.Orders[i])
		}
	}
	return list
}

// first is the first candidate that the seat can serve.
func (w *world) first(c *Class, q *Queue, s *Seat) *Order {
	for _, o := range w.candidates(q) {
		if w.seatsFor(c, o, s, q.From, q.To) != nil {
			return o
		}
	}
	return nil
}

func (w *world) serve(c *Class, o *Order, s *Seat, f, t int, release int64, exact bool) {
	d := Deed{What: "serve", Class: c.ID, Order: o.Number, From: f, To: t, Release: release, Exact: exact}
	d.Seats = w.seatsFor(c, o, s, f, t)
	for i := range c.Seats {
		if one := &c.Seats[i]; slices.Contains(d.Seats, one.Number) {
			if !w.isFree(one, f, t) {
				d.LetGo = append(d.LetGo, one.Number)
			}
			w.take(one, f, t)
		}
	}
	w.served[o.Number] = true
	w.deeds = append(w.deeds, d)
}

func (w *world) take(s *Seat, f, t int) {
	for leg := f; leg <= t; leg++ {
		w.free[s.Number][leg-1] = false
	}
}

// brought: the oldest release with a leg of f..t, else the oldest.
func brought(releases []Release, f, t int) int64 {
	for _, r := range releases {
		for leg := f; leg <= t; leg++ {
			if r.From <= leg && leg <= r.To {
				return r.ID
			}
		}
	}
	return releases[0].ID
}

func (w *world) seat(c *Class, s *Seat, releases []Release) {
	legs := len(s.Free)
	for f := 1; f <= legs; f++ {
		for t := legs; t >= f; t-- {
			// f..t is a gap: free, no longer to either side, with a fresh leg.
			if !w.isFree(s, f, t) || w.run(s, f, t) != t-f+1 || !slices.Contains(s.Fresh[f-1:t], true) {
				continue
			}
			w.gap(c, s, releases, f, t)
			f = t
			break
		}
	}
}

// beside: nothing is kept for the order yet, or something with which the seat
// would be together as the order wants it.
func (w *world) beside(c *Class, o *Order, s *Seat) bool {
	kept := slices.Clone(o.Kept)
	for _, d := range w.deeds {
		if d.What == "keep" && d.Class == c.ID && d.Order == o.Number {
			kept = append(kept, d.Seats[0])
		}
	}
	some := false
	for i := range c.Seats {
		if one := &c.Seats[i]; slices.Contains(kept, one.Number) {
			if together(o, s, one) {
				return true
			}
			some = true
		}
	}
	return !some
}

func (w *world) gap(c *Class, s *Seat, releases []Release, from, to int) {
	var inside []*Queue
	for i := range c.Queues {
		if q := &c.Queues[i]; from <= q.From && q.To <= to {
			inside = append(inside, q)
		}
	}
	type head struct {
		*Queue
		order  *Order
		reason string
	}
	var unserved []head
	for _, q := range inside {
		if list := w.candidates(q); len(list) > 0 && list[0].Quantity > 1 && w.seatsFor(c, list[0], s, q.From, q.To) == nil {
			apart := *list[0]
			apart.Together = 0
			h := head{q, list[0], "group"}
			if w.seatsFor(c, &apart, s, q.From, q.To) != nil {
				h.reason = "apart"
			}
			unserved = append(unserved, h)
		}
	}
	slices.SortFunc(unserved, func(a, b head) int { return int(a.order.Score - b.order.Score) })

	for _, h := range unserved { // step 0
		if h.order.Passed >= w.sale.PassMost && w.isFree(s, h.From, h.To) && w.beside(c, h.order, s) {
			w.take(s, h.From, h.To)
			w.deeds = append(w.deeds, Deed{What: "keep", Class: c.ID, Order: h.order.Number, From: h.From, To: h.To,
				Seats: []int{s.Number}, Release: brought(releases, h.From, h.To)})
		}
	}
	for _, r := range releases { // step 1
		for _, q := range inside {
			if q.From == r.From && q.To == r.To && w.isFree(s, r.From, r.To) {
				if o := w.first(c, q, s); o != nil {
					w.serve(c, o, s, q.From, q.To, r.ID, true)
				}
			}
		}
	}
	var offers []Offer // step 2
	of := map[int64]*Order{}
	for _, q := range inside {
		if w.isFree(s, q.From, q.To) {
			if o := w.first(c, q, s); o != nil {
				offers = append(offers, Offer{q.From, q.To, o.Quantity, o.Score})
				of[o.Score] = o
			}
		}
	}
	var chosen []Offer
	if to-from < 8 {
		var ties int
		chosen, ties = Tried(offers)
		w.notes.Ties += ties
	} else {
		chosen = Added(offers, from, to)
	}
	slices.SortFunc(chosen, func(a, b Offer) int { return a.From - b.From })
	for _, o := range chosen {
		w.serve(c, of[o.Score], s, o.From, o.To, brought(releases, o.From, o.To), false)
	}
	for _, h := range unserved { // step 3
		w.deeds = append(w.deeds, Deed{What: "pass", Class: c.ID, Order: h.order.Number, From: h.From, To: h.To,
			Release: brought(releases, h.From, h.To), Reason: h.reason})
	}
}

// Offer is an order that could have legs From..To.
type Offer struct {
	From, To, Quantity int
	Score              int64
}

func (o Offer) weight() int { return o.Quantity * (o.To - o.From + 1) }

// Tried is the best set of disjoint offers, found by trying every one: the most
// passenger-legs, then the smallest ascending list of scores. Others is how many
// sets had as many passenger-legs.
func Tried(offers []Offer) (best []Offer, others int) {
	scores := func(set []Offer) (list []int64) {
		for _, o := range set {
			list = append(list, o.Score)
		}
		slices.Sort(list)
		return list
	}
	most := -1
	var try func(next int, set []Offer, weight int)
	try = func(next int, set []Offer, weight int) {
		if next == len(offers) {
			switch {
			case weight > most:
				most, others, best = weight, 0, slices.Clone(set)
			case weight == most:
				others++
				if slices.Compare(scores(set), scores(best)) < 0 {
					best = slices.Clone(set)
				}
			}
			return
		}
		try(next+1, set, weight)
		o := offers[next]
		for _, have := range set {
			if have.From <= o.To && o.From <= have.To {
				return
			}
		}
		try(next+1, append(slices.Clip(set), o), weight+o.weight())
	}
	try(0, nil, 0)
	return best, others
}

// Added is the same for long gaps. The rule becomes one number: an offer is worth
// its passenger-legs times 2^n and, as the k-th oldest of the n, 2^(n-k). Then
// the most in all is the most passenger-legs, and among equals the lists compare
// as these numbers do, oldest first. Of any legs f..to the best is the better of
// leaving f empty and of each offer that begins there.
func Added(offers []Offer, from, to int) []Offer {
	byScore := slices.Clone(offers)
	slices.SortFunc(byScore, func(a, b Offer) int { return int(a.Score - b.Score) })
	n := len(offers)
	worth := make([]*big.Int, n)
	for k, o := range byScore {
		worth[k] = new(big.Int).Lsh(big.NewInt(int64(o.weight())), uint(n))
		worth[k].SetBit(worth[k], n-k-1, 1)
	}
	type answer struct {
		worth *big.Int
		set   []Offer
	}
	answers := map[int]answer{to + 1: {worth: new(big.Int)}}
	for f := to; f >= from; f-- {
		best := answers[f+1]
		for k, o := range byScore {
			if o.From != f {
				continue
			}
			rest := answers[o.To+1]
			if sum := new(big.Int).Add(worth[k], rest.worth); sum.Cmp(best.worth) > 0 {
				best = answer{sum, append(slices.Clip(rest.set), o)}
			}
		}
		answers[f] = best
	}
	return answers[from].set
}

func (w *world) newcomer(n *Newcomer) {
	for _, id := range n.Classes {
		for i := range w.sale.Classes {
			if c := &w.sale.Classes[i]; c.ID == id && !w.served[n.Number] && !w.olderFits(c, n) {
				if s := w.bestSeat(c, &n.Order, n.From, n.To); s != nil {
					w.serve(c, &n.Order, s, n.From, n.To, 0, false)
				}
			}
		}
	}
}

// olderFits: somebody older of the newcomer's queue could be served too.
func (w *world) olderFits(c *Class, n *Newcomer) bool {
	for i := range c.Queues {
		if q := &c.Queues[i]; q.From == n.From && q.To == n.To {
			for _, o := range w.candidates(q) {
				if o.Score < n.Score && w.bestSeat(c, o, n.From, n.To) != nil {
					return true
				}
			}
		}
	}
	return false
}

// bestSeat is the seat that leaves the least over of those that can serve.
func (w *world) bestSeat(c *Class, o *Order, f, t int) (best *Seat) {
	for i := range c.Seats { // by number, so that the first of equals stays
		s := &c.Seats[i]
		if w.isFreeFor(o, s, f, t) && w.seatsFor(c, o, s, f, t) != nil && (best == nil || w.run(s, f, t) < w.run(best, f, t)) {
			best = s
		}
	}
	return best
}
