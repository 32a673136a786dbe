package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/gofrs/uuid/v5"
	"github.com/jackc/pgx/v5"
)

// How long an event waits before it is looked at again.
const (
	eventClaim = 30 * time.Second // of a replica that works at it
	eventMost  = 10 * time.Minute // between two tries
	eventBatch = 100
	applyTime  = 5 * time.Second // of the effect, before a webhook is answered
)

// Received is what became of a webhook.
type Received struct {
	Recorded bool // in Postgres; else in the stream, for reconcile
	First    bool // false: this event had come before
	Effect   string
}

// Receive takes a webhook: checks it, records it once by its event id in a
// transaction of its own, and then applies it as far as that goes now. Once it
// is recorded there is no error any more: what could not be applied is applied
// by pay or reconcile. While Postgres is away it is kept in the stream GATEWAY.
// Errors: invalid (no such gateway here), bad-signature, bad-request, and
// unavailable when neither could take it.
func (s *Service) Receive(ctx context.Context, gateway string, header http.Header, body []byte, now time.Time) (Received, error) {
	g, ok := s.gateways[gateway]
	if !ok || (g.Traits().TestOnly && !s.test) {
		return Received{}, problem.Invalid("gateway", "must be a gateway of this installation")
	}
	e, err := g.Verify(header, body, now)
	if errors.Is(err, ErrSignature) {
		return Received{}, problem.New(problem.BadSignature, "The signature of this webhook is not right.").Because(err)
	}
	if err != nil || !e.readable() {
		return Received{}, problem.Malformed("body", "must be an event as the gateway sends it").Because(err)
	}
	first, applied, err := s.record(ctx, e, now)
	if err != nil && !problem.Is(err, problem.Unavailable) {
		return Received{}, err // Postgres is there and refuses: keeping it would not help
	}
	if err != nil {
		if kept := s.keep(ctx, e, now); kept != nil {
			return Received{}, problem.New(problem.Unavailable, "Under maintenance, please send this again.").After(2 * time.Second).
				Because(errors.Join(err, kept))
		}
		slog.WarnContext(ctx, "event kept in the stream", "gateway", gateway, "event", e.ID, "error", err)
		return Received{First: true, Effect: "kept"}, nil
	}
	r := Received{Recorded: true, First: first}
	if !applied {
		// The gateway is answered soon, whatever the effect waits for.
		ctx, cancel := context.WithTimeout(ctx, applyTime)
		defer cancel()
		r.Effect = s.apply(ctx, e, 0)
	}
	return r, nil
}

// record writes the event, once. applied: it has had its effect.
func (s *Service) record(ctx context.Context, e Event, received time.Time) (first, applied bool, err error) {
	put := func(body json.RawMessage) error {
		return s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["record"], e.Gateway, e.ID, string(e.Type), e.Reference, e.Payment, e.RefundKey,
				e.Amount.Amount, e.Amount.Currency, body, received, eventClaim).Scan(&first, &applied)
		})
	}
	// jsonb takes less than JSON allows: no NUL, no half of a surrogate pair, no
	// number beyond its range. Postgres says so (class 22), or that it is too deep
	// (54); such a body is kept whole, as base64.
	plain := utf8.Valid(e.Body) && json.Valid(e.Body)
	if plain {
		err = put(e.Body)
		state := store.State(err)
		plain = !strings.HasPrefix(state, "22") && !strings.HasPrefix(state, "54")
	}
	if !plain {
		var b []byte
		if b, err = json.Marshal(map[string][]byte{"base64": e.Body}); err == nil {
			err = put(b)
		}
	}
	return first, applied, err
}

// readable says whether what identifies an event can be kept in Postgres.
func (e Event) readable() bool {
	for _, s := range []string{e.ID, string(e.Type), e.Reference, e.Payment, e.RefundKey, e.Amount.Currency} {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 || len(s) > 255 {
			return false
		}
	}
	return e.ID != "" && e.Reference != ""
}

