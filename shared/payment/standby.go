package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/money"
	"handler/function/shared/outbox"
	"handler/function/shared/problem"
	"handler/function/shared/standby"
	"handler/function/shared/store"

	"github.com/gofrs/uuid/v5"
)

// Joining is a wish to wait, and how it will be paid for.
type Joining struct {
	standby.Wish
	ReturnURL string // where the payer's browser goes afterwards; may be empty
	Hash      []byte // of the request's body
}

// Joined is the answer to who joins. A place in the line is the caller's to add.
type Joined struct {
	Order   string        `json:"order"`
	State   standby.State `json:"state"`
	Payment string        `json:"payment"`
	// Price is what is authorised: the dearest class. The fare of the seats given
	// is what is charged.
	Price       money.Amount `json:"price"`
	Authorise   AtGateway    `json:"authorise"`
	AuthoriseBy time.Time    `json:"authorise_by"`
	Until       time.Time    `json:"until"` // never past the life of the authorisation
	ServerTime  time.Time    `json:"server_time"`
}

// begunOrder is the answer of payment_begin_order.
type begunOrder struct {
	begun
	AuthoriseBy time.Time `json:"authorise_by"`
}

// JoinStandby makes a standby order and authorises what it may cost at most. The
// order waits once the gateway says that the sum stands: at once, or when its
// webhook comes, or when it is asked. The same key again gives the same answer,
// with the secrets fetched anew; after a crash in between it goes on from where it
// was. Errors: those of standby.Orders.Join; wrong-state (the gateway refused, or
// the order has ended), idempotency-mismatch, in-progress, unavailable.
func (s *Service) JoinStandby(ctx context.Context, sale *catalog.Sale, j Joining) (out Joined, replay bool, err error) {
	if err := (Request{Gateway: j.Gateway, ReturnURL: j.ReturnURL}).Validate(); err != nil {
		return out, false, err
	}
	g, err := s.gateway(j.Gateway, sale.Test)
	if err != nil {
		return out, false, problem.Invalid("gateway", "must be one of the gateways of this sale").Because(err)
	}
	call := idempotency.Call{Sale: sale.ID, Account: j.Account, Function: "standby", Key: j.Key, Hash: j.Hash}
	var fresh Joined
	kept, err := s.keys.Do(ctx, call, func(ctx context.Context) (int, any, error) {
		fresh, err = s.joinStandby(ctx, sale, g, j)
		stored := fresh
		stored.Authorise.ClientSecret, stored.Authorise.RedirectURL = "", ""
		return http.StatusCreated, stored, err
	})
	if err != nil {
		return out, kept.Replay, err
	}
	if !kept.Replay {
		return fresh, false, nil
	}
	if err := json.Unmarshal(kept.Body, &out); err != nil {
		return out, true, err
	}
	return out, true, s.secrets(ctx, out.Payment, &out.Authorise, &out.ServerTime)
}

// joinStandby is one run of a join, from whichever recovery point it stands at:
// the order made, its payment begun, the payment made at the gateway, its
// reference stored, the sum authorised.
func (s *Service) joinStandby(ctx context.Context, sale *catalog.Sale, g Gateway, j Joining) (Joined, error) {
	o, err := s.orders.Join(ctx, sale, j.Wish)
	if err != nil {
		return Joined{}, err
	}
	fresh, err := uuid.NewV7()
	if err != nil {
		return Joined{}, err
	}
	var b begunOrder
	if err := s.call(ctx, &b, "begin-order", sale.ID, o.Number, j.Account, fresh, j.ReturnURL, j.TraceID); err != nil {
		return Joined{}, err
	}
	if b.Code != "made" {
		return Joined{}, overOrder()
	}
	p := row{Sale: sale.ID, ID: b.Payment, Order: o.Number, Gateway: b.Gateway, Amount: b.Amount, Currency: b.Currency,
		Return: b.ReturnURL, Title: b.Title, LimitAt: b.AuthoriseBy, TraceID: j.TraceID}
	c, made, err := s.create(ctx, g, p)
	if err != nil {
		return Joined{}, err
	}
	switch standby.State(made.Standing) {
	case standby.Cancelling, standby.Cancelled, standby.Expired:
		return Joined{}, overOrder()
	}
	s.applyWaiting(ctx, g.Name(), c.Reference) // events that came before the reference was known
	now, err := s.orders.Load(ctx, sale.ID, o.Number)
	if err != nil {
		return Joined{}, err
	}
	return Joined{
		Order: now.ID, State: now.State, Payment: p.public(s.ids), Price: money.Amount{Amount: p.Amount, Currency: p.Currency},
		Authorise:   AtGateway{Name: g.Name(), Reference: c.Reference, ClientSecret: c.ClientSecret, RedirectURL: c.RedirectURL},
		AuthoriseBy: now.AuthoriseBy, Until: now.Until, ServerTime: now.ReadAt,
	}, nil
}

