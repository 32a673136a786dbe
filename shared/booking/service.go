package booking

import (
	"context"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/store"
)

// Sales looks a sale up, from memory where it can: *catalog.Reader.
type Sales interface {
	Sale(ctx context.Context, saleID int64) (*catalog.Sale, error)
}

// Service makes and reads bookings for one replica. It is safe for concurrent
// use.
type Service struct {
	db    *store.DB
	sales Sales
	ids   *id.Maker
}

// LetGo is what came of letting a hold go.
type LetGo struct {
	Code       string // released, expired (it had ended already), wrong-state or not-found
	State      State
	Seats      []int
	ReleasedAt time.Time // zero when nothing was released now
}

// Load reads one booking with its history; an unknown one is not-found. The
// caller says whether the account may see it.
func (s *Service) Load(ctx context.Context, saleID, number int64) (*Booking, error) {
	panic("not yet")
}

// Find is Load for the account's own: another's is not-found too. which is a
// public booking id or a locator.
func (s *Service) Find(ctx context.Context, account, which string) (*Booking, error) {
	panic("not yet")
}

// List reads an account's bookings over all sales, newest first, at most 200,
// without their history.
func (s *Service) List(ctx context.Context, account string) ([]*Booking, error) {
	panic("not yet")
}

// Release lets a hold go inside the caller's transaction (or on the pool): held
// → released, its seats free, the ABANDON release written. A hold that ended
// already is moved to expired. account must own the booking.
func Release(ctx context.Context, q store.Querier, saleID, number int64, account, why, traceID string) (LetGo, error) {
	panic("not yet")
}

// Cancel takes back a booking that was paid for, in the caller's transaction:
// booked → cancelled, its seats free, the REFUND release written. The money is
// the caller's. Codes: cancelled, wrong-state, not-found.
func Cancel(ctx context.Context, q store.Querier, saleID, number int64, account, why, traceID string) (LetGo, error) {
	panic("not yet")
}