// errUnplaced: the event names no payment of ours.
var errUnplaced = errors.New("no payment of ours")

// apply gives an event its effect and marks it; what fails is due again later.
// tries is how often it was tried before.
func (s *Service) apply(ctx context.Context, e Event, tries int) string {
	effect, err := s.effect(ctx, e)
	if err == nil {
		if err = s.mark(ctx, sql["applied"], e.Gateway, e.ID, effect); err == nil {
			return effect
		}
	}
	wait := min(time.Duration(tries+1)*10*time.Second, eventMost)
	if errors.Is(err, errUnplaced) {
		effect, wait = "unknown", eventMost
		s.alerts.Raise(ctx, 0, AlertEvent, e.Gateway+" "+e.Reference, fmt.Sprintf("%s %s: %v", e.Type, e.ID, err))
	} else {
		effect = "failed: " + err.Error()
		slog.WarnContext(ctx, "event not applied", "gateway", e.Gateway, "event", e.ID, "type", e.Type, "tries", tries+1, "error", err)
		if tries+1 >= 3 && !problem.Is(err, problem.Unavailable) {
			s.alerts.Raise(ctx, 0, AlertEvent, e.Gateway+" "+e.Reference, effect)
		}
	}
	if err := s.mark(ctx, sql["event-later"], e.Gateway, e.ID, wait, effect); err != nil {
		slog.WarnContext(ctx, "event not put off", "gateway", e.Gateway, "event", e.ID, "error", err)
	}
	return effect
}

func (s *Service) mark(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	return s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, statement, args...)
		return err
	})
}

// effect is what an event does, any number of times the same.
func (s *Service) effect(ctx context.Context, e Event) (string, error) {
	switch e.Type {
	case PaymentAuthorised, PaymentSucceeded, PaymentPending, PaymentFailed, PaymentCancelled, RefundSucceeded, RefundFailed:
	default: // not ours to act on
		return "none", nil
	}
	sale, payment, err := s.place(ctx, e)
	if err != nil {
		return "", err
	}
	switch e.Type {
	case PaymentAuthorised:
		out, err := s.authorised(ctx, sale, payment, e.Gateway, Charge{Reference: e.Reference, Amount: e.Amount}, e.ID)
		if err == nil && out.Code == string(OutcomeUnknown) {
			err = fmt.Errorf("%w: payment %s of sale %d is not there", errUnplaced, payment, sale)
		}
		return out.Code, err
	case PaymentSucceeded:
		out, err := s.confirm(ctx, sale, payment, e.Gateway, Charge{Reference: e.Reference, Amount: e.Amount}, e.ID)
		if err == nil && out.Code == OutcomeUnknown {
			err = fmt.Errorf("%w: payment %s of sale %d is not there", errUnplaced, payment, sale)
		}
		return string(out.Code), err
	case RefundSucceeded, RefundFailed:
		return s.refundEvent(ctx, sale, payment, e)
	}
	status := map[EventType]Status{PaymentPending: Pending, PaymentFailed: Failed, PaymentCancelled: Cancelled}[e.Type]
	var n noted
	if err := s.call(ctx, &n, "note", sale, payment, status, false, time.Second, e.ID); err != nil {
		return "", err
	}
	if n.Code == string(OutcomeUnknown) {
		return "", fmt.Errorf("%w: payment %s of sale %d is not there", errUnplaced, payment, sale)
	}
	s.ordersNoted(ctx, sale, n)
	return n.Code, nil
}

// noted is the answer of payment_note and refund_note.
type noted struct {
	Code    string `json:"code"`
	State   State  `json:"state"`
	Booking int64  `json:"booking"`
	Order   int64  `json:"order"`
}

