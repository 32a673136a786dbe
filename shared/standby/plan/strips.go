package plan

import (
	"cmp"
	"slices"
)

// strips is a class as a run sees it: its seats, freer at the start than at the
// end, and its queues.
type strips struct {
	*Class
	index map[int]int // of a seat in Seats, by number

	// since and until are the first and the last leg of the free run around a leg
	// of a seat, 0 where it is taken. They lie leg by leg, so that the question
	// "which seats are free on f..t", the one a run asks most, reads one line.
	since, until []uint16

	row, coach    []int   // of each seat, by index: which of rows and of coaches
	rows, coaches [][]int // their seats, ascending

	queues []queue // by last leg, then first
	places map[Interval]int

	most    map[Interval]most
	keptNow map[int64][]int // what the run keeps for each order, by index
}

// queue is the orders that wait for an interval, as far as they are given.
type queue struct {
	Interval
	orders []Order
	cut    bool // there may be more
	short  bool // and they were asked for
}

// most is how many people could sit, each way of sitting, when it was asked first.
type most struct{ apart, row, coach int }

func stripsOf(in *Class) *strips {
	n := len(in.Seats)
	c := &strips{
		Class: in,
		index: make(map[int]int, n),
		since: make([]uint16, n*in.Legs),
		until: make([]uint16, n*in.Legs),
		row:   make([]int, n),
		coach: make([]int, n),
		most:  map[Interval]most{}, keptNow: map[int64][]int{},
	}
	for i := range in.Seats {
		c.index[in.Seats[i].Number] = i
		c.draw(i, in.Seats[i].Free)
	}
	c.rows = group(in.Seats, c.row, func(s *Seat) int { return s.Row })
	c.coaches = group(in.Seats, c.coach, func(s *Seat) int { return s.Coach })
	c.queues = make([]queue, 0, len(in.Queues))
	for iv, orders := range in.Queues {
		c.queues = append(c.queues, queue{Interval: iv, orders: orders, cut: in.Cut[iv]})
	}
	slices.SortFunc(c.queues, func(a, b queue) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From)) })
	c.places = make(map[Interval]int, len(c.queues))
	for i := range c.queues {
		c.places[c.queues[i].Interval] = i
	}
	return c
}

// group numbers the seats' keys and returns the seats of each.
func group(seats []Seat, of []int, key func(*Seat) int) [][]int {
	var groups [][]int
	numbers := map[int]int{}
	for i := range seats {
		k := key(&seats[i])
		g, ok := numbers[k]
		if !ok {
			g = len(groups)
			numbers[k] = g
			groups = append(groups, nil)
		}
		of[i] = g
		groups[g] = append(groups[g], i)
	}
	return groups
}

// at is where a leg of seat i stands in since and until.
func (c *strips) at(i, leg int) int { return (leg-1)*len(c.Seats) + i }

// draw writes the strip of seat i.
func (c *strips) draw(i int, free []bool) {
	var since, until uint16
	at := c.at(i, 1)
	for leg := range c.Legs {
		switch {
		case !free[leg]:
			since, until = 0, 0
		case until == 0:
			since, until = uint16(leg+1), uint16(leg+1)
			for int(until) < c.Legs && free[until] {
				until++
			}
		}
		c.since[at], c.until[at] = since, until
		at += len(c.Seats)
	}
}

// seat is seat i as it is now.
func (c *strips) seat(i int) Seat {
	s := c.Seats[i]
	s.Free = make([]bool, c.Legs)
	for leg := 1; leg <= c.Legs; leg++ {
		s.Free[leg-1] = c.until[c.at(i, leg)] > 0
	}
	return s
}

// take makes legs of seat i taken for the rest of the run.
func (c *strips) take(i int, iv Interval) {
	free := c.seat(i).Free
	clear(free[iv.From-1 : iv.To])
	c.draw(i, free)
}

func (c *strips) free(i int, iv Interval) bool {
	return int(c.until[c.at(i, iv.From)]) >= iv.To
}

// around is how many legs the free run around iv has, iv itself counted as free.
func (c *strips) around(i int, iv Interval) int {
	from, to := iv.From, iv.To
	if from > 1 && c.until[c.at(i, from-1)] > 0 {
		from = int(c.since[c.at(i, from-1)])
	}
	if to < c.Legs && c.until[c.at(i, to+1)] > 0 {
		to = int(c.until[c.at(i, to+1)])
	}
	return to - from + 1
}

// line is the seats among which a group with a person on seat i may sit, the
// seat itself included.
func (c *strips) line(together Together, i int) []int {
	switch together {
	case Row:
		return c.rows[c.row[i]]
	case Coach:
		return c.coaches[c.coach[i]]
	}
	return nil // all
}

// near tells whether seat j is on the line of seat i.
func (c *strips) near(together Together, i, j int) bool {
	switch together {
	case Row:
		return c.row[i] == c.row[j]
	case Coach:
		return c.coach[i] == c.coach[j]
	}
	return true
}

