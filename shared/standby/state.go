package standby

import "slices"

// State of a standby order (docs/states.md has the picture).
//
//	authorising ──▶ queued, pending ──▶ matched ──▶ booked
//	     │               │   │             └──────▶ cancelled
//	     ├───────────────┤   └──▶ expired
//	     ▼               ▼
//	  expired        cancelling ──▶ cancelled
//
// Queued and pending change into each other: pending is queued while the queues
// in Redis cannot be reached. An order that has left the queue never comes back
// to it.
type State string

// The states of a standby order.
const (
	Authorising State = "authorising" // its payment is not authorised yet
	Queued      State = "queued"
	Pending     State = "pending" // queued, and its position is known later
	Matched     State = "matched" // it has seats, and is being charged
	Booked      State = "booked"
	Cancelling  State = "cancelling" // left by its holder, until the gateway has let the sum go
	Cancelled   State = "cancelled"
	Expired     State = "expired" // its time is over
)

// States lists every state.
var States = []State{Authorising, Queued, Pending, Matched, Booked, Cancelling, Cancelled, Expired}

// moves are the legal moves. The SQL functions that write an order repeat them,
// each for its own move (migrations/00060_standby.sql).
var moves = map[State][]State{
	Authorising: {Queued, Pending, Cancelling, Cancelled, Expired},
	Queued:      {Pending, Matched, Cancelling, Cancelled, Expired},
	Pending:     {Queued, Matched, Cancelling, Cancelled, Expired},
	Matched:     {Booked, Cancelled},
	Cancelling:  {Cancelled},
}

// MayBecome says whether a move is legal. Staying is no move.
func (s State) MayBecome(next State) bool { return slices.Contains(moves[s], next) }

// Waits says whether an order in this state stands in its queues.
func (s State) Waits() bool { return s == Queued || s == Pending }

// Ended says whether nothing happens to an order in this state any more.
func (s State) Ended() bool { return s == Booked || s == Cancelled || s == Expired }
