package payment

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"handler/function/shared/idempotency"
	"handler/function/shared/money"
	"handler/function/shared/problem"
	"handler/function/shared/standby"
	"handler/function/shared/store"

	"github.com/gofrs/uuid/v5"
)

// Request begins a payment.
type Request struct {
	Account   string
	Booking   string // public id
	Gateway   string
	ReturnURL string // where the payer's browser goes afterwards; may be empty
	Key       string // Idempotency-Key
	Hash      []byte // of the body
	TraceID   string
}

// Started is the answer of `pay`.
type Started struct {
	Payment        string       `json:"payment"`
	Booking        string       `json:"booking"`
	State          State        `json:"state"`
	Price          money.Amount `json:"price"`
	Gateway        AtGateway    `json:"gateway"`
	EndsAt         time.Time    `json:"ends_at"`
	MayExtendUntil time.Time    `json:"may_extend_until"`
	ServerTime     time.Time    `json:"server_time"`
}

// AtGateway is how the payer goes on. The secret and the address are never
// stored with us: they are fetched anew for every answer.
type AtGateway struct {
	Name         string `json:"name"`
	Reference    string `json:"reference"`
	ClientSecret string `json:"client_secret,omitempty"`
	RedirectURL  string `json:"redirect_url,omitempty"`
}

