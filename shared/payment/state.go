package payment

import "slices"

// State of a payment as the API shows it.
//
//	pending ──▶ succeeded ──▶ partly_refunded ──▶ refunded
//	   │ ▲          ▲ └──────────────────────────────▲
//	   ▼ │          │
//	  failed ───────┘
//
// "Failed" is what a gateway said last, not the end: a later success of the same
// payment follows the same rules as any other (field case 15). What the booking
// becomes is decided by the confirm step alone (law 10), never by this state.
// The migration repeats the states as CHECK payment_state_known and the moves
// inside the functions of 00040_payment.sql.
type State string

// The states of a payment.
const (
	StatePending        State = "pending"
	StateSucceeded      State = "succeeded"
	StateFailed         State = "failed"
	StateRefunded       State = "refunded"
	StatePartlyRefunded State = "partly_refunded"
)

// States lists every state.
var States = []State{StatePending, StateSucceeded, StateFailed, StateRefunded, StatePartlyRefunded}

var moves = map[State][]State{
	StatePending:        {StateFailed, StateSucceeded},
	StateFailed:         {StatePending, StateSucceeded},
	StateSucceeded:      {StatePartlyRefunded, StateRefunded},
	StatePartlyRefunded: {StateRefunded},
}

// MayBecome says whether a move is legal. Staying is no move and always legal.
func (s State) MayBecome(next State) bool { return s == next || slices.Contains(moves[s], next) }

// Step is the recovery point of a payment attempt: how far it got. A crash
// between two steps is taken up again from the last one, by a retry of the same
// request or by reconcile.
//
//	made ──▶ created ──▶ settled
//	  └─────────────────────▲
type Step string

// The recovery points.
const (
	// StepMade: the row is committed; the gateway may or may not know.
	StepMade Step = "made"
	// StepCreated: the gateway's reference is stored and the hold extended. The
	// gateway is asked about it from time to time.
	StepCreated Step = "created"
	// StepSettled: captured, or cancelled at the gateway. Nobody asks any more;
	// an event that comes all the same is still obeyed.
	StepSettled Step = "settled"
)

// Steps lists every recovery point in order.
var Steps = []Step{StepMade, StepCreated, StepSettled}

// Outcome is what the confirm step decided about money that arrived.
type Outcome string

// The outcomes of the confirm step.
const (
	// OutcomeBooked: the hold was in time and is booked.
	OutcomeBooked Outcome = "booked"
	// OutcomeRescued: the hold had ended, the seats were still free: booked.
	OutcomeRescued Outcome = "rescued"
	// OutcomeRefund: the money goes back, once.
	OutcomeRefund Outcome = "refund"
	// OutcomeNone: this payment's money was dealt with before.
	OutcomeNone Outcome = "none"
	// OutcomeUnknown: there is no such payment row (yet).
	OutcomeUnknown Outcome = "unknown"
)

// Reason is why money goes back; it stands in the refund and in the booking's
// history, and chooses the text the customer gets.
type Reason string

// The reasons of a refund.
const (
	ReasonAmount    Reason = "amount"    // amount or currency is not the price
	ReasonSecond    Reason = "second"    // the booking is already paid by another payment
	ReasonLetGo     Reason = "let-go"    // the holder let the booking go, or it was refunded
	ReasonCancelled Reason = "cancelled" // the sale was cancelled
	ReasonClosed    Reason = "closed"    // the hold had ended and the sale is closed
	ReasonLate      Reason = "late"      // past the sale's limit for this hold, or departed
	ReasonTaken     Reason = "taken"     // the hold had ended and somebody else has the seats
	ReasonLimit     Reason = "limit"     // the account has reached its limit meanwhile
	ReasonAsked     Reason = "asked"     // the holder returned the booking
	// ReasonDifference: the gateway could not take a part of what a standby order
	// had authorised, so it took the whole; this is what is above the fare.
	ReasonDifference Reason = "difference"
	// ReasonNoBooking: it came for a standby order that had no seats.
	ReasonNoBooking Reason = "no-booking"
)

// Reasons lists every reason.
var Reasons = []Reason{ReasonAmount, ReasonSecond, ReasonLetGo, ReasonCancelled, ReasonClosed, ReasonLate, ReasonTaken, ReasonLimit, ReasonAsked,
	ReasonDifference, ReasonNoBooking}
