package plan

import "slices"

// offer is an order that a gap's legs could be given to.
type offer struct {
	Interval
	order *Order
}

// weight is the passenger-legs: how many people travel how far.
func (o offer) weight() int { return o.order.Quantity * o.legs() }

// prefix is the best choice for the legs up to one of a gap.
type prefix struct {
	weight int
	scores []int64 // of the chosen, ascending
	last   int     // of the chosen, by place in the offers; -1 for none
	before int     // the prefix that the last one was added to
}

// best chooses from the offers, which lie inside the gap and are in order of
// their last leg, a set of disjoint ones with the most passenger-legs. Among
// equals it is the one whose ascending list of scores is lexicographically
// smallest. The chosen are returned from left to right.
//
// That the best of a prefix is enough to go on from, under this tie rule too: no
// weight is zero, so of two sets of equal weight neither contains the other, and
// the smaller list is that of the set with the oldest order that only one of
// them has. Whatever is added to both of them does not change which that is.
func best(gap Interval, offers []offer) []offer {
	prefixes := make([]prefix, gap.legs()+1)
	prefixes[0].last = -1
	next := 0
	var scores []int64 // of one try, made in place
	for k := 1; k < len(prefixes); k++ {
		p := &prefixes[k]
		*p = prefixes[k-1] // shares its scores, which nobody changes
		for ; next < len(offers) && offers[next].To == gap.From+k-1; next++ {
			o := offers[next]
			before := o.From - gap.From
			weight := prefixes[before].weight + o.weight()
			if weight < p.weight {
				continue
			}
			scores = append(scores[:0], prefixes[before].scores...)
			at, _ := slices.BinarySearch(scores, o.order.Score)
			scores = slices.Insert(scores, at, o.order.Score)
			if weight > p.weight || slices.Compare(scores, p.scores) < 0 {
				*p = prefix{weight, slices.Clone(scores), next, before}
			}
		}
	}
	var chosen []offer
	for p := prefixes[len(prefixes)-1]; p.last >= 0; p = prefixes[p.before] {
		chosen = append(chosen, offers[p.last])
	}
	slices.Reverse(chosen)
	return chosen
}
