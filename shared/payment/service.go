// Package payment takes money for bookings and gives it back: attempts to pay,
// what gateways tell us, the confirm step that decides a booking once money has
// arrived (migrations/00040_payment.sql), refunds, asking gateways about payments
// they keep pending, and what standby orders authorise and are charged. docs/money.md has the states and the rules.
//
// A gateway is never called inside a transaction. Between two transactions each
// attempt stands at a recovery point (Step), and whatever must still happen
// outside is an outbox row of kind refund or payment_cancel.
package payment

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/catalog"
	"handler/function/shared/event"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/outbox"
	"handler/function/shared/problem"
	"handler/function/shared/release"
	"handler/function/shared/standby"
	"handler/function/shared/store"

	"github.com/gofrs/uuid/v5"
)

//go:embed payment.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Limits of payments.
const (
	maxAttempts = 20              // payments of one booking
	gatewayTime = 8 * time.Second // of one call to a gateway
	maxURL      = 2000            // characters of a return_url
)

// Kinds of outbox rows that this package works at.
const (
	KindRefund  = "refund"
	KindCancel  = "payment_cancel"
	KindCallOff = catalog.CancelledKind
	KindMatched = "order_matched" // a standby order has seats: it is charged
)

// Kinds of alerts of this package.
const (
	AlertEvent  = "gateway-event" // an event nobody can place; subject: gateway and reference
	AlertMoney  = "money"         // invariant 3 is broken; subject: the booking's number
	AlertRefund = "refund-failed" // the gateway could not give money back; subject: the refund's key
)

// Options of a Service.
type Options struct {
	DB  *store.DB
	IDs *id.Maker
	// Gateways by their names.
	Gateways []Gateway
	// Test: the installation says test, so gateways that take no real money may
	// serve sales that say test too.
	Test bool
	// Bus may be nil: tickets then wait for reconcile.
	Bus    *event.Bus
	Alerts *alert.Board
	// Orders are the standby orders whose money this is; nil where there are none.
	Orders *standby.Orders
	// Releases tells of seats that came free; nil for nobody.
	Releases *release.Service
}

// Service takes payments for one replica. It is safe for concurrent use.
type Service struct {
	db       *store.DB
	ids      *id.Maker
	gateways map[string]Gateway
	test     bool
	bus      *event.Bus
	alerts   *alert.Board
	releases *release.Service
	orders   *standby.Orders
	keys     *idempotency.Store
	box      *outbox.Box
}

// New makes a Service.
func New(o Options) *Service {
	s := &Service{db: o.DB, ids: o.IDs, gateways: map[string]Gateway{}, test: o.Test, bus: o.Bus, alerts: o.Alerts, releases: o.Releases, orders: o.Orders,
		keys: idempotency.New(o.DB), box: outbox.New(o.DB, o.Alerts)}
	for _, g := range o.Gateways {
		s.gateways[g.Name()] = g
	}
	return s
}

// gateway finds a gateway that is configured here and may serve the sale.
func (s *Service) gateway(name string, saleTest bool) (Gateway, error) {
	g, ok := s.gateways[name]
	if !ok || (g.Traits().TestOnly && (!s.test || !saleTest)) {
		return nil, fmt.Errorf("payment: the gateway %q does not serve here", name)
	}
	return g, nil
}

// call runs one SQL function and reads its JSON answer.
func (s *Service) call(ctx context.Context, answer any, statement string, args ...any) error {
	var raw json.RawMessage
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql[statement], args...).Scan(&raw)
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("payment: answer of %s: %w", statement, err)
	}
	return nil
}

// row is a payment as loaded, with the booking or the standby order it is for.
type row struct {
	Sale     int64
	ID       uuid.UUID
	Booking  int64 // 0: none yet
	Order    int64 // the standby order it was authorised for; 0: none
	Account  string
	Gateway  string
	State    State
	Step     Step
	Amount   int64
	Currency string
	Return   string
	// Reference is empty until the gateway has made it.
	Reference    string
	Outcome      Outcome
	Reason       Reason
	Captured     int64
	Returning    int64
	Returned     int64
	Asks         int
	TraceID      string
	BookingState string
	OrderState   standby.State
	EndsAt       time.Time // of the hold; without one, when the order must be authorised
	LimitAt      time.Time
	Title        string
	SaleTest     bool
	Now          time.Time // the database's
}

