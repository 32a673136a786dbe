package payment

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"handler/function/shared/money"
)

// Gateway is where the money is: the sandbox, Stripe, Razorpay. No method is
// ever called inside a transaction (law 9), and every method that moves money
// takes a key: the same key again has one effect and the same answer.
//
// Errors are wrapped so that errors.Is tells three cases apart: ErrUnknown (the
// gateway has no such payment), ErrRefused (it has decided, asking again with
// the same key changes nothing), and anything else: nobody knows whether it
// acted, so the same call is made again with the same key.
type Gateway interface {
	// Name is what a sale's list of gateways and the API call it.
	Name() string
	// Traits says what this gateway can and cannot do.
	Traits() Traits
	// Create makes a payment that captures by itself once the payer has paid.
	Create(ctx context.Context, order Order) (Charge, error)
	// Authorise makes a payment that waits for Capture (standby).
	Authorise(ctx context.Context, order Order) (Charge, error)
	// LookUp says how a payment stands, with its client secret and redirect.
	LookUp(ctx context.Context, reference string) (Charge, error)
	// Capture takes the amount, or a part where Traits.CapturePart.
	Capture(ctx context.Context, reference string, amount int64, key string) (Charge, error)
	// Cancel ends a payment that has not been captured. If it has been, the
	// answer is the charge with status Succeeded and no error.
	Cancel(ctx context.Context, reference, key string) (Charge, error)
	// Refund gives back a captured amount or a part of it.
	Refund(ctx context.Context, reference string, amount money.Amount, key string) (Repayment, error)
	// Verify checks the signature of a webhook, and its age where the scheme
	// carries a time, and reads it. ErrSignature for one that is not genuine.
	Verify(header http.Header, body []byte, now time.Time) (Event, error)
}

// Errors of a Gateway.
var (
	ErrUnknown   = errors.New("the gateway knows no such payment")
	ErrRefused   = errors.New("the gateway refused")
	ErrSignature = errors.New("the signature of the webhook is not right")
)

// Traits differ between gateways.
type Traits struct {
	// AuthorisationLife is how long an authorisation can be captured.
	AuthorisationLife time.Duration
	// CapturePart: less than the authorised amount can be captured.
	CapturePart bool
	// TestOnly: takes no real money, so it serves only sales marked test in an
	// installation marked test.
	TestOnly bool
}

// Order is a payment to be made at a gateway.
type Order struct {
	// Key is the gateway's idempotency key: of this attempt and no other, so that
	// another card after a decline works (field case 13).
	Key string
	// Payment is our public payment id. It travels in the gateway's metadata and
	// carries the sale, so that an event finds its rows.
	Payment     string
	Amount      money.Amount
	Description string
	ReturnURL   string
	// Until is when the hold can end at the latest: a gateway that can end an
	// unpaid payment by itself is told so.
	Until time.Time
}

// Status of a charge at a gateway, and what an event says of it.
type Status string

// The statuses of a charge. Failed is not final, Cancelled is.
const (
	Pending    Status = "pending"
	Authorised Status = "authorised"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Charge is a payment as the gateway sees it.
type Charge struct {
	Reference    string // the gateway's own name for it
	Payment      string // our public id from its metadata, empty if it has none
	Status       Status
	Amount       money.Amount
	Captured     int64 // minor units captured so far
	ClientSecret string
	RedirectURL  string
}

// Repayment is a refund as the gateway sees it.
type Repayment struct {
	Reference string
	Status    Status // Pending, Succeeded or Failed
}

// EventType is what a webhook says happened.
type EventType string

// The events that have an effect; any other is recorded and has none.
const (
	PaymentAuthorised EventType = "payment.authorised"
	PaymentSucceeded  EventType = "payment.succeeded"
	PaymentPending    EventType = "payment.pending"
	PaymentFailed     EventType = "payment.failed"
	PaymentCancelled  EventType = "payment.cancelled"
	RefundSucceeded   EventType = "refund.succeeded"
	RefundFailed      EventType = "refund.failed"
)

// Event is one webhook of a gateway.
type Event struct {
	Gateway   string
	ID        string // unique at the gateway, 1 to 255 characters
	Type      EventType
	Reference string // of the payment
	Payment   string // our public id from the metadata, empty if it has none
	RefundKey string // our key of the refund, for refund events that carry it
	Amount    money.Amount
	Body      json.RawMessage // as received, kept for whoever has to look
}
