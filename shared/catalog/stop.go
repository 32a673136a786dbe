package catalog

import (
	"math"
	"time"
)

// Call says whether one may board or alight at a stop. "request" is sold like
// "yes"; the passenger is told to ask (GTFS pickup_type and drop_off_type 2 and 3).
type Call string

// The values of Call.
const (
	CallYes     Call = "yes"
	CallNo      Call = "no"
	CallRequest Call = "request"
)

// Stop is one stop of a sale, in order. Ids are unique within the sale: a route
// that calls twice at X has X and X#2.
type Stop struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Timezone string     `json:"timezone"` // IANA; times are shown in it
	Arrives  *time.Time `json:"arrives"`  // nil: not published
	Departs  *time.Time `json:"departs"`
	Board    Call       `json:"board"`
	Alight   Call       `json:"alight"`
	Km       float64    `json:"km"` // from the first stop; never falls
}

// metres from the first stop; exact for the three decimals a document may have.
func (s Stop) metres() int64 { return int64(math.Round(s.Km * 1000)) }

// local puts the stop's times into its own zone, for showing.
func (s Stop) local() Stop {
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return s // Validate refuses unknown zones; an old row is still shown
	}
	if s.Arrives != nil {
		at := s.Arrives.In(zone)
		s.Arrives = &at
	}
	if s.Departs != nil {
		at := s.Departs.In(zone)
		s.Departs = &at
	}
	return s
}
