package room

import "time"

const (
	// maxStep is the longest time one tick makes up for. After an outage the line
	// goes on from where it was; it does not jump.
	maxStep = 2 * time.Second
	// maxBoost bounds the correction for served people who do not come.
	maxBoost = 2.0
	// pollSpan is the longest a waiting person near the front waits before asking
	// again (pollAfter); whoever was served two of them ago and has not come,
	// stays away.
	pollSpan = 6 * time.Second
	// showUpWindow is how much running time the correction looks at, before the
	// last two polls.
	showUpWindow = 60 * time.Second
	// showUpPeople is the least number of served places that says anything.
	showUpPeople = 20
)

// trailStep is how often the trail keeps a point: as a part of the lapse, at
// least every second, at most every five.
func trailStep(lapse time.Duration) time.Duration {
	return min(max(lapse/120, time.Second), 5*time.Second)
}

// progress is how far a room has come: what the tick moves.
type progress struct {
	serving   int64
	part      float64 // of the next place, 0 to less than 1
	lapsed    int64
	runningMS int64
}

// trailPoint says where serving stood when the room had run for so long.
type trailPoint struct {
	runningMS, serving int64
}

// advance moves serving on by elapsed at rate places a second, never past the
// end of the line, and the running time with it. lapse is the running time after
// which a served place lapses; trail is ascending.
func (p progress) advance(elapsed time.Duration, rate float64, end int64, lapse time.Duration, trail []trailPoint) progress {
	elapsed = min(max(elapsed, 0), maxStep)
	p.runningMS += elapsed.Milliseconds()
	p.part += elapsed.Seconds() * rate
	whole := int64(p.part)
	p.serving += whole
	p.part -= float64(whole)
	if p.serving >= end {
		// An empty line gathers no right to let a crowd in at once.
		p.serving, p.part = max(p.serving-whole, end), 0
	}
	for _, t := range trail {
		if t.runningMS <= p.runningMS-lapse.Milliseconds() {
			p.lapsed = max(p.lapsed, min(t.serving, p.serving))
		}
	}
	return p
}

// window is the places whose show-up counts: those served in showUpWindow before
// the last two polls, as (after, upTo].
func window(p progress, trail []trailPoint) (after, upTo int64) {
	recent := p.runningMS - 2*pollSpan.Milliseconds()
	for _, t := range trail {
		if t.runningMS <= recent {
			upTo = max(upTo, t.serving)
		}
		if t.runningMS <= recent-showUpWindow.Milliseconds() {
			after = max(after, t.serving)
		}
	}
	return after, upTo
}

// boost is by how much faster serving moves because only some of the served
// people come: between 1 and maxBoost.
func boost(served, came int64) float64 {
	if served < showUpPeople || came >= served {
		return 1
	}
	if float64(served) >= maxBoost*float64(came) {
		return maxBoost
	}
	return float64(served) / float64(came)
}
