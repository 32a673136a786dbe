package payment

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/money"
	"handler/function/shared/problem"
	"handler/function/shared/seat"

	"github.com/jackc/pgx/v5"
)

// Exchange asks for other seats, other legs or another class of its sale in place
// of what a booking has, at the same price (RESCHEDULE).
type Exchange struct {
	Account string
	Booking string // public id
	To      ExchangeTo
	Preview bool   // what would change, and nothing does
	Key     string // Idempotency-Key
	Hash    []byte // of the body
	TraceID string
}

// ExchangeTo is what is wanted instead. Seats are shown names; or Quantity says
// how many of any.
type ExchangeTo struct {
	Sale     string   `json:"sale"`
	Class    string   `json:"class"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Quantity int      `json:"quantity"`
	Seats    []string `json:"seats"`
}

// Exchanged is what a booking has now, or would have. Released are the seats of
// which legs came free, all or some.
type Exchanged struct {
	Booking  string       `json:"booking"`
	State    string       `json:"state"`
	Class    string       `json:"class"`
	From     string       `json:"from"`
	To       string       `json:"to"`
	Seats    []string     `json:"seats"`
	Quantity int          `json:"quantity"`
	Price    money.Amount `json:"price"`
	Released []string     `json:"released"`
	Preview  bool         `json:"preview,omitempty"`
}

// exchanged is the answer of booking_exchange.
type exchanged struct {
	Code     string `json:"code"`
	State    string `json:"state"`
	Why      string `json:"why"`
	Seats    []int  `json:"seats"`
	Released []int  `json:"released"`
	Taken    []int  `json:"taken"`
	Quantity int    `json:"quantity"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Exchanges exchanges bookings for one replica. It is safe for concurrent use.
type Exchanges struct {
	*Service
	sales seat.Sales
	maps  *seat.Maps
}

// NewExchanges makes an Exchanges; "any n" are chosen on the maps.
func NewExchanges(payments *Service, sales seat.Sales, maps *seat.Maps) *Exchanges {
	return &Exchanges{Service: payments, sales: sales, maps: maps}
}

// Exchange gives a booking other seats and frees what it has no more, in one
// transaction with its Idempotency-Key: the new ones are had, all of them, or
// nothing has changed. The booking keeps its number, locator, payment and
// passengers; its new ticket is sent and the old one is void. Errors: not-found,
// wrong-state (not booked, or checked in), sale-closed, paused, invalid (another
// sale, quantity or price, or what it has already), standby-first, sold-out,
// seat-taken, unavailable, and those of idempotency.
func (s *Exchanges) Exchange(ctx context.Context, e Exchange) (out Exchanged, replay bool, err error) {
	saleID, number, err := s.ids.ParseBooking(e.Booking)
	if err != nil {
		return out, false, err
	}
	other, err := id.Sale("to.sale", e.To.Sale)
	if err != nil {
		return out, false, err
	}
	if other != saleID {
		return out, false, problem.Invalid("to.sale", "must be the sale of this booking")
	}
	sale, err := s.sales.Sale(ctx, saleID)
	if err != nil {
		return out, false, err
	}
	want, err := booking.ReadWant(sale, e.To.Class, e.To.From, e.To.To, e.To.Seats, e.To.Quantity)
	if err != nil {
		return out, false, inTo(err)
	}
	m := s.maps.Fresh(saleID)
	var choice []int
	if want.Seats == nil {
		// Without a map Postgres chooses. Who was together stays together if it goes.
		if m, err = s.maps.Get(ctx, sale); err == nil {
			choice = s.maps.Choose(m, e.To.Class, want.LegFrom, want.LegTo, want.Quantity, seat.Prefer{Together: true}, rand.IntN)
		}
	}
	var fresh exchanged
	call := idempotency.Call{Sale: saleID, Account: e.Account, Function: releaseFunction, Key: e.Key, Hash: e.Hash}
	kept, err := s.keys.DoTx(ctx, call, func(ctx context.Context, tx pgx.Tx) (int, any, error) {
		var err error
		if fresh, err = exchange(ctx, tx, saleID, number, e, want, choice); err != nil {
			return 0, nil, err
		}
		if err := fresh.refusal(sale, e, want); err != nil {
			return 0, nil, err
		}
		return http.StatusOK, Exchanged{
			Booking: e.Booking, State: fresh.State, Class: e.To.Class, From: sale.From(want.LegFrom).ID, To: sale.To(want.LegTo).ID,
			Seats: seatNames(sale, fresh.Seats), Quantity: len(fresh.Seats), Released: seatNames(sale, fresh.Released),
			Price: money.Amount{Amount: fresh.Amount, Currency: fresh.Currency}, Preview: e.Preview,
		}, nil
	})
	if err != nil {
		return out, kept.Replay, err
	}
	if err := json.Unmarshal(kept.Body, &out); err != nil || kept.Replay || e.Preview {
		return out, kept.Replay, err
	}
	s.releases.Committed(ctx, saleID)
	s.nudge(ctx, saleID, number, e.TraceID)
	if m != nil {
		s.maps.Took(m, e.To.Class, fresh.Seats, want.LegFrom, want.LegTo)
	}
	return out, false, nil
}

// exchange is the one call into Postgres.
func exchange(ctx context.Context, tx pgx.Tx, sale, number int64, e Exchange, want booking.Want, choice []int) (a exchanged, err error) {
	var departs *time.Time
	if !want.Departs.IsZero() {
		departs = &want.Departs
	}
	var raw []byte
	err = tx.QueryRow(ctx, sql["exchange"], sale, number, e.Account, e.To.Class, want.LegFrom, want.LegTo, want.Seats, choice, want.Quantity,
		want.Price.Amount*int64(want.Quantity), departs, e.Preview, e.TraceID).Scan(&raw)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(raw, &a)
}

// refusal is the problem that the answer stands for, if it is a refusal.
func (a exchanged) refusal(sale *catalog.Sale, e Exchange, want booking.Want) error {
	switch a.Code {
	case "exchanged", "preview":
		return nil
	case "not-found":
		return notFound()
	case "wrong-state":
		return problem.New(problem.WrongState, "This booking is not one that could be exchanged.")
	case "checked-in":
		return problem.New(problem.WrongState, "A ticket of this booking was checked in. It cannot be exchanged.")
	case "quantity":
		field := "to.quantity"
		if want.Seats != nil {
			field = "to.seats"
		}
		return problem.Invalid(field, "must be %d, as many as this booking has", a.Quantity)
	case "price":
		costs := money.Amount{Amount: want.Price.Amount * int64(want.Quantity), Currency: want.Price.Currency}
		return problem.Invalid("to", "costs %s, this booking %s; only an exchange at the same price is possible",
			costs.String(), money.Amount{Amount: a.Amount, Currency: a.Currency}.String())
	case "same":
		return problem.Invalid("to", "is what this booking has already")
	}
	return inTo(booking.Refusal(sale, problem.Code(a.Code), a.Why, a.Taken, e.To.Seats))
}

// inTo names the fields of a problem as they stand in the request: within `to`.
func inTo(err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || len(p.Fields) == 0 {
		return err
	}
	for i := range p.Fields {
		p.Fields[i].Field = "to." + p.Fields[i].Field
	}
	if p.Code == problem.Unprocessable {
		p.Args = []any{p.Fields[0].Field}
	}
	return p
}

func seatNames(sale *catalog.Sale, numbers []int) []string {
	names := make([]string, len(numbers))
	for i, n := range numbers {
		names[i] = sale.SeatName(n)
	}
	return names
}
