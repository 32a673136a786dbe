// Package catalog owns what is on sale: the sale with its stops, classes, fares
// and seat places, its states and their legal moves, and the reader through
// which every other package looks a sale up.
//
// One model serves all kinds: a screening is a train with one leg, a hotel a
// train whose legs are nights.
package catalog

import (
	"strconv"
	"strings"
	"time"

	"handler/function/shared/money"
	"handler/function/shared/problem"
)

// Kind says what is sold.
type Kind string

// The kinds of sale.
const (
	Train Kind = "train"
	Show  Kind = "show"
	Stay  Kind = "stay"
)

// Kinds lists every kind in the order messages name them.
var Kinds = []Kind{Train, Show, Stay}

// Sale is one sale as loaded from Postgres. It is shared between requests: its
// fields and slices are never written after loading.
type Sale struct {
	ID          int64
	Room        int64 // the waiting room in front of it; 0 = none
	Org         string
	Kind        Kind
	Title       string
	Number      string
	ServiceDate string // YYYY-MM-DD in Timezone; a departure at 25:10 belongs to the day before
	Timezone    string // IANA name of the zone the service date is counted in
	State       State
	Stops       []Stop
	Classes     []Class
	Places      []SeatPlace // by seat number: Places[number-1]
	Legs        int         // len(Stops)-1
	Currency    string      // ISO 4217
	OpensAt     time.Time
	ClosesAt    time.Time
	DepartsAt   time.Time // first known departure; see DepartsFrom for the others
	// HoldSeconds is the length of a hold, ExtendSeconds how much all extensions
	// together may add to it.
	HoldSeconds   int
	ExtendSeconds int
	BookingLimit  int // seats of one booking
	AccountLimit  int // live seats of one account
	Gateways      []string
	Test          bool
	Version       int64 // raised when stops, classes or places change

	stopIndex  map[string]int
	classIndex map[string]int
	seatNumber map[string]int
	classSeats map[string][]int
	searchText string // lower case; of listed sales alone
}

// index builds the look-up tables. It is called once, before a sale is shared.
func (s *Sale) index() {
	s.Legs = len(s.Stops) - 1
	s.stopIndex = make(map[string]int, len(s.Stops))
	for i, stop := range s.Stops {
		s.stopIndex[stop.ID] = i
	}
	s.classIndex = make(map[string]int, len(s.Classes))
	for i, class := range s.Classes {
		s.classIndex[class.ID] = i
	}
	s.seatNumber = make(map[string]int, len(s.Places))
	s.classSeats = make(map[string][]int, len(s.Classes))
	for i, place := range s.Places {
		s.seatNumber[place.Name()] = i + 1
		s.classSeats[place.Class] = append(s.classSeats[place.Class], i+1)
	}
}

// IDString is the sale's id as the HTTP API writes it.
func (s *Sale) IDString() string { return strconv.FormatInt(s.ID, 10) }

// RoomString is the room's id as the HTTP API writes it, empty without a room.
func (s *Sale) RoomString() string {
	if s.Room == 0 {
		return ""
	}
	return strconv.FormatInt(s.Room, 10)
}

// Interval turns two stop ids into 1-based legs, both inclusive: from stop i to
// stop j covers legs i+1..j. Both empty means the whole of a sale with one leg.
// Unknown stops, a wrong order, and stops where boarding or alighting is not
// possible are "invalid" errors that name the field.
func (s *Sale) Interval(fromStopID, toStopID string) (f, t int, err error) {
	if fromStopID == "" && toStopID == "" && s.Legs == 1 {
		return 1, 1, nil
	}
	if f, t, err = s.legs(fromStopID, toStopID); err != nil {
		return 0, 0, err
	}
	if s.From(f).Board == CallNo {
		return 0, 0, problem.Invalid("from", "nobody may board at this stop")
	}
	if s.To(t).Alight == CallNo {
		return 0, 0, problem.Invalid("to", "nobody may alight at this stop")
	}
	return f, t, nil
}

// legs are those between two stops, whether or not one may board and alight.
func (s *Sale) legs(fromStopID, toStopID string) (f, t int, err error) {
	i, ok := s.stopIndex[fromStopID]
	if !ok {
		return 0, 0, problem.Invalid("from", "must be the id of a stop of this sale")
	}
	j, ok := s.stopIndex[toStopID]
	if !ok {
		return 0, 0, problem.Invalid("to", "must be the id of a stop of this sale")
	}
	if i >= j {
		return 0, 0, problem.Invalid("to", "must be a later stop than from")
	}
	return i + 1, j, nil
}