func overOrder() error {
	return problem.New(problem.WrongState, "This order waits no more.")
}

// authorised is the answer of payment_authorised.
type authorised struct {
	Code  string        `json:"code"`
	Order int64         `json:"order"`
	State standby.State `json:"state"`
}

// authorised lets an order take its place once its sum stands; for an order that
// has ended, or another sum than ours, the gateway is told at once to let it go.
func (s *Service) authorised(ctx context.Context, sale int64, payment uuid.UUID, gateway string, c Charge, trace string) (authorised, error) {
	var a authorised
	g, ok := s.gateways[gateway]
	if !ok {
		return a, fmt.Errorf("payment: the gateway %q is not configured here", gateway)
	}
	life := int(g.Traits().AuthorisationLife / time.Second)
	reachable := s.orders == nil || s.orders.Reachable(ctx)
	err := s.call(ctx, &a, "authorised", sale, payment, gateway, c.Reference, c.Amount.Amount, c.Amount.Currency, life, reachable, trace)
	if err != nil {
		return a, err
	}
	switch a.Code {
	case string(standby.Queued), string(standby.Pending):
		if s.orders != nil {
			s.orders.Queued(ctx, sale, a.Order)
		}
	case "gone", "amount":
		s.void(ctx, sale, a.Order, trace)
	}
	return a, nil
}

// ordersNoted passes on that a gateway's word may have ended a standby order: its
// holder is told, and its queues are brought up to date.
func (s *Service) ordersNoted(ctx context.Context, sale int64, n noted) {
	if n.Order == 0 || n.Code != "settled" {
		return
	}
	if s.orders != nil {
		s.orders.Gone(ctx, sale, n.Order)
	}
	s.nudge(ctx, sale, 0, "")
}

// void lets go at the gateway what was authorised for an order that has ended. What
// it cannot do now the outbox sees through.
func (s *Service) void(ctx context.Context, sale, order int64, trace string) {
	var payment uuid.UUID
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["payment-of-order"], sale, order).Scan(&payment)
	})
	if store.IsNoRows(err) {
		return
	}
	var p row
	if err == nil {
		p, err = s.load(ctx, sale, payment)
	}
	if err == nil {
		err = s.cancel(ctx, p)
	}
	if err != nil {
		slog.WarnContext(ctx, "voiding is left to the outbox", "sale", sale, "order", order, "error", err, "trace_id", trace)
	}
	s.nudge(ctx, sale, 0, trace)
}

// EndOrders ends the orders whose time is over, of every sale; what they had
// authorised is let go by the outbox. Returns how many.
func (s *Service) EndOrders(ctx context.Context) (int, error) {
	if s.orders == nil {
		return 0, nil
	}
	return s.orders.Expire(ctx)
}

// Leaving takes an order out of its queues.
type Leaving struct {
	Account string
	Order   string // public id
	Key     string // Idempotency-Key
	Hash    []byte // of the body
	TraceID string
}

// Left is the answer to who leaves: cancelling until the gateway has let the sum
// go, then cancelled.
type Left struct {
	Order string        `json:"order"`
	State standby.State `json:"state"`
}

