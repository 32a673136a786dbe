package plan

import (
	"cmp"
	"iter"
	"slices"
)

// Make plans a run. It changes nothing of its input.
//
// The due seats of all classes are worked at in order of their oldest release,
// and each seat's gaps (Gaps, of what is free by then) from left to right. In a
// gap the queues of all intervals inside it are looked at. A queue's candidates
// are the first LookedAt of its orders that are not served yet; its head is
// the first of them when the work at the gap begins.
//
// An order can be served with the seat on its interval f..t if it is one
// person, or if enough other seats of the class are free on all of f..t, in the
// seat's row or coach where the group wants that. Seats that the house keeps for
// an order are free for it and only for it. The others are those with the
// shortest free run around f..t, then with the lowest number. A group is served
// whole or not at all.
//
//   - Step 0, keeps. A head of two or more that was passed PassMost times and
//     cannot be served has its interval of this seat kept for it: in order of
//     score, only if no leg of it was kept for another before, and only beside
//     what is kept for it already, in its row or coach where the group wants that.
//     So fewer seats are kept for a group than it has people.
//   - Step 1, exact. For each due release of the seat, oldest first, whose whole
//     interval is still free in the gap: the first candidate of exactly that
//     queue that can be served gets it.
//   - Step 2, the rest. Each queue inside what is left offers its first candidate
//     that can be served. The disjoint ones with the most passenger-legs are
//     served, from left to right; among equals those whose ascending list of
//     scores is lexicographically smallest (see best).
//   - Step 3, passes. Every head of two or more that could not be served when the
//     work at the gap began is passed, once a gap, also one that the seat was kept
//     for in step 0.
//
// Then the newcomers in their order, if not served by now: each tries its
// classes as it likes them and gets the seat with the shortest free run around
// its interval, then with the lowest number, with which it can be served; the
// others of a group as above. It is not served in a class where a candidate of
// its own queue with a smaller score could be served too, with whatever seats:
// nobody is served ahead of that one, and neither is that one served now, for
// nothing was released to it.
//
// Release in a serve, keep or pass is the oldest due release of the seat that
// shares a leg with the interval, else the seat's oldest. (A gap may have been
// made by several, and by holds that ended unnoticed.)
//
// What is kept in a run is taken for the rest of it, for its own order too: that
// order could not be served with the seat, and seats only grow fewer. If it is
// served elsewhere later in the run, it stands in the plan with both; the keep is
// let go like that of every order that waits no more.
func Make(in Input) Plan {
	r := run{passMost: in.PassMost, served: map[int64]bool{}, classes: map[string]*strips{}}
	var due []dueSeat
	for i := range in.Classes {
		c := stripsOf(&in.Classes[i])
		r.classes[c.ID] = c
		due = append(due, c.due()...)
	}
	slices.SortFunc(due, func(a, b dueSeat) int { return cmp.Compare(a.releases[0].ID, b.releases[0].ID) })
	for _, d := range due {
		r.seat(d)
	}
	for i := range in.Newcomers {
		r.newcomer(&in.Newcomers[i])
	}
	slices.Sort(r.plan.Considered)
	for _, c := range r.classes {
		for i := range c.queues {
			if q := &c.queues[i]; q.short {
				r.plan.Short = append(r.plan.Short, Queue{c.ID, q.Interval})
			}
		}
	}
	return r.plan
}

// run is a plan in the making.
type run struct {
	plan     Plan
	passMost int
	served   map[int64]bool // orders by number
	classes  map[string]*strips
}

// dueSeat is the unit of work: a seat with its due releases, oldest first.
type dueSeat struct {
	class    *strips
	number   int
	releases []Release
}

// due are the due seats of the class.
func (c *strips) due() []dueSeat {
	var all []dueSeat
	places := map[int]int{}
	for _, release := range c.Due {
		i, ok := places[release.Seat]
		if !ok {
			i = len(all)
			places[release.Seat] = i
			all = append(all, dueSeat{class: c, number: release.Seat})
		}
		all[i].releases = append(all[i].releases, release)
	}
	return all
}

// brought is the release that brought an interval.
func (d *dueSeat) brought(iv Interval) int64 {
	for _, release := range d.releases {
		if release.meets(iv) {
			return release.ID
		}
	}
	return d.releases[0].ID
}

// seat works at one due seat. One that is not among the seats given has no free
// leg: it is looked at all the same.
func (r *run) seat(d dueSeat) {
	r.plan.Considered = append(r.plan.Considered, d.number)
	if i, ok := d.class.index[d.number]; ok {
		for _, gap := range Gaps(d.class.seat(i)) {
			g := gapWork{r, d.class, &d, i, gap}
			stuck := g.stuck()
			g.keeps(stuck)
			g.exact()
			g.rest()
			g.passes(stuck)
		}
	}
}

// gapWork is the work at one gap of due seat i.
type gapWork struct {
	*run
	c   *strips
	due *dueSeat
	i   int
	gap Interval
}

// stuckHead is a group at the head of a queue that cannot be served.
type stuckHead struct {
	Interval
	order  *Order
	reason string
}

