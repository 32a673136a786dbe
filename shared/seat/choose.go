package seat

import (
	"cmp"
	"math"
	"slices"

	"handler/function/shared/catalog"
)

// Prefer is what a customer asks of "any n" seats.
type Prefer struct {
	Together   bool // in one row or bay, else one after another, else in one coach
	Window     bool // one of them at a window
	Accessible bool // one of them an accessible place, the others beside it
}

// cost says how good a proposal is; a smaller one is better, field by field in
// this order.
//
// First who else needs the places: accessible ones last, their companions'
// before them. Then what was asked. Then the fit that wastes least: free legs
// left over around the interval, so that the tightest gap is used first, and
// seats left alone between taken ones.
type cost struct {
	access  int
	apart   int // 0 one row, 1 one after another, 2 one coach, 3 anywhere; 0 unless asked for
	window  int
	waste   int // free legs of the gaps that the interval does not use
	singles int // seats left alone in their row, less those that were
}

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.access, d.access), cmp.Compare(c.apart, d.apart), cmp.Compare(c.window, d.window),
		cmp.Compare(c.waste, d.waste), cmp.Compare(c.singles, d.singles))
}

// layout is where the seats of a class are, by their index in it.
type layout struct {
	rows    [][]int32 // in layout order; a row is one coach's
	coaches [][]int32
	row     []int32 // of each seat
	kind    []kind
}

type kind struct{ window, accessible, companion bool }

func (m *Map) layoutOf(c *class) *layout {
	c.rowsOnce.Do(func() {
		type rowKey struct {
			coach string
			row   int
		}
		l := &c.layout
		rows, coaches := map[rowKey]int{}, map[string]int{}
		l.row = make([]int32, len(c.seats))
		l.kind = make([]kind, len(c.seats))
		for i, number := range c.seats {
			p, ok := m.sale.Place(int(number))
			if !ok { // added since this replica read the sale: a row of its own
				p = catalog.SeatPlace{Coach: "\x00", Row: -int(number)}
			}
			k := rowKey{p.Coach, p.Row}
			r, ok := rows[k]
			if !ok {
				r = len(l.rows)
				rows[k] = r
				l.rows = append(l.rows, nil)
			}
			l.rows[r] = append(l.rows[r], int32(i))
			l.row[i] = int32(r)
			co, ok := coaches[p.Coach]
			if !ok {
				co = len(l.coaches)
				coaches[p.Coach] = co
				l.coaches = append(l.coaches, nil)
			}
			l.coaches[co] = append(l.coaches[co], int32(i))
			l.kind[i] = kind{
				window:     slices.Contains(p.Attributes, catalog.Window),
				accessible: slices.Contains(p.Attributes, catalog.Accessible),
				companion:  slices.Contains(p.Attributes, catalog.Companion),
			}
		}
	})
	return &c.layout
}

// fitKey is one way of asking.
type fitKey struct {
	f, t, n int
	prefer  Prefer
	rest    bool // seats beside one that has fulfilled the wishes
	coaches bool // neighbours in a coach, not in a row
}

// maxFits bounds what one map keeps: the ways of asking that a second sees.
const maxFits = 256

// fits are the neighbours for one way of asking, the best first, in tiers of
// equals. A proposal is n indices of seats.
type fits struct {
	view  *view
	n     int
	seats []int32 // proposals one after another
	tiers []int   // how many proposals are in the tiers up to each
	best  cost
	floor int // no n free seats waste less than this
}

func (fs *fits) proposal(i int) []int32 { return fs.seats[i*fs.n : (i+1)*fs.n] }

// view is the free seats of a class on an interval.
type view struct {
	l    *layout
	key  fitKey
	free []bool
	// waste is the free legs around the interval in each free seat's gap.
	waste []int16
}

func (m *Map) view(c *class, key fitKey) *view {
	v := &view{l: m.layoutOf(c), key: key, free: make([]bool, len(c.seats)), waste: make([]int16, len(c.seats))}
	for i := range c.seats {
		if !c.free(i, key.f, key.t) {
			continue
		}
		v.free[i] = true
		strip := c.strip(i)
		for leg := key.f - 2; leg >= 0 && strip[leg] == Free; leg-- {
			v.waste[i]++
		}
		for leg := key.t; leg < len(strip) && strip[leg] == Free; leg++ {
			v.waste[i]++
		}
	}
	return v
}