// From is the stop at which leg f (1-based) begins.
func (s *Sale) From(f int) Stop { return s.Stops[f-1] }

// To is the stop at which leg t (1-based) ends.
func (s *Sale) To(t int) Stop { return s.Stops[t] }

// Class finds a class by its id.
func (s *Sale) Class(id string) (Class, bool) {
	i, ok := s.classIndex[id]
	if !ok {
		return Class{}, false
	}
	return s.Classes[i], true
}

// Price is the price of one seat (or room) of a class for legs f..t, 1-based
// and inclusive. An unknown class or a pair of stops without a fare is an
// "invalid" error that names the field.
func (s *Sale) Price(class string, f, t int) (money.Amount, error) {
	c, ok := s.Class(class)
	if !ok {
		return money.Amount{}, problem.Invalid("class", "must be a class of this sale")
	}
	if f < 1 || t < f || t > s.Legs {
		return money.Amount{}, problem.Invalid("to", "must be a later stop than from")
	}
	amount, ok := c.Fare.price(s.Stops, f, t)
	if !ok {
		return money.Amount{}, problem.Invalid("to", "this class has no fare between these stops")
	}
	return money.Amount{Amount: amount, Currency: s.Currency}, nil
}

// SeatNumber is the 1-based number of the seat with a shown name such as "3-12A".
func (s *Sale) SeatNumber(name string) (int, bool) {
	n, ok := s.seatNumber[name]
	return n, ok
}

// SeatName is the shown name of a seat, empty if there is no such number.
func (s *Sale) SeatName(number int) string {
	if p, ok := s.Place(number); ok {
		return p.Name()
	}
	return ""
}

// Place is the place of a seat number.
func (s *Sale) Place(number int) (SeatPlace, bool) {
	if number < 1 || number > len(s.Places) {
		return SeatPlace{}, false
	}
	return s.Places[number-1], true
}

// ClassSeats are the numbers of a class's seats in layout order. The slice is
// shared: do not write to it.
func (s *Sale) ClassSeats(class string) []int { return s.classSeats[class] }

// DepartsFrom is when nothing from the boarding stop of leg f (1-based) on is
// sold or paid for any more: its departure, or the last time known before it
// where the timetable leaves it blank. A stay is sold to the end of its last
// night.
func (s *Sale) DepartsFrom(f int) time.Time {
	if s.Kind == Stay {
		return s.DepartsAt
	}
	for i := min(f, len(s.Stops)) - 1; i >= 0; i-- {
		if at := s.Stops[i].Departs; at != nil {
			return *at
		}
		if at := s.Stops[i].Arrives; at != nil {
			return *at
		}
	}
	return s.DepartsAt
}

// OpenAt says whether a new hold from leg f on may be made at that moment: the
// early look of the rule that the SQL functions decide on the database clock.
// What is already held may be paid until the hold's own limit.
// Errors: not-open-yet (with the time to wait), paused, sale-closed.
func (s *Sale) OpenAt(now time.Time, f int) error {
	switch s.State {
	case Open, Paused:
	case Draft:
		return problem.New(problem.NotOpenYet, "This sale is not open yet.")
	default:
		return problem.New(problem.SaleClosed, "This sale is closed.")
	}
	if !now.Before(s.ClosesAt) || !now.Before(s.DepartsFrom(f)) {
		return problem.New(problem.SaleClosed, "This sale is closed.")
	}
	if now.Before(s.OpensAt) {
		return problem.New(problem.NotOpenYet, "This sale is not open yet.").After(s.OpensAt.Sub(now))
	}
	if s.State == Paused {
		return problem.New(problem.Paused, "This sale is paused. Please try again later.").After(pausedRetry)
	}
	return nil
}

// pausedRetry is what a paused sale answers as Retry-After: a pause is lifted by
// a person, so asking more often is useless.
const pausedRetry = 10 * time.Second

// ParseID reads a sale or room id of the HTTP API: a positive decimal of at most
// 18 digits without sign or leading zero.
func ParseID(s string) (int64, bool) {
	if s == "" || len(s) > 18 || s[0] == '0' || strings.TrimLeft(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n > 0
}
