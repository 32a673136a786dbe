package ticket

import (
	"context"
	"encoding/json"
	"time"

	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/problem"
	"handler/function/shared/store"
)

// MaxScanID is the longest scan_id, in characters.
const MaxScanID = 128

// Result is what a gate does with a ticket.
type Result string

// The results of a scan.
const (
	Valid   Result = "valid"   // let in
	Used    Result = "used"    // was let in before
	Invalid Result = "invalid" // see the reason
)

// Scan is the answer to one scan.
type Scan struct {
	Result Result `json:"result"`
	// Reason of an invalid ticket: not-a-ticket, other-organiser, unknown,
	// not-paid, refunded, changed. Empty otherwise.
	Reason         string     `json:"reason"`
	Seat           string     `json:"seat"`
	Passenger      string     `json:"passenger"`
	FirstScannedAt *time.Time `json:"first_scanned_at,omitempty"`
}

// CheckIn checks a ticket in for gate staff. The same scan_id of an account gets
// the same answer; a code that we did not sign is refused without a look into
// Postgres. Errors: forbidden without the role, idempotency-mismatch for a
// scan_id that stood for another ticket.
func (s *Service) CheckIn(ctx context.Context, staff account.Account, code, scanID string) (Scan, error) {
	if err := staff.Require(account.Gate); err != nil {
		return Scan{}, err
	}
	pass, err := Verify(s.signer.Public(), code)
	if err != nil {
		return Scan{Result: Invalid, Reason: "not-a-ticket"}, nil
	}
	sale, err := s.sales.Sale(ctx, pass.Sale)
	if problem.Is(err, problem.NotFound) {
		return Scan{Result: Invalid, Reason: "unknown"}, nil
	}
	if err != nil {
		return Scan{}, err
	}
	// Staff of one organiser do not let people into another's house.
	if staff.Org != "" && staff.Org != sale.Org {
		return Scan{Result: Invalid, Reason: "other-organiser"}, nil
	}
	answer := Scan{Seat: pass.SeatName}
	var result string
	var person []byte
	err = s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["check-in"], pass.Sale, pass.Booking, pass.Serial, pass.Seat, pass.FirstLeg, pass.LastLeg,
			staff.ID, scanID).Scan(&result, &answer.Reason, &answer.FirstScannedAt, &person)
	})
	if err != nil {
		return Scan{}, err
	}
	if result == string(problem.IdempotencyMismatch) {
		return Scan{}, problem.New(problem.IdempotencyMismatch, "This scan_id was used with another ticket")
	}
	answer.Result = Result(result)
	var passenger booking.Passenger
	if len(person) > 0 && json.Unmarshal(person, &passenger) == nil {
		answer.Passenger = passenger.Name
	}
	return answer, nil
}