// Choose proposes n seats of a class for legs f..t, by number and ascending, at
// random by pick (which gives 0 to its argument exclusively) among the best, so
// that a crowd does not collide. taken says which seats have gone since the map
// was read; nil for none. nil when the map has too few.
//
// Proposed are n neighbours in a row; where they are asked to be together, n one
// after another, or the best n of a coach; and the best n one by one: whichever
// costs least. Who did not ask still gets neighbours where one by one wastes as
// much.
func (m *Map) Choose(classID string, f, t, n int, prefer Prefer, pick func(int) int, taken func(number int) bool) []int {
	c := m.class(classID)
	if c == nil || f < 1 || t < f || t > m.legs || n < 1 || n > len(c.seats) {
		return nil
	}
	if n == 1 {
		prefer.Together = false
	}
	gone := func(i int32) bool { return taken != nil && taken(int(c.seats[i])) }
	key := fitKey{f: f, t: t, n: n, prefer: prefer}
	row := m.fitsOf(c, key)
	var got []int32
	if n == 1 || row.unbeaten() {
		got = row.draw(pick, gone)
	}
	if got == nil && n > 1 {
		got = m.best(c, key, row, pick, gone)
	}
	if got == nil {
		return nil
	}
	out := make([]int, n)
	for i, s := range got {
		out[i] = int(c.seats[s])
	}
	slices.Sort(out)
	return out
}

// unbeaten says that no other kind of proposal can cost less.
func (fs *fits) unbeaten() bool {
	if len(fs.tiers) == 0 || fs.best.access != 0 {
		return false
	}
	return fs.view.key.prefer.Together || fs.best.window == 0 && fs.best.waste <= fs.floor
}

// best compares every kind of proposal for more than one seat.
func (m *Map) best(c *class, key fitKey, row *fits, pick func(int) int, gone func(int32) bool) []int32 {
	type option struct {
		cost cost
		draw func() []int32
	}
	var options []option
	add := func(fs *fits) {
		if len(fs.tiers) > 0 {
			options = append(options, option{fs.best, func() []int32 { return fs.draw(pick, gone) }})
		}
	}
	add(row)
	each := m.oneByOne(c, key, pick, gone)
	set := func(line []int32, apart int) {
		seats := each(line)
		if seats == nil {
			return
		}
		c := row.view.cost(seats, apart)
		if !key.prefer.Together {
			c.singles = math.MaxInt // neighbours come first among equal waste
		}
		options = append(options, option{c, func() []int32 { return seats }})
	}
	if key.prefer.Together {
		coaches := key
		coaches.coaches = true
		add(m.fitsOf(c, coaches))
		lines := row.view.l.coaches
		for i, start := 0, pick(len(lines)); i < len(lines); i++ {
			set(lines[(start+i)%len(lines)], 2)
		}
	}
	set(nil, 3)
	slices.SortStableFunc(options, func(a, b option) int { return a.cost.compare(b.cost) })
	for _, o := range options {
		if got := o.draw(); got != nil {
			return got
		}
	}
	return nil
}

// oneByOne picks n seats of a line (nil: of all), each the best by itself: the
// first fulfils the wishes, the others stand beside it.
func (m *Map) oneByOne(c *class, key fitKey, pick func(int) int, gone func(int32) bool) func(line []int32) []int32 {
	first := key
	first.n, first.prefer.Together = 1, false
	rest := first
	rest.prefer.Window, rest.rest = false, true
	firsts := m.fitsOf(c, first)
	rests := firsts
	if rest.prefer != first.prefer || first.prefer.Accessible {
		rests = m.fitsOf(c, rest)
	}
	return func(line []int32) []int32 {
		in := func(s int32) bool {
			if line == nil {
				return !gone(s)
			}
			_, ok := slices.BinarySearch(line, s)
			return ok && !gone(s)
		}
		seats := firsts.some(nil, 1, pick, in)
		if len(seats) == 1 {
			seats = rests.some(seats, key.n, pick, in)
		}
		if len(seats) < key.n {
			return nil
		}
		slices.Sort(seats)
		return seats
	}
}

// draw is a random proposal of the best tier that has one not gone.
func (fs *fits) draw(pick func(int) int, gone func(int32) bool) []int32 {
	from := 0
	for _, to := range fs.tiers {
		start := pick(to - from)
		for k := range to - from {
			p := fs.proposal(from + (start+k)%(to-from))
			if !slices.ContainsFunc(p, gone) {
				return p
			}
		}
		from = to
	}
	return nil
}

