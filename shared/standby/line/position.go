package line

import (
	"context"
	"math"
	"time"
)

// What a position says (DESIGN 8): exact to 100, "within the first 1,000", then
// an estimate from the matches of the last 24 hours.
const (
	exactTo  = 100
	withinTo = 1000
	lookedAt = 10 // orders of a queue that `match` looks at
	day      = 24 * time.Hour
)

// Answer is an order's place, as a replica knows it.
type Answer struct {
	Known       bool // false: the queue cannot be read, is not built, or was not asked about this order yet: position later
	Queued      bool // it stands in this queue; when Known and not Queued, Postgres says where it is
	Exact       int  // 1 to 100, else 0
	Within      int  // 1,000 where it stands within these, else 0
	WaitSeconds *int // an estimate for those behind; nil: nothing was matched in 24 hours
	Length      int  // of the queue
	AsOf        time.Time
	Why         *Why // nil: no release touched the interval lately. The caller leaves out one older than the order
}

// Position is where an order stands in one of its queues. It is answered from the
// replica's copy of the queue, which is at most twice Refresh old (10 s): it costs
// Redis at most one call a queue every Refresh, however many ask, and Postgres
// nothing. An order behind the first 1,000 is not known before the copy has been
// made anew after it was first asked about.
func (l *Lines) Position(ctx context.Context, sale, number int64, class string, from, to int) Answer {
	e := l.entry(place{sale, Queue{class, from, to}})
	snap := l.look(ctx, e, number)
	if snap == nil || !snap.known {
		return Answer{}
	}
	a := Answer{Known: true, Length: snap.length, AsOf: snap.at}
	if i, ok := snap.index[number]; ok {
		a.Queued = true
		if i < exactTo {
			a.Exact = i + 1
		} else {
			a.Within = withinTo
		}
		a.Why = why(snap.said, e.Queue, snap.head[i].score, i < lookedAt)
		return a
	}
	if snap.length <= len(snap.head) || len(snap.head) == 0 {
		return a
	}
	w := e.watching(number)
	switch last := snap.head[len(snap.head)-1].score; {
	case w.checked.IsZero():
		return Answer{Length: a.Length, AsOf: a.AsOf}
	case w.score <= last: // it is not there, or left from between those
		return a
	}
	a.Queued = true
	a.Why = why(snap.said, e.Queue, w.score, false)
	rank := snap.rank(w.score)
	if rank < withinTo {
		a.Within = withinTo
		return a
	}
	a.WaitSeconds = snap.wait(rank)
	return a
}

// wait estimates how long the order at a rank (0 is the first) waits.
func (s *snapshot) wait(rank int) *int {
	rate := s.here
	if rate <= 0 {
		rate = s.sale
	}
	if rate <= 0 {
		return nil
	}
	seconds := int(math.Min(float64(rank+1)*day.Seconds()/float64(rate), math.MaxInt32))
	return &seconds
}
