package catalog

import "slices"

// State of a sale.
//
//	draft ──▶ open ◀──▶ paused
//	  │        │  └──────┐ │
//	  │        ▼         ▼ ▼
//	  └──▶ cancelled ◀── closed
//
// (open and paused go to cancelled too.) Open means: may be bought from opens_at
// until closes_at. A cancelled sale refunds what was sold and never comes back.
type State string

// The states of a sale.
const (
	Draft     State = "draft"
	Open      State = "open"
	Paused    State = "paused"
	Closed    State = "closed"
	Cancelled State = "cancelled"
)

// States lists every state.
var States = []State{Draft, Open, Paused, Closed, Cancelled}

// moves are the legal moves, repeated in SQL (catalog.sql, sale-move).
var moves = map[State][]State{
	Draft:  {Open, Cancelled},
	Open:   {Paused, Closed, Cancelled},
	Paused: {Open, Closed, Cancelled},
	Closed: {Cancelled},
}

// MayBecome says whether a move is legal. Staying is no move and always legal.
func (s State) MayBecome(next State) bool {
	return s == next || slices.Contains(moves[s], next)
}

// Valid says whether it is one of the states.
func (s State) Valid() bool { return slices.Contains(States, s) }
