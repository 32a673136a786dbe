package model

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The two ways to choose among offers agree where both can be gone.
func TestTriedAndAdded(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	ties := 0
	for range 3_000 {
		legs := 1 + r.IntN(7)
		var offers []Offer
		for f := 1; f <= legs; f++ {
			for to := f; to <= legs; to++ {
				if r.IntN(2) == 0 {
					offers = append(offers, Offer{f, to, 1 + r.IntN(2), 0})
				}
			}
		}
		for i, score := range r.Perm(len(offers)) {
			offers[i].Score = int64(score + 1)
		}
		tried, others := Tried(offers)
		added := Added(offers, 1, legs)
		byLeg := func(a, b Offer) int { return a.From - b.From }
		slices.SortFunc(tried, byLeg)
		slices.SortFunc(added, byLeg)
		if !slices.Equal(tried, added) {
			t.Fatalf("seed %d: of %v tried %v, added %v", seed, offers, tried, added)
		}
		if others > 0 {
			ties++
		}
	}
	if ties < 500 {
		t.Errorf("only %d ties", ties)
	}
}