// LeaveStandby takes an order of the account's own out of its queues; what was
// authorised is let go at once where the gateway answers, else by the outbox.
// Errors: not-found, wrong-state (it has seats, or has ended otherwise), and those
// of idempotency.
func (s *Service) LeaveStandby(ctx context.Context, l Leaving) (out Left, replay bool, err error) {
	ref, err := s.orders.Own(l.Account, l.Order)
	if err != nil {
		return out, false, err
	}
	call := idempotency.Call{Sale: ref.Sale, Account: l.Account, Function: "standby", Key: l.Key, Hash: l.Hash}
	var fresh Left
	kept, err := s.keys.Do(ctx, call, func(ctx context.Context) (int, any, error) {
		fresh, err = s.leave(ctx, ref, l)
		return http.StatusOK, fresh, err
	})
	if err != nil || !kept.Replay {
		return fresh, kept.Replay, err
	}
	return out, true, json.Unmarshal(kept.Body, &out)
}

func (s *Service) leave(ctx context.Context, ref id.OrderRef, l Leaving) (Left, error) {
	out := Left{Order: l.Order}
	var err error
	if out.State, err = s.orders.Leave(ctx, ref, l.Account, l.TraceID); err != nil || out.State.Ended() {
		return out, err
	}
	s.void(ctx, ref.Sale, ref.Number, l.TraceID)
	now, err := s.orders.Load(ctx, ref.Sale, ref.Number)
	if err != nil {
		return out, err
	}
	out.State = now.State
	return out, nil
}

// Fulfil charges the orders of a sale that `match` has found seats for.
func (s *Service) Fulfil(ctx context.Context, sale int64) (outbox.Did, error) {
	return s.box.Drain(ctx, sale, KindMatched, parallel, s.worker(KindMatched))
}

// capturing is the answer of payment_capturing.
type capturing struct {
	Code     string    `json:"code"` // capture, lost or none
	Why      string    `json:"why"`
	Step     string    `json:"step"` // of the order, before this run
	Booking  int64     `json:"booking"`
	Payment  uuid.UUID `json:"payment"`
	Fare     int64     `json:"fare"`
	Currency string    `json:"currency"`
}

// workMatched charges one matched order and lets the confirm step decide. Between
// the calls to the gateway the order stands at a recovery point (step), and from
// `capturing` on nobody knows whether a capture was made, so the gateway is asked
// first and never told twice but with the same key. Whatever the gateway refuses
// for good ends the order: its seats go to the next.
func (s *Service) workMatched(ctx context.Context, r outbox.Row) error {
	var what struct {
		Order int64 `json:"order"`
	}
	if err := r.Bind(&what); err != nil {
		return err
	}
	var c capturing
	if err := s.call(ctx, &c, "capturing", r.Sale, what.Order); err != nil {
		return err
	}
	if c.Code == "none" {
		return nil
	}
	p, err := s.load(ctx, r.Sale, c.Payment)
	if err != nil {
		return err
	}
	charge, err := s.captured(ctx, p, c)
	var no gatewayNo
	switch {
	case errors.As(err, &no):
		return s.failed(ctx, r, what.Order, no)
	case err != nil:
		return err
	}
	if _, err := s.confirm(ctx, r.Sale, p.ID, p.Gateway, charge, r.TraceID); err != nil {
		return err
	}
	var after capturing
	if err := s.call(ctx, &after, "capturing", r.Sale, what.Order); err != nil {
		return err
	}
	if after.Code != "none" {
		return fmt.Errorf("payment: order %d of sale %d is captured and still matched", what.Order, r.Sale)
	}
	return nil
}

// gatewayNo is why an order that has seats will not be charged. The sentence is a
// key of the catalogue of texts.
type gatewayNo struct {
	why   string
	cause error
}

func (n gatewayNo) Error() string {
	if n.cause != nil {
		return n.why + ": " + n.cause.Error()
	}
	return n.why
}

// whyRefused is told to who is not charged because the gateway would not.
const whyRefused = "the payment was refused"

