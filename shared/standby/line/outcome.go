package line

import "time"

// Outcome is what came of one release, as `match` decided it: it stands in
// seat_release.outcome, and in Redis for the answer to "why not me?".
type Outcome struct {
	Event  string    `json:"event"` // REFUND, TIMEOUT, RESCHEDULE, EXTRA_SEAT or ABANDON
	At     time.Time `json:"at"`    // of the release
	From   int       `json:"from"`  // the legs released, from 1, both inclusive
	To     int       `json:"to"`
	Gaps   [][2]int  `json:"gaps"`   // the free legs of the seat that were offered
	Served []Served  `json:"served"` // who got this seat
	Kept   int       `json:"kept"`   // legs' runs kept for groups that were passed too often
}

// Served is one order that got the seat.
type Served struct {
	From     int   `json:"from"`
	To       int   `json:"to"`
	Quantity int   `json:"quantity"` // seats of the order, of which this is one
	Score    int64 `json:"score"`
	Exact    bool  `json:"exact"` // exactly its interval came free, and that queue goes first
}