// Validate says what is wrong with a request before anything is asked.
func (r Request) Validate() error {
	if r.Gateway == "" || len(r.Gateway) > 40 {
		return problem.Invalid("gateway", "must be one of the gateways of this sale")
	}
	if r.ReturnURL == "" {
		return nil
	}
	u, err := url.Parse(r.ReturnURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || utf8.RuneCountInString(r.ReturnURL) > maxURL {
		return problem.Invalid("return_url", "must be an http or https address of at most %d characters", maxURL)
	}
	return nil
}

// begun is the answer of payment_begin.
type begun struct {
	Code      string    `json:"code"`
	Payment   uuid.UUID `json:"payment"`
	Booking   int64     `json:"booking"`
	Gateway   string    `json:"gateway"`
	Step      Step      `json:"step"`
	State     State     `json:"state"`
	Reference string    `json:"reference"`
	Amount    int64     `json:"amount"`
	Currency  string    `json:"currency"`
	ReturnURL string    `json:"return_url"`
	Title     string    `json:"title"`
	Test      bool      `json:"test"`
	EndsAt    time.Time `json:"ends_at"`
	LimitAt   time.Time `json:"limit_at"`
}

// Pay begins a payment for a hold: its row, the payment at the gateway, the
// reference stored and the hold extended. The same key again gives the same
// answer, with the secrets fetched anew; after a crash in between it goes on
// from where it was. Replay says that the answer was given before. Errors:
// invalid, not-found, hold-ended, wrong-state, sale-closed, too-many-requests,
// idempotency-mismatch, in-progress, unavailable.
func (s *Service) Pay(ctx context.Context, r Request) (out Started, replay bool, err error) {
	if err := r.Validate(); err != nil {
		return out, false, err
	}
	sale, number, err := s.ids.ParseBooking(r.Booking)
	if err != nil {
		return out, false, err
	}
	call := idempotency.Call{Sale: sale, Account: r.Account, Function: "pay", Key: r.Key, Hash: r.Hash}
	var fresh Started
	kept, err := s.keys.Do(ctx, call, func(ctx context.Context) (int, any, error) {
		fresh, err = s.pay(ctx, sale, number, r)
		stored := fresh
		stored.Gateway.ClientSecret, stored.Gateway.RedirectURL = "", ""
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
	return out, true, s.secrets(ctx, out.Payment, &out.Gateway, &out.ServerTime)
}

// secrets fetches what is never stored.
func (s *Service) secrets(ctx context.Context, public string, at *AtGateway, now *time.Time) error {
	sale, payment, err := s.ids.ParsePayment(public)
	if err != nil {
		return err
	}
	p, err := s.load(ctx, sale, payment)
	if err != nil {
		return err
	}
	*now = p.Now
	if p.Amount == 0 {
		return nil
	}
	g, err := s.gateway(p.Gateway, p.SaleTest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	c, err := g.LookUp(ctx, p.Reference)
	if err != nil {
		return unavailable(err)
	}
	at.ClientSecret, at.RedirectURL = c.ClientSecret, c.RedirectURL
	return nil
}

// pay is one run of an attempt, from whichever recovery point it stands at.
func (s *Service) pay(ctx context.Context, sale, number int64, r Request) (Started, error) {
	fresh, err := uuid.NewV7()
	if err != nil {
		return Started{}, err
	}
	var b begun
	err = s.call(ctx, &b, "begin", sale, number, r.Account, r.Gateway, r.Key, fresh, r.ReturnURL, maxAttempts, r.TraceID)
	if err != nil {
		return Started{}, err
	}
	if b.Code != "made" {
		return Started{}, refusal(b.Code)
	}
	g, err := s.gateway(b.Gateway, b.Test)
	if err != nil {
		return Started{}, problem.Invalid("gateway", "must be one of the gateways of this sale").Because(err)
	}
	out := Started{
		Payment: s.ids.Payment(sale, b.Payment), Booking: s.ids.Booking(sale, b.Booking), State: b.State,
		Price: money.Amount{Amount: b.Amount, Currency: b.Currency}, EndsAt: b.EndsAt, MayExtendUntil: b.LimitAt,
	}
	p := row{Sale: sale, ID: b.Payment, Booking: b.Booking, Gateway: b.Gateway, Amount: b.Amount, Currency: b.Currency,
		Return: b.ReturnURL, Title: b.Title, LimitAt: b.LimitAt, TraceID: r.TraceID}
	c, made, err := s.create(ctx, g, p)
	if err != nil {
		return Started{}, err
	}
	switch made.Standing {
	case "in-time", "booked":
	default:
		return Started{}, refusal(made.Standing)
	}
	out.EndsAt, out.MayExtendUntil = made.EndsAt, made.LimitAt
	out.Gateway = AtGateway{Name: g.Name(), Reference: c.Reference, ClientSecret: c.ClientSecret, RedirectURL: c.RedirectURL}
	// Events that came before the reference was known (field cases 18 and 19),
	// and what became of the payment meanwhile.
	s.applyWaiting(ctx, g.Name(), c.Reference)
	now, err := s.load(ctx, sale, b.Payment)
	if err != nil {
		return Started{}, err
	}
	out.State, out.ServerTime = now.State, now.Now
	return out, nil
}

// created is the answer of payment_created.
type created struct {
	Code     string    `json:"code"`
	Standing string    `json:"standing"`
	EndsAt   time.Time `json:"ends_at"`
	LimitAt  time.Time `json:"limit_at"`
}

// create makes the payment at the gateway, or finds the one made before by its
// key, and stores the reference. A booking that costs nothing is confirmed
// without a gateway. What a standby order may cost is authorised, not charged; one
// that costs nothing, or is authorised already, takes its place at once.
func (s *Service) create(ctx context.Context, g Gateway, p row) (Charge, created, error) {
	var c Charge
	var made created
	ask, what := g.Create, "pay"
	if p.Order != 0 {
		ask, what = g.Authorise, "authorise"
	}
	if p.Amount == 0 {
		c = Charge{Reference: p.key("free"), Status: Succeeded, Amount: money.Amount{Currency: p.Currency}}
		if p.Order != 0 {
			c.Status = Authorised
		}
	} else {
		var err error
		call, cancel := context.WithTimeout(ctx, gatewayTime)
		defer cancel()
		c, err = ask(call, Order{
			Key: p.key(what), Payment: p.public(s.ids), Amount: money.Amount{Amount: p.Amount, Currency: p.Currency},
			Description: p.Title, ReturnURL: p.Return, Until: p.LimitAt,
		})
		if errors.Is(err, ErrRefused) {
			// It will not be made: nobody needs to ask about it again.
			var n noted
			if err := s.call(ctx, &n, "note", p.Sale, p.ID, Cancelled, false, time.Second, p.TraceID); err != nil {
				return c, made, err
			}
			s.ordersNoted(ctx, p.Sale, n)
			return c, made, problem.New(problem.WrongState, "The payment gateway refused this payment. Please try another way to pay.").Because(err)
		}
		if err != nil {
			return c, made, unavailable(err)
		}
	}
	if err := s.call(ctx, &made, "created", p.Sale, p.ID, c.Reference, p.TraceID); err != nil {
		return c, made, err
	}
	switch {
	case p.Order != 0 && c.Status == Authorised:
		_, err := s.authorised(ctx, p.Sale, p.ID, p.Gateway, c, p.TraceID)
		return c, made, err
	case p.Order == 0 && p.Amount == 0:
		_, err := s.confirm(ctx, p.Sale, p.ID, p.Gateway, c, p.TraceID)
		return c, made, err
	}
	return c, made, nil
}

// refusal is what a booking's standing means to who wants to pay for it.
func refusal(standing string) error {
	switch standing {
	case "not-found":
		return notFound()
	case "gateway":
		return problem.Invalid("gateway", "must be one of the gateways of this sale")
	case "too-many":
		return problem.New(problem.TooManyRequests, "There are too many attempts to pay for this booking.").After(time.Minute)
	case "ended", "late", "closed":
		return problem.New(problem.HoldEnded, "The hold has ended. What was paid for it comes back by itself.")
	case "departed", "cancelled":
		return problem.New(problem.SaleClosed, "This sale is closed.")
	default: // booked, let-go, lost, matched
		return problem.New(problem.WrongState, "This booking is not waiting to be paid for.")
	}
}

// View is a payment as its owner sees it.
type View struct {
	Payment      string       `json:"payment"`
	Booking      string       `json:"booking,omitempty"` // empty: authorised for a standby order
	State        State        `json:"state"`
	BookingState string       `json:"booking_state,omitempty"`
	Price        money.Amount `json:"price"`
	Refunded     money.Amount `json:"refunded"`
	Gateway      AtGateway    `json:"gateway"`
	// Checking: the last word has not been said; also after "failed", which is
	// not final (field case 15).
	Checking       bool      `json:"checking"`
	Message        string    `json:"message"`
	EndsAt         time.Time `json:"ends_at"`
	MayExtendUntil time.Time `json:"may_extend_until"`
	ServerTime     time.Time `json:"server_time"`
}

// Texts of a payment, keys of the catalogue.
const (
	TextChecking = "We are still checking your payment. You need not pay again."
	TextPaid     = "Paid. Your ticket is on its way."
	TextReturned = "Your payment came too late or twice. All of it comes back to you."
	TextRefunded = "Your payment has been given back."
	TextFailed   = "The payment did not succeed. Nothing was charged."
	TextWaits    = "Authorised. You are charged when seats are found, and for those alone."
)

func (r row) message() string {
	switch {
	case r.Step != StepSettled && (r.OrderState.Waits() || r.OrderState == standby.Matched):
		return TextWaits
	case r.Step != StepSettled:
		return TextChecking
	case r.Outcome == OutcomeRefund:
		return TextReturned
	case r.Returning > 0:
		return TextRefunded
	case r.Outcome != "":
		return TextPaid
	default:
		return TextFailed
	}
}

// Show reads a payment of the account's own. One that is still open is asked
// about at the gateway, at most once in two seconds whoever calls, so that a
// lost webhook does not keep the payer waiting. Message is English, a key of
// the catalogue.
func (s *Service) Show(ctx context.Context, account, payment string) (View, error) {
	sale, u, err := s.ids.ParsePayment(payment)
	if err != nil {
		return View{}, err
	}
	p, err := s.load(ctx, sale, u)
	if err != nil {
		return View{}, err
	}
	if p.Account != account {
		return View{}, notFound()
	}
	if p.Step == StepCreated && s.mayAsk(ctx, p) {
		if err := s.ask(ctx, p); err != nil {
			slog.WarnContext(ctx, "gateway not asked", "payment", payment, "error", err)
		} else if p, err = s.load(ctx, sale, u); err != nil {
			return View{}, err
		}
	}
	booking := ""
	if p.Booking != 0 {
		booking = s.ids.Booking(sale, p.Booking)
	}
	return View{
		Payment: payment, Booking: booking, State: p.State, BookingState: p.BookingState,
		Price:    money.Amount{Amount: p.Amount, Currency: p.Currency},
		Refunded: money.Amount{Amount: p.Returning, Currency: p.Currency},
		Gateway:  AtGateway{Name: p.Gateway, Reference: p.Reference}, Checking: p.Step != StepSettled, Message: p.message(),
		EndsAt: p.EndsAt, MayExtendUntil: p.LimitAt, ServerTime: p.Now,
	}, nil
}

// mayAsk takes the right to ask the gateway now, unless somebody has it.
func (s *Service) mayAsk(ctx context.Context, p row) bool {
	var ours bool
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["claim-question"], p.Sale, p.ID, askWait(p.Asks)-patience, askWait(p.Asks)).Scan(&ours)
	})
	return err == nil && ours
}