// load reads a payment; not-found for an unknown one.
func (s *Service) load(ctx context.Context, sale int64, payment uuid.UUID) (row, error) {
	r := row{Sale: sale, ID: payment}
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["load"], sale, payment).Scan(&r.Booking, &r.Order, &r.Account, &r.Gateway, &r.State, &r.Step, &r.Amount,
			&r.Currency, &r.Return, &r.Reference, &r.Outcome, &r.Reason, &r.Captured, &r.Returning, &r.Returned, &r.Asks, &r.TraceID,
			&r.BookingState, &r.OrderState, &r.EndsAt, &r.LimitAt, &r.Title, &r.SaleTest, &r.Now)
	})
	if store.IsNoRows(err) {
		return r, notFound()
	}
	return r, err
}

// key is the gateway's idempotency key of this payment for one kind of call. It
// is made of what never changes: public ids change with the key that signs them.
func (r row) key(what string) string { return fmt.Sprintf("%s-%d-%s", what, r.Sale, r.ID) }

func (r row) public(ids *id.Maker) string { return ids.Payment(r.Sale, r.ID) }

// confirmed is the answer of the confirm step.
type confirmed struct {
	Code    Outcome `json:"code"`
	Booking int64   `json:"booking"` // 0: none
	Order   int64   `json:"order"`   // the standby order; 0: none
	State   string  `json:"state"`   // of the booking
	Reason  Reason  `json:"reason"`
	Back    int64   `json:"back"` // of what was captured for a booked booking, goes back
}

// confirm runs the confirm step, and after it tells `ticket`.
func (s *Service) confirm(ctx context.Context, sale int64, payment uuid.UUID, gateway string, c Charge, trace string) (confirmed, error) {
	var out confirmed
	amount := c.Captured
	if amount == 0 {
		amount = c.Amount.Amount
	}
	err := s.call(ctx, &out, "confirm", sale, payment, gateway, c.Reference, amount, c.Amount.Currency, trace)
	if err != nil {
		return out, err
	}
	if out.Code == OutcomeRescued || out.Code == OutcomeRefund {
		s.releases.Committed(ctx, sale) // the hold may have ended just now
	}
	switch out.Code {
	case OutcomeBooked, OutcomeRescued:
		s.nudge(ctx, sale, out.Booking, trace)
		if out.Back > 0 {
			if err := s.drain(ctx, sale, KindRefund); err != nil {
				slog.WarnContext(ctx, "refund left to reconcile", "sale", sale, "payment", payment, "error", err)
			}
		}
	case OutcomeRefund:
		slog.InfoContext(ctx, "money goes back", "sale", sale, "booking", out.Booking, "payment", payment, "reason", out.Reason, "trace_id", trace)
		if err := s.drain(ctx, sale, KindRefund); err != nil {
			slog.WarnContext(ctx, "refund left to reconcile", "sale", sale, "payment", payment, "error", err)
		}
	}
	return out, nil
}

// nudge tells the ticket function that a booking is confirmed, or (0) that there
// are notices of a sale to send. It may be lost: the outbox row is what counts.
func (s *Service) nudge(ctx context.Context, sale, booking int64, trace string) {
	if s.bus == nil {
		return
	}
	what := map[string]any{"sale": id.Format(sale), "trace_id": trace}
	if booking != 0 {
		what["booking"] = s.ids.Booking(sale, booking)
	}
	data, err := json.Marshal(what)
	if err == nil {
		err = s.bus.Nudge(event.BookingConfirmed, sale, data)
	}
	if err != nil {
		slog.WarnContext(ctx, "ticket not told, reconcile will", "sale", sale, "booking", booking, "error", err)
	}
}

func notFound() error { return problem.New(problem.NotFound, "There is nothing here by that name.") }

func unavailable(err error) error {
	return problem.New(problem.Unavailable, "The payment gateway does not answer. Please try again.").After(2 * time.Second).Because(err)
}
