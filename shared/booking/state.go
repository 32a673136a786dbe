package booking

import "slices"

// State of a booking (docs/states.md has the picture).
//
//	held ──▶ booked ──▶ cancelled
//	  ├────▶ released
//	  └────▶ expired ──▶ booked   (rescue: the money came late, the seats were free)
//	            └──────▶ lost     (the money came late and goes back)
type State string

// The states of a booking.
const (
	Held      State = "held"
	Booked    State = "booked"
	Released  State = "released"  // let go by the customer
	Expired   State = "expired"   // the hold ended unpaid
	Lost      State = "lost"      // paid for too late
	Cancelled State = "cancelled" // taken back after it was booked
)

// States lists every state.
var States = []State{Held, Booked, Released, Expired, Lost, Cancelled}

// moves are the legal moves. The SQL functions that write a booking repeat
// them, each for its own move (migrations/00003_booking.sql).
var moves = map[State][]State{
	Held:    {Booked, Released, Expired},
	Booked:  {Cancelled},
	Expired: {Booked, Lost},
}

// MayBecome says whether a move is legal. Staying is no move.
func (s State) MayBecome(next State) bool { return slices.Contains(moves[s], next) }

// Live says whether a booking in this state keeps its seats from others.
func (s State) Live() bool { return s == Held || s == Booked }

// Valid says whether it is one of the states.
func (s State) Valid() bool { return slices.Contains(States, s) }