// some adds to seats, until there are n, single seats that are right: the tiers in
// order, each from a random place on.
func (fs *fits) some(seats []int32, n int, pick func(int) int, right func(int32) bool) []int32 {
	from := 0
	for _, to := range fs.tiers {
		if len(seats) >= n {
			break
		}
		start := pick(to - from)
		for k := range to - from {
			if len(seats) == n {
				break
			}
			s := fs.proposal(from + (start+k)%(to-from))[0]
			if right(s) && !slices.Contains(seats, s) {
				seats = append(seats, s)
			}
		}
		from = to
	}
	return seats
}

// fitsOf lists the neighbours for a way of asking, once a map.
func (m *Map) fitsOf(c *class, key fitKey) *fits {
	c.fitsMu.Lock()
	defer c.fitsMu.Unlock()
	if fs, ok := c.fits[key]; ok {
		return fs
	}
	v := m.view(c, key)
	lines, apart := v.l.rows, 0
	if key.coaches {
		lines, apart = v.l.coaches, 1
	}
	fs := v.neighbours(lines, apart)
	if len(c.fits) < maxFits {
		if c.fits == nil {
			c.fits = map[fitKey]*fits{}
		}
		c.fits[key] = fs
	}
	return fs
}

func (v *view) neighbours(lines [][]int32, apart int) *fits {
	n := v.key.n
	type proposal struct {
		seats []int32
		cost  cost
	}
	var all []proposal
	for _, line := range lines {
		run := 0
		for i, s := range line {
			if !v.free[s] {
				run = 0
				continue
			}
			if run++; run >= n {
				seats := line[i-n+1 : i+1]
				all = append(all, proposal{seats, v.cost(seats, apart)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b proposal) int { return a.cost.compare(b.cost) })
	fs := &fits{view: v, n: n}
	for i, p := range all {
		fs.seats = append(fs.seats, p.seats...)
		if i+1 == len(all) || p.cost != all[i+1].cost {
			fs.tiers = append(fs.tiers, i+1)
		}
	}
	if len(all) > 0 {
		fs.best = all[0].cost
	}
	var wastes []int16
	for i, free := range v.free {
		if free {
			wastes = append(wastes, v.waste[i])
		}
	}
	slices.Sort(wastes)
	for _, w := range wastes[:min(n, len(wastes))] {
		fs.floor += int(w)
	}
	return fs
}

// cost of n free seats.
func (v *view) cost(seats []int32, apart int) cost {
	c := cost{access: v.access(seats), window: 1}
	if v.key.prefer.Together {
		c.apart = apart
	}
	for _, s := range seats {
		if v.l.kind[s].window {
			c.window = 0
		}
		c.waste += int(v.waste[s])
	}
	if !v.key.prefer.Window {
		c.window = 0
	}
	c.singles = v.singles(seats)
	return c
}

// access is 2 for each accessible place and 1 for each companion's that nobody
// asked for; when one was asked for, 0 for it, 1 for each other seat that is no
// companion's, 2 for a second accessible one, and a lot when there is none.
func (v *view) access(seats []int32) int {
	sum, accessible := 0, 0
	for _, s := range seats {
		k := v.l.kind[s]
		switch {
		case k.accessible:
			accessible++
			sum += 2
		case k.companion != v.key.prefer.Accessible:
			sum++
		}
	}
	if v.key.prefer.Accessible && !v.key.rest {
		if accessible == 0 {
			return sum + 1000
		}
		sum -= 2
	}
	return sum
}

// singles is how many free seats would be alone in their row after these are
// taken, less those that were alone before.
func (v *view) singles(seats []int32) int {
	sum := 0
	for i, s := range seats {
		if r := v.l.row[s]; i == 0 || v.l.row[seats[i-1]] != r {
			line := v.l.rows[r]
			sum += v.alone(line, seats) - v.alone(line, nil)
		}
	}
	return sum
}

func (v *view) alone(line, without []int32) int {
	n, run := 0, 0
	for _, s := range line {
		if v.free[s] && !slices.Contains(without, s) {
			run++
			continue
		}
		if run == 1 {
			n++
		}
		run = 0
	}
	if run == 1 {
		n++
	}
	return n
}
