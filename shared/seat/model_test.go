package seat

// A slow model of the map and the choice: plain loops over plain data, written
// from DESIGN section 5 and using nothing of the package.

type slowSeat struct {
	coach                         string
	row                           int
	window, accessible, companion bool
	legs                          []int // 0 free
}

func slowFree(s slowSeat, f, t int) bool {
	for leg := f; leg <= t; leg++ {
		if s.legs[leg-1] != 0 {
			return false
		}
	}
	return true
}

func slowLeft(seats []slowSeat, f, t int) (n int) {
	for _, s := range seats {
		if slowFree(s, f, t) {
			n++
		}
	}
	return n
}

func slowAny(seats []slowSeat, sold func(f, t int) bool) (n int) {
	for _, s := range seats {
		can := false
		for f := 1; f <= len(s.legs); f++ {
			for t := f; t <= len(s.legs); t++ {
				can = can || sold(f, t) && slowFree(s, f, t)
			}
		}
		if can {
			n++
		}
	}
	return n
}

// slowWaste is the free legs beside legs f..t in their gap.
func slowWaste(s slowSeat, f, t int) (n int) {
	for leg := f - 1; leg >= 1 && s.legs[leg-1] == 0; leg-- {
		n++
	}
	for leg := t + 1; leg <= len(s.legs) && s.legs[leg-1] == 0; leg++ {
		n++
	}
	return n
}

type slowAsk struct {
	f, t, n                      int
	together, window, accessible bool
}

// slowCost: access, apart, window, waste, singles.
type slowCost [5]int

func (a slowCost) less(b slowCost) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func slowAccess(seats []slowSeat, set []int, accessible bool) int {
	sum, found := 0, 0
	for _, i := range set {
		switch {
		case seats[i].accessible:
			sum += 2
			found++
		case accessible && !seats[i].companion, !accessible && seats[i].companion:
			sum++
		}
	}
	if accessible && found == 0 {
		return sum + 1000
	}
	if accessible {
		return sum - 2
	}
	return sum
}

// slowAlone counts the free seats with no free neighbour in their row.
func slowAlone(seats []slowSeat, f, t int, gone []int) (n int) {
	free := func(i int) bool {
		for _, g := range gone {
			if g == i {
				return false
			}
		}
		return slowFree(seats[i], f, t)
	}
	for i := range seats {
		if !free(i) {
			continue
		}
		left, right := -1, -1
		for j := range seats {
			if seats[j].coach == seats[i].coach && seats[j].row == seats[i].row {
				if j < i {
					left = j
				}
				if j > i && right < 0 {
					right = j
				}
			}
		}
		if (left < 0 || !free(left)) && (right < 0 || !free(right)) {
			n++
		}
	}
	return n
}

func slowCostOf(seats []slowSeat, set []int, a slowAsk, apart int) slowCost {
	c := slowCost{slowAccess(seats, set, a.accessible)}
	if a.together {
		c[1] = apart
	}
	if a.window {
		c[2] = 1
		for _, i := range set {
			if seats[i].window {
				c[2] = 0
			}
		}
	}
	for _, i := range set {
		c[3] += slowWaste(seats[i], a.f, a.t)
	}
	c[4] = slowAlone(seats, a.f, a.t, set) - slowAlone(seats, a.f, a.t, nil)
	return c
}

// slowRuns are n seats that follow one another in a line and are all free.
func slowRuns(seats []slowSeat, a slowAsk, same func(i, j int) bool) (all [][]int) {
	for i := range seats {
		set := []int{}
		for j := i; j < len(seats) && len(set) < a.n; j++ {
			if !same(i, j) {
				continue
			}
			if !slowFree(seats[j], a.f, a.t) {
				break
			}
			set = append(set, j)
		}
		if len(set) == a.n {
			all = append(all, set)
		}
	}
	return all
}

// slowEach is the n seats of a line that are best one by one.
func slowEach(seats []slowSeat, a slowAsk, in func(i int) bool) []int {
	set := []int{}
	for len(set) < a.n {
		one := slowAsk{f: a.f, t: a.t, n: 1, window: a.window && len(set) == 0, accessible: a.accessible}
		best, bestCost := -1, slowCost{}
		for i := range seats {
			taken := false
			for _, s := range set {
				taken = taken || s == i
			}
			if taken || !in(i) || !slowFree(seats[i], a.f, a.t) {
				continue
			}
			c := slowCostOf(seats, []int{i}, one, 0)
			if len(set) > 0 && a.accessible { // beside the one that was asked for
				c[0] = map[bool]int{true: 2, false: 1}[seats[i].accessible]
				if seats[i].companion && !seats[i].accessible {
					c[0] = 0
				}
			}
			if best < 0 || c.less(bestCost) {
				best, bestCost = i, c
			}
		}
		if best < 0 {
			return nil
		}
		set = append(set, best)
	}
	return set
}

// slowBest is the least cost of any proposal; near says that neighbours in a row
// have it, and their least is all of it.
func slowBest(seats []slowSeat, a slowAsk) (best slowCost, near, ok bool) {
	sameRow := func(i, j int) bool { return seats[i].coach == seats[j].coach && seats[i].row == seats[j].row }
	sameCoach := func(i, j int) bool { return seats[i].coach == seats[j].coach }
	better := func(c slowCost) bool { return !ok || c.less(best) }
	for _, set := range slowRuns(seats, a, sameRow) {
		if c := slowCostOf(seats, set, a, 0); better(c) {
			best, near, ok = c, true, true
		}
	}
	if a.n == 1 {
		return best, near, ok
	}
	less := func(c slowCost) bool { c[4] = 1 << 30; return better(c) }
	if a.together {
		for _, set := range slowRuns(seats, a, sameCoach) {
			if c := slowCostOf(seats, set, a, 1); better(c) {
				best, near, ok = c, false, true
			}
		}
		for i := range seats {
			if set := slowEach(seats, a, func(j int) bool { return sameCoach(i, j) }); set != nil {
				if c := slowCostOf(seats, set, a, 2); less(c) {
					best, near, ok = c, false, true
				}
			}
		}
	}
	if set := slowEach(seats, a, func(int) bool { return true }); set != nil {
		if c := slowCostOf(seats, set, a, 3); less(c) {
			best, near, ok = c, false, true
		}
	}
	return best, near, ok
}
