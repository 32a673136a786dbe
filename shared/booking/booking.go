// Package booking owns one customer's purchase on one sale, from hold to
// ticket: what it is, its states and their legal moves, and how it is made,
// read, renamed and let go. The moves of its seats are SQL functions beside it
// (migrations/00002_seat.sql and 00003_booking.sql); payment and confirm are
// the package payment's.
package booking

import (
	"time"

	"handler/function/shared/money"
)

// Origin says who made a booking.
type Origin string

// The origins of a booking. House bookings are blocked or kept seats: they have
// no price and no limit.
const (
	ByCustomer Origin = "customer"
	BySeller   Origin = "seller"
	ByMatch    Origin = "match"
	ByExchange Origin = "exchange"
	ByHouse    Origin = "house"
)

// Booking is one booking as it stood when it was read.
type Booking struct {
	Sale    int64
	Number  int64  // within the sale, 1 to id.MaxBooking
	ID      string // the public id
	Locator string // the short human code
	Account string
	// Admission is the room's admission it was made with; 0 for none.
	Admission int64
	Class     string
	From, To  string // stop ids
	// LegFrom and LegTo are the legs it covers, 1-based and inclusive.
	LegFrom, LegTo int
	// Seats are the shown names and SeatNumbers the numbers of the seats, both in
	// order of number and empty where the class is counted.
	Seats       []string
	SeatNumbers []int
	Quantity    int          // seats or rooms
	Price       money.Amount // of the whole booking
	// State is Expired as soon as a hold's end has passed on the database's
	// clock, whether or not its row has been moved.
	State  State
	MadeAt time.Time
	// EndsAt is the end of the hold; LimitAt the latest it may be extended to, or
	// be rescued after.
	EndsAt, LimitAt time.Time
	EndedAt         time.Time // when it stopped being live for good; zero before
	Departs         time.Time // from its first stop; zero where not published
	Passengers      []Passenger
	Contact         Contact
	Group           string // the group of a linked booking; may be empty
	Origin          Origin
	History         []Event // oldest first
	TraceID         string  // of the request that made it
	ReadAt          time.Time
}

// Passenger is who travels on one seat of a booking.
type Passenger struct {
	Name     string `json:"name"`
	Category string `json:"category,omitempty"` // adult, child, … as the organiser's terms name it
	Document string `json:"document,omitempty"` // of identity; shown to the gate and the organiser only
}

// Contact is where news of a booking goes. All of it may be empty.
type Contact struct {
	Email    string `json:"email,omitempty"`
	Phone    string `json:"phone,omitempty"`    // E.164: + and 7 to 15 digits
	Language string `json:"language,omitempty"` // a language tag (BCP 47)
}

// Event is one line of a booking's history.
type Event struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // a state, or what else was done: renamed, extended, …
	Why  string    `json:"why"`
}