// captured takes the fare of a matched order, or finds it taken. gatewayNo: it
// never will be; any other error: nobody knows, or not yet.
func (s *Service) captured(ctx context.Context, p row, c capturing) (Charge, error) {
	free := Charge{Reference: p.Reference, Status: Succeeded, Amount: money.Amount{Currency: c.Currency}}
	lost := gatewayNo{why: c.Why}
	if p.Amount == 0 {
		if c.Code == "lost" {
			return Charge{}, lost
		}
		return free, nil
	}
	g, err := s.gateway(p.Gateway, p.SaleTest)
	if err != nil {
		return Charge{}, err
	}
	call, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	if c.Step != "matched" {
		stands, err := g.LookUp(call, p.Reference)
		switch {
		case errors.Is(err, ErrUnknown):
			return Charge{}, gatewayNo{why: whyRefused, cause: err}
		case err != nil:
			return Charge{}, outbox.Down(fmt.Errorf("the capture may or may not have been made: %w", err))
		case stands.Status == Succeeded:
			return stands, s.notedCapture(ctx, p)
		case c.Code == "lost":
			return Charge{}, lost
		case stands.Status == Cancelled && c.Fare == 0:
			return free, nil
		case stands.Status == Failed || stands.Status == Cancelled:
			return Charge{}, gatewayNo{why: whyRefused, cause: fmt.Errorf("it is %s at the gateway", stands.Status)}
		}
	}
	if c.Code == "lost" {
		return Charge{}, lost
	}
	if c.Fare == 0 { // of the class it got: nothing can be captured, so the sum is let go
		done, err := g.Cancel(call, p.Reference, p.key("cancel"))
		switch {
		case errors.Is(err, ErrUnknown) || err == nil && done.Status == Cancelled:
			return free, nil
		case err == nil && done.Status == Succeeded:
			return done, nil
		case err == nil:
			err = fmt.Errorf("it is %s", done.Status)
		}
		return Charge{}, outbox.Down(fmt.Errorf("the authorisation may or may not be void: %w", err))
	}
	amount := c.Fare
	if !g.Traits().CapturePart {
		amount = p.Amount // the difference goes back
	}
	done, err := g.Capture(call, p.Reference, amount, p.key("capture"))
	switch {
	case errors.Is(err, ErrRefused) || errors.Is(err, ErrUnknown):
		// A gateway that has forgotten our key says no to a second capture too.
		stands, again := g.LookUp(call, p.Reference)
		switch {
		case again == nil && stands.Status == Succeeded:
			return stands, s.notedCapture(ctx, p)
		case again != nil && !errors.Is(again, ErrUnknown):
			return Charge{}, outbox.Down(again)
		}
		return Charge{}, gatewayNo{why: whyRefused, cause: err}
	case err != nil:
		return Charge{}, outbox.Down(fmt.Errorf("the capture may or may not have been made: %w", err))
	case done.Status != Succeeded: // it takes its time: its event or the next look says how it ends
		return Charge{}, outbox.Later(askFirst)
	}
	return done, s.notedCapture(ctx, p)
}

// notedCapture moves the recovery point: the money is there.
func (s *Service) notedCapture(ctx context.Context, p row) error {
	return s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, sql["captured"], p.Sale, p.Order)
		return err
	})
}

// failed ends an order that will not be charged: its seats go to the next, its
// holder is told, and what was authorised is let go.
func (s *Service) failed(ctx context.Context, r outbox.Row, order int64, no gatewayNo) error {
	var f struct {
		Code  string        `json:"code"`
		State standby.State `json:"state"`
	}
	if err := s.call(ctx, &f, "failed", r.Sale, order, no.why, r.TraceID); err != nil {
		return err
	}
	if f.Code != "failed" {
		if f.State == standby.Matched {
			return fmt.Errorf("payment: order %d of sale %d is not charged (%w) and keeps its seats", order, r.Sale, no)
		}
		return nil // a webhook was quicker
	}
	slog.InfoContext(ctx, "standby order not charged", "sale", r.Sale, "order", order, "error", no, "trace_id", r.TraceID)
	s.releases.Committed(ctx, r.Sale)
	s.void(ctx, r.Sale, order, r.TraceID)
	return nil
}