// stuck are the heads inside the gap that cannot be served, by score.
func (g *gapWork) stuck() []stuckHead {
	var heads []stuckHead
	for q := range g.c.queues {
		queue := &g.c.queues[q]
		if !queue.inside(g.gap) {
			continue
		}
		at := slices.IndexFunc(queue.orders, func(o Order) bool { return !g.served[o.Number] })
		if at < 0 {
			queue.short = queue.cut
			continue
		}
		head := &queue.orders[at]
		b := beside{c: g.c, seat: g.i, iv: queue.Interval}
		if b.fits(head) {
			continue
		}
		reason := NotTogether
		if b.seats(head, Apart) < head.Quantity-1 {
			reason = TooFew
		}
		heads = append(heads, stuckHead{queue.Interval, head, reason})
	}
	slices.SortFunc(heads, func(a, b stuckHead) int { return cmp.Compare(a.order.Score, b.order.Score) })
	return heads
}

// keeps is step 0.
func (g *gapWork) keeps(stuck []stuckHead) {
	for _, h := range stuck {
		if h.order.Passed < g.passMost || !g.c.free(g.i, h.Interval) {
			continue
		}
		kept := append(g.c.keptOf(h.order, h.Interval), g.c.keptNow[h.order.Number]...)
		if len(kept) > 0 && !slices.ContainsFunc(kept, func(i int) bool { return g.c.near(h.order.Together, g.i, i) }) {
			continue
		}
		g.c.take(g.i, h.Interval)
		g.c.keptNow[h.order.Number] = append(g.c.keptNow[h.order.Number], g.i)
		g.plan.Keeps = append(g.plan.Keeps, Keep{g.c.ID, h.order.Number, h.Interval, g.due.number, g.due.brought(h.Interval)})
	}
}

// exact is step 1.
func (g *gapWork) exact() {
	for _, release := range g.due.releases {
		if !release.inside(g.gap) || !g.c.free(g.i, release.Interval) {
			continue
		}
		if q, ok := g.c.places[release.Interval]; ok {
			if o := g.candidate(&g.c.queues[q]); o != nil {
				g.serve(g.c, o, release.Interval, g.i, release.ID, true)
			}
		}
	}
}

// rest is step 2.
func (g *gapWork) rest() {
	var offers []offer
	for q := range g.c.queues {
		queue := &g.c.queues[q]
		if !queue.inside(g.gap) || !g.c.free(g.i, queue.Interval) {
			continue
		}
		if o := g.candidate(queue); o != nil {
			offers = append(offers, offer{queue.Interval, o})
		}
	}
	for _, o := range best(g.gap, offers) {
		g.serve(g.c, o.order, o.Interval, g.i, g.due.brought(o.Interval), false)
	}
}

// passes is step 3.
func (g *gapWork) passes(stuck []stuckHead) {
	for _, h := range stuck {
		g.plan.Passes = append(g.plan.Passes, Pass{g.c.ID, h.order.Number, h.Interval, g.due.brought(h.Interval), h.reason})
	}
}

// candidate is the first order of the queue that can be served with the seat.
func (g *gapWork) candidate(q *queue) *Order {
	b := beside{c: g.c, seat: g.i, iv: q.Interval}
	for o := range g.candidates(q) {
		if b.fits(o) {
			return o
		}
	}
	return nil
}

// candidates are the first LookedAt of a queue that are not served.
func (r *run) candidates(q *queue) iter.Seq[*Order] {
	return func(yield func(*Order) bool) {
		looked := 0
		for k := range q.orders {
			if o := &q.orders[k]; !r.served[o.Number] {
				if looked++; looked > LookedAt || !yield(o) {
					return
				}
			}
		}
		if looked < LookedAt {
			q.short = q.cut
		}
	}
}

// newcomer is the turn of an order that nobody has looked at.
func (r *run) newcomer(n *Newcomer) {
	if r.served[n.Number] {
		return
	}
	for _, id := range n.Classes {
		c, ok := r.classes[id]
		if !ok || r.older(c, n) {
			continue
		}
		if i := c.tightest(&n.Order, n.Interval); i >= 0 {
			r.serve(c, &n.Order, n.Interval, i, 0, false)
			return
		}
	}
}

// older tells whether somebody in the newcomer's queue is before it and could be
// served.
func (r *run) older(c *strips, n *Newcomer) bool {
	q, ok := c.places[n.Interval]
	if !ok {
		return false
	}
	for o := range r.candidates(&c.queues[q]) {
		if o.Score >= n.Score {
			return false
		}
		if c.tightest(o, n.Interval) >= 0 {
			return true
		}
	}
	return false
}

// serve gives seat i, and the others of a group, to an order that can be served.
func (r *run) serve(c *strips, o *Order, iv Interval, i int, release int64, exact bool) {
	s := Serve{Class: c.ID, Order: o.Number, Interval: iv, Release: release, Exact: exact}
	seats := c.pick(o, iv, i)
	slices.Sort(seats)
	for _, j := range seats {
		number := c.Seats[j].Number
		s.Seats = append(s.Seats, number)
		if !c.free(j, iv) {
			s.LetGo = append(s.LetGo, number)
		}
		c.take(j, iv)
	}
	r.served[o.Number] = true
	r.plan.Serves = append(r.plan.Serves, s)
}
