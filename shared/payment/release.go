package payment

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"handler/function/shared/idempotency"
	"handler/function/shared/money"
	"handler/function/shared/problem"

	"github.com/gofrs/uuid/v5"
)

// releaseFunction is in whose name Idempotency-Keys of releases count.
const releaseFunction = "release-event"

// Release asks to let a hold go or to return a booking.
type Release struct {
	Account string
	Booking string // public id
	Preview bool   // of a return: what would come back, and nothing changes
	Key     string // Idempotency-Key
	Hash    []byte // of the body
	TraceID string
}

// Released is what was let go or would be. Seats are numbers; the caller names
// them.
type Released struct {
	Sale    int64        `json:"sale"`
	Booking string       `json:"booking"`
	State   string       `json:"state"`
	Seats   []int        `json:"seats"`
	Refund  money.Amount `json:"refund"`
	Fee     money.Amount `json:"fee"`
}

// abandoned is the answer of booking_abandon.
type abandoned struct {
	Code     string      `json:"code"`
	State    string      `json:"state"`
	Payments []uuid.UUID `json:"payments"`
	Seats    []int       `json:"seats"`
}

// abandonRounds bounds how often new payments may appear between cancelling and
// letting go.
const abandonRounds = 3

// Abandon lets a hold go. Payments begun for it are cancelled at the gateway
// first; one that was paid meanwhile keeps the booking, which then is not let
// go. Errors: not-found, hold-ended, wrong-state, unavailable (the gateway does
// not answer: the outbox sees it through), and those of idempotency.
func (s *Service) Abandon(ctx context.Context, r Release) (Released, bool, error) {
	sale, number, err := s.ids.ParseBooking(r.Booking)
	if err != nil {
		return Released{}, false, err
	}
	defer s.releases.Committed(ctx, sale)
	return s.once(ctx, sale, r, func(ctx context.Context) (Released, error) {
		out := Released{Sale: sale, Booking: r.Booking, Seats: []int{}}
		for range abandonRounds {
			var a abandoned
			if err := s.call(ctx, &a, "abandon", sale, number, r.Account, r.TraceID); err != nil {
				return out, err
			}
			switch a.Code {
			case "released":
				out.State = "released"
				out.Seats = append(out.Seats, a.Seats...)
				return out, nil
			case "not-found":
				return out, notFound()
			case "expired":
				return out, problem.New(problem.HoldEnded, "The hold has ended.")
			case "cancelling":
			default:
				return out, problem.New(problem.WrongState, "This booking is not a hold that could be let go.")
			}
			for _, payment := range a.Payments {
				p, err := s.load(ctx, sale, payment)
				if err != nil {
					return out, err
				}
				if err := s.cancel(ctx, p); err != nil {
					slog.WarnContext(ctx, "cancelling is left to the outbox", "sale", sale, "payment", payment, "error", err)
					return out, unavailable(err)
				}
			}
		}
		return out, problem.New(problem.WrongState, "A payment for this booking is under way.")
	})
}

// returned is the answer of booking_refund.
type returned struct {
	Code     string `json:"code"`
	State    string `json:"state"`
	Seats    []int  `json:"seats"`
	Refund   int64  `json:"refund"`
	Fee      int64  `json:"fee"`
	Currency string `json:"currency"`
}

// Return takes a whole booking back and gives its money back once; its seats are
// free at once, the refund follows from the outbox. Errors: not-found,
// wrong-state (not booked, or checked in), and those of idempotency.
func (s *Service) Return(ctx context.Context, r Release) (Released, bool, error) {
	sale, number, err := s.ids.ParseBooking(r.Booking)
	if err != nil {
		return Released{}, false, err
	}
	out, replay, err := s.once(ctx, sale, r, func(ctx context.Context) (Released, error) {
		var b returned
		if err := s.call(ctx, &b, "refund-booking", sale, number, r.Account, r.Preview, r.TraceID); err != nil {
			return Released{}, err
		}
		switch b.Code {
		case "preview", "cancelled":
		case "not-found":
			return Released{}, notFound()
		case "checked-in":
			return Released{}, problem.New(problem.WrongState, "A ticket of this booking was checked in. It cannot be returned.")
		default:
			return Released{}, problem.New(problem.WrongState, "This booking is not one that could be returned.")
		}
		return Released{Sale: sale, Booking: r.Booking, State: b.State, Seats: append([]int{}, b.Seats...),
			Refund: money.Amount{Amount: b.Refund, Currency: b.Currency}, Fee: money.Amount{Amount: b.Fee, Currency: b.Currency}}, nil
	})
	if err == nil && !replay && !r.Preview {
		s.releases.Committed(ctx, sale)
		if err := s.drain(ctx, sale, KindRefund); err != nil {
			slog.WarnContext(ctx, "refund left to reconcile", "sale", sale, "booking", number, "error", err)
		}
		s.nudge(ctx, sale, number, r.TraceID)
	}
	return out, replay, err
}

// once runs a release under its Idempotency-Key.
func (s *Service) once(ctx context.Context, sale int64, r Release, f func(ctx context.Context) (Released, error)) (out Released, replay bool, err error) {
	call := idempotency.Call{Sale: sale, Account: r.Account, Function: releaseFunction, Key: r.Key, Hash: r.Hash}
	var fresh Released
	kept, err := s.keys.Do(ctx, call, func(ctx context.Context) (int, any, error) {
		fresh, err = f(ctx)
		return http.StatusOK, fresh, err
	})
	if err != nil || !kept.Replay {
		return fresh, kept.Replay, err
	}
	return out, true, json.Unmarshal(kept.Body, &out)
}