// column is, for each seat, the last leg of its free run around the first leg of
// iv: it is free on iv if that is iv.To or later.
func (c *strips) column(iv Interval) []uint16 {
	from := c.at(0, iv.From)
	return c.until[from : from+len(c.Seats)]
}

// keptOf are the seats that are kept for o on iv, by index: they are free for it
// and only for it. The house has them, so that they were taken when the run
// began: what the run itself gave away is never read as kept.
func (c *strips) keptOf(o *Order, iv Interval) []int {
	var kept []int
	for _, number := range o.Kept {
		if i, ok := c.index[number]; ok && !slices.Contains(c.Seats[i].Free[iv.From-1:iv.To], true) {
			kept = append(kept, i)
		}
	}
	return kept
}

// beside answers how many seats are free on an interval beside a seat that is,
// counted once for all orders of a queue.
type beside struct {
	c     *strips
	seat  int
	iv    Interval
	count [Coach + 1]int // by Together, the seat itself included; 0 before it is counted
}

// fits tells whether o can be served with the seat.
func (b *beside) fits(o *Order) bool {
	return o.Quantity == 1 || b.seats(o, o.Together) >= o.Quantity-1
}

// seats is how many seats o could have beside the seat.
func (b *beside) seats(o *Order, together Together) int {
	if b.count[together] == 0 {
		b.count[together] = b.c.countFree(b.c.line(together, b.seat), b.iv)
	}
	n := b.count[together] - 1
	for _, i := range b.c.keptOf(o, b.iv) {
		if b.c.near(together, b.seat, i) {
			n++
		}
	}
	return n
}

// countFree counts the seats of a line, nil for all, that are free on iv.
func (c *strips) countFree(line []int, iv Interval) (n int) {
	column, to := c.column(iv), uint16(iv.To)
	if line == nil {
		for _, until := range column {
			if until >= to {
				n++
			}
		}
		return n
	}
	for _, i := range line {
		if column[i] >= to {
			n++
		}
	}
	return n
}

// fit orders seats by how little they leave over around an interval: the shortest
// free run first, then the lowest number (a higher index is a higher number).
type fit int64

func (c *strips) fit(i int, iv Interval) fit { return fit(c.around(i, iv))<<32 | fit(i) }

func (f fit) seat() int { return int(f & (1<<32 - 1)) }

// pick is the seats for o with seat i among them, by index, the others the
// tightest. There must be enough.
func (c *strips) pick(o *Order, iv Interval, i int) []int {
	seats := []int{i}
	if o.Quantity == 1 {
		return seats
	}
	var others []fit
	for _, j := range c.usable(o, iv) {
		if j != i && c.near(o.Together, i, j) {
			others = append(others, c.fit(j, iv))
		}
	}
	slices.Sort(others)
	for _, f := range others[:o.Quantity-1] {
		seats = append(seats, f.seat())
	}
	return seats
}

// usable are the seats that are free on iv for o, by index.
func (c *strips) usable(o *Order, iv Interval) []int {
	var seats []int
	for i, until := range c.column(iv) {
		if int(until) >= iv.To {
			seats = append(seats, i)
		}
	}
	return append(seats, c.keptOf(o, iv)...)
}

// tightest is the seat of the class with which o can be served on iv that leaves
// the least over, -1 if there is none.
func (c *strips) tightest(o *Order, iv Interval) int {
	if len(o.Kept) == 0 && !c.room(o, iv) {
		return -1
	}
	usable := c.usable(o, iv)
	line := func(int) int { return 0 }
	switch o.Together {
	case Row:
		line = func(i int) int { return c.row[i] }
	case Coach:
		line = func(i int) int { return c.coach[i] }
	}
	count := make([]int, 1+max(len(c.rows), len(c.coaches))) // of each line
	for _, i := range usable {
		count[line(i)]++
	}
	best := fit(-1)
	for _, i := range usable {
		if count[line(i)] >= o.Quantity {
			if f := c.fit(i, iv); best < 0 || f < best {
				best = f
			}
		}
	}
	if best < 0 {
		return -1
	}
	return best.seat()
}

// room tells whether there was room on iv for a group of o's kind for which
// nothing is kept, when that was asked first: seats only grow fewer, so a no
// stays a no. Hundreds of newcomers ask of the same few intervals.
func (c *strips) room(o *Order, iv Interval) bool {
	m, ok := c.most[iv]
	if !ok {
		m.apart = c.countFree(nil, iv)
		for _, line := range c.rows {
			m.row = max(m.row, c.countFree(line, iv))
		}
		for _, line := range c.coaches {
			m.coach = max(m.coach, c.countFree(line, iv))
		}
		c.most[iv] = m
	}
	switch o.Together {
	case Row:
		return m.row >= o.Quantity
	case Coach:
		return m.coach >= o.Quantity
	}
	return m.apart >= o.Quantity
}
