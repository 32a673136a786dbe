package rush

import (
	"math"
	"math/rand/v2"
	"time"
)

// Shares of the crowd, as fractions of one. Where a number is not the design's
// (30 % unpaid), it is chosen so that a crowd of a few hundred has some of each.
const (
	shareScript  = 0.02 // taps before the opening and joins again and again
	shareLeaver  = 0.10 // closes the page at some moment while waiting
	shareSleeper = 0.10 // the phone sleeps for a while and wakes
	shareDoubler = 0.02 // sends every request twice
	shareChooser = 0.30 // picks seats on the map; the others take any
)

// earlyTap is how long before the opening a script begins to tap.
const earlyTap = 2 * time.Second

// character is what kind of person one is; a person can be several.
type character struct {
	arrives time.Duration // after the opening of the line
	script  bool
	doubler bool
	chooser bool
	unpaid  bool
	sleeps  time.Duration // how long the phone sleeps once in line; 0: never
	leaves  time.Duration // how long after joining the page is closed; 0: stays
	from    int           // stop index where the journey begins
	to      int           // stop index where it ends, > from
}

// arrival gives a moment in [0, window): the density falls by e each third of
// the window, so that two in three come in the first third.
func arrival(r *rand.Rand, window time.Duration) time.Duration {
	const fall = 3.0
	u := r.Float64()
	return time.Duration(-math.Log(1-u*(1-math.Exp(-fall))) / fall * float64(window))
}

// draft makes the crowd. The same seed gives the same crowd. span is the time
// from the opening within which people leave or sleep.
func draft(r *rand.Rand, people, legs int, window, span time.Duration, unpaid float64) []character {
	crowd := make([]character, people)
	for i := range crowd {
		c := &crowd[i]
		c.arrives = arrival(r, window)
		c.script = r.Float64() < shareScript
		c.doubler = r.Float64() < shareDoubler
		c.chooser = r.Float64() < shareChooser
		c.unpaid = r.Float64() < unpaid
		if c.script {
			c.arrives = -earlyTap + time.Duration(r.Int64N(int64(earlyTap)))
		} else if r.Float64() < shareLeaver {
			c.leaves = time.Second + time.Duration(r.Int64N(int64(span)))
		} else if r.Float64() < shareSleeper {
			c.sleeps = span/8 + time.Duration(r.Int64N(int64(span/2)))
		}
		c.from = r.IntN(legs)
		c.to = c.from + 1 + r.IntN(legs-c.from)
	}
	return crowd
}