// place finds the payment an event is about: by our id in its metadata, else by
// asking the gateway for its reference. errUnplaced: neither is ours.
func (s *Service) place(ctx context.Context, e Event) (int64, uuid.UUID, error) {
	name := e.Payment
	if name == "" {
		g, ok := s.gateways[e.Gateway]
		if !ok {
			return 0, uuid.Nil, fmt.Errorf("payment: the gateway %q is not configured here", e.Gateway)
		}
		call, cancel := context.WithTimeout(ctx, gatewayTime)
		defer cancel()
		c, err := g.LookUp(call, e.Reference)
		if errors.Is(err, ErrUnknown) || (err == nil && c.Payment == "") {
			return 0, uuid.Nil, fmt.Errorf("%w: reference %s", errUnplaced, e.Reference)
		}
		if err != nil {
			return 0, uuid.Nil, err
		}
		name = c.Payment
	}
	sale, payment, err := s.ids.ParsePayment(name)
	if err != nil {
		return 0, uuid.Nil, fmt.Errorf("%w: payment id %q", errUnplaced, name)
	}
	return sale, payment, nil
}

// refundEvent notes how a refund went; one without our key is found by amount.
func (s *Service) refundEvent(ctx context.Context, sale int64, payment uuid.UUID, e Event) (string, error) {
	key := e.RefundKey
	if key == "" {
		err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["refund-by-reference"], sale, payment, e.Amount.Amount).Scan(&key)
		})
		if store.IsNoRows(err) {
			return "none", nil // noted already, from the answer to our call
		}
		if err != nil {
			return "", err
		}
	}
	return s.noteRefund(ctx, sale, key, "", map[EventType]string{RefundSucceeded: "succeeded", RefundFailed: "failed"}[e.Type])
}

// noteRefund writes how a refund went and alerts when it failed.
func (s *Service) noteRefund(ctx context.Context, sale int64, key, reference, status string) (string, error) {
	var n noted
	var ref *string
	if reference != "" {
		ref = &reference
	}
	if err := s.call(ctx, &n, "refund-note", sale, key, ref, status); err != nil {
		return "", err
	}
	if n.Code == "failed" {
		s.alerts.Raise(ctx, sale, AlertRefund, key, "the gateway says that this refund failed; somebody has to see to it")
	}
	return n.Code, nil
}

// applyWaiting applies the events of a reference that came before it was known.
func (s *Service) applyWaiting(ctx context.Context, gateway, reference string) {
	events, err := s.events(ctx, sql["waiting-events"], gateway, reference)
	if err != nil {
		slog.WarnContext(ctx, "waiting events left to reconcile", "gateway", gateway, "reference", reference, "error", err)
		return
	}
	for _, e := range events {
		s.apply(ctx, e.Event, e.tries)
	}
}

// ApplyDue applies recorded events that have not had their effect, in batches.
func (s *Service) ApplyDue(ctx context.Context) (int, error) {
	n := 0
	for range 50 {
		events, err := s.events(ctx, sql["claim-events"], eventBatch, eventClaim)
		if err != nil {
			return n, err
		}
		for _, e := range events {
			if ctx.Err() != nil {
				return n, ctx.Err()
			}
			s.apply(ctx, e.Event, e.tries)
			n++
		}
		if len(events) < eventBatch {
			break
		}
	}
	return n, s.closeEventAlerts(ctx)
}

type recorded struct {
	Event
	tries int
}

func (s *Service) events(ctx context.Context, statement string, args ...any) ([]recorded, error) {
	var all []recorded
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, statement, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (recorded, error) {
			var e recorded
			err := r.Scan(&e.Gateway, &e.ID, &e.Type, &e.Reference, &e.Payment, &e.RefundKey, &e.Amount.Amount, &e.Amount.Currency, &e.Body, &e.tries)
			return e, err
		})
		return err
	})
	return all, err
}

// kept is an event in the stream GATEWAY. It was verified when it came.
type kept struct {
	Event    Event     `json:"event"`
	Received time.Time `json:"received_at"` // the first time, kept
}

func (k kept) encode() ([]byte, error) { return json.Marshal(k) }
