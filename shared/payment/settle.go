package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/money"
	"handler/function/shared/outbox"
	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/gofrs/uuid/v5"
	"github.com/jackc/pgx/v5"
)

// Asking a gateway about a payment it keeps pending.
const (
	askFirst = 5 * time.Second  // after it was made
	askMost  = 60 * time.Second // between two questions
	patience = 2 * time.Second  // between two questions for a payer who waits
	askBatch = 100
	parallel = 8 // calls to gateways at a time, of one draining
	maxSales = 1000
)

// askWait is how long after the n-th question (from 0) the next one comes: 5 s,
// 10 s, 20 s, 40 s, then every minute.
func askWait(asks int) time.Duration {
	wait := askFirst
	for range min(asks, 10) {
		wait *= 2
	}
	return min(wait, askMost)
}

// ask asks the gateway how a payment stands and does what follows from it.
func (s *Service) ask(ctx context.Context, p row) error {
	g, err := s.gateway(p.Gateway, p.SaleTest)
	if err != nil {
		return err
	}
	if p.Step == StepMade {
		// A crash before or after the gateway made it: the same key finds out.
		_, _, err := s.create(ctx, g, p)
		if problem.Is(err, problem.WrongState) {
			return nil // refused, and noted so
		}
		return err
	}
	call, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	c, err := g.LookUp(call, p.Reference)
	if errors.Is(err, ErrUnknown) {
		slog.ErrorContext(ctx, "the gateway has lost a payment", "gateway", p.Gateway, "reference", p.Reference, "sale", p.Sale, "booking", p.Booking)
		c, err = Charge{Reference: p.Reference, Status: Cancelled}, nil
	}
	if err != nil {
		return err
	}
	return s.follow(ctx, p, c)
}

// follow does what a gateway's answer about a payment means.
func (s *Service) follow(ctx context.Context, p row, c Charge) error {
	switch c.Status {
	case Succeeded:
		_, err := s.confirm(ctx, p.Sale, p.ID, p.Gateway, c, p.TraceID)
		return err
	case Authorised, Pending, Failed, Cancelled:
		if c.Status == Authorised && p.Order != 0 { // its webhook was lost, or it waits
			_, err := s.authorised(ctx, p.Sale, p.ID, p.Gateway, c, p.TraceID)
			return err
		}
		status := c.Status
		if status == Authorised {
			status = Pending
		}
		var n noted
		if err := s.call(ctx, &n, "note", p.Sale, p.ID, status, true, askWait(p.Asks+1), p.TraceID); err != nil {
			return err
		}
		s.ordersNoted(ctx, p.Sale, n)
		return nil
	}
	return fmt.Errorf("payment: the gateway %s says that %s is %q", p.Gateway, c.Reference, c.Status)
}

// AskDue asks gateways about the payments that are due to be asked about. One
// that fails does not stop the others.
func (s *Service) AskDue(ctx context.Context) (int, error) {
	var sales []int64
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["ask-sales"], maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, err
	}
	asked := 0
	for _, sale := range sales {
		n, err := s.askSale(ctx, sale)
		asked += n
		if err != nil {
			return asked, err
		}
	}
	return asked, nil
}

func (s *Service) askSale(ctx context.Context, sale int64) (int, error) {
	var due []uuid.UUID
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["claim-asks"], sale, askBatch, askMost)
		if err != nil {
			return err
		}
		due, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
	if err != nil {
		return 0, err
	}
	each(due, func(payment uuid.UUID) {
		if ctx.Err() != nil {
			return // claimed for a minute, then due again
		}
		p, err := s.load(ctx, sale, payment)
		if err == nil && p.Step != StepSettled {
			err = s.ask(ctx, p)
		}
		if err != nil {
			slog.WarnContext(ctx, "gateway not asked", "sale", sale, "payment", payment, "error", err)
		}
	})
	return len(due), ctx.Err()
}

// each works at items, some at a time.
func each[T any](items []T, work func(T)) {
	slots := make(chan struct{}, parallel)
	for _, item := range items {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			work(item)
		}()
	}
	for range parallel {
		slots <- struct{}{}
	}
}

// Sweep works at the due outbox rows of every sale, of one kind.
func (s *Service) Sweep(ctx context.Context, kind string) (outbox.Did, error) {
	return s.box.DrainAll(ctx, kind, parallel, s.worker(kind))
}

// drain works at the due rows of one sale.
func (s *Service) drain(ctx context.Context, sale int64, kind string) error {
	_, err := s.box.Drain(ctx, sale, kind, parallel, s.worker(kind))
	return err
}

func (s *Service) worker(kind string) outbox.Work {
	switch kind {
	case KindRefund:
		return s.workRefund
	case KindCancel:
		return s.workCancel
	case KindCallOff:
		return s.workCallOff
	case KindMatched:
		return s.workMatched
	}
	panic("payment: no work for outbox rows of kind " + kind)
}

// workRefund gives money back: the same key for every try, so that a try whose
// answer was lost does not pay twice (field case 21).
func (s *Service) workRefund(ctx context.Context, r outbox.Row) error {
	var what struct {
		Refund int64 `json:"refund"`
	}
	if err := r.Bind(&what); err != nil {
		return err
	}
	var (
		payment                            uuid.UUID
		booking                            int64
		amount                             money.Amount
		key, state, gatewayName, reference string
	)
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["load-refund"], r.Sale, what.Refund).Scan(&payment, &booking, &amount.Amount, &amount.Currency,
			&key, &state, &gatewayName, &reference)
	})
	if err != nil {
		return err
	}
	if state == "succeeded" {
		return nil
	}
	g, ok := s.gateways[gatewayName]
	if !ok {
		return fmt.Errorf("payment: the gateway %q is not configured here", gatewayName)
	}
	call, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	back, err := g.Refund(call, reference, amount, key)
	if err != nil {
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnknown) {
			return err
		}
		return outbox.Down(fmt.Errorf("the refund may or may not have been made: %w", err))
	}
	status := map[Status]string{Succeeded: "succeeded", Failed: "failed"}[back.Status]
	if status == "" {
		status = "asked" // its event says how it ends
	}
	if _, err = s.noteRefund(ctx, r.Sale, key, back.Reference, status); err != nil {
		return err
	}
	if status == "succeeded" {
		return s.alerts.Close(ctx, r.Sale, AlertRefund, key)
	}
	return nil
}

// workCancel ends a payment at the gateway that is not to be made any more, and
// with "release" lets the booking go after it.
func (s *Service) workCancel(ctx context.Context, r outbox.Row) error {
	var what struct {
		Payment uuid.UUID `json:"payment"`
		Release bool      `json:"release"`
	}
	if err := r.Bind(&what); err != nil {
		return err
	}
	p, err := s.load(ctx, r.Sale, what.Payment)
	if err != nil {
		return err
	}
	if err := s.cancel(ctx, p); err != nil {
		return err
	}
	if what.Release {
		var left abandoned
		defer s.releases.Committed(ctx, r.Sale)
		return s.call(ctx, &left, "abandon", r.Sale, p.Booking, p.Account, r.TraceID)
	}
	return nil
}

const (
	// callOffBatch bookings of a cancelled sale are given back in one go.
	callOffBatch = 500
	// callOffFor is how long a cancelled sale is looked through, callOffWait
	// between two looks: a confirm step that read the sale before it was cancelled
	// may book after the first look, and none runs as long as this.
	callOffFor  = time.Minute
	callOffWait = 10 * time.Second
)

// workCallOff gives back what was sold of a cancelled sale, one booking a
// transaction, until no confirm step that began before it can book any more.
// Holds end by themselves, and money that still comes goes back.
func (s *Service) workCallOff(ctx context.Context, r outbox.Row) error {
	var booked []int64
	over := false // read before the look, by the database's clock
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		if err := q.QueryRow(ctx, sql["past"], r.CreatedAt, callOffFor).Scan(&over); err != nil {
			return err
		}
		rows, err := q.Query(ctx, sql["booked"], r.Sale, callOffBatch)
		if err != nil {
			return err
		}
		booked, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return err
	}
	defer s.releases.Committed(ctx, r.Sale)
	for _, number := range booked {
		var done returned
		if err := s.call(ctx, &done, "call-off", r.Sale, number, r.TraceID); err != nil {
			return err
		}
		if done.Code == "not-found" {
			return fmt.Errorf("payment: sale %d is not cancelled", r.Sale)
		}
	}
	switch {
	case len(booked) == callOffBatch:
		return outbox.Later(time.Second)
	case !over:
		return outbox.Later(callOffWait)
	}
	return nil
}

// cancel ends a payment at the gateway. If it was paid meanwhile the confirm
// step decides.
func (s *Service) cancel(ctx context.Context, p row) error {
	if p.Step == StepSettled {
		return nil
	}
	if p.Order != 0 && p.Amount == 0 { // no gateway knows of it
		return s.follow(ctx, p, Charge{Status: Cancelled})
	}
	g, err := s.gateway(p.Gateway, p.SaleTest)
	if err != nil {
		return err
	}
	if p.Step == StepMade {
		c, _, err := s.create(ctx, g, p)
		if problem.Is(err, problem.WrongState) {
			return nil // the gateway never made it
		}
		if err != nil {
			return err
		}
		p.Reference = c.Reference
		if p.Amount == 0 {
			return nil
		}
	}
	call, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	c, err := g.Cancel(call, p.Reference, p.key("cancel"))
	if errors.Is(err, ErrUnknown) {
		c, err = Charge{Reference: p.Reference, Status: Cancelled}, nil
	}
	if err != nil {
		return err
	}
	if c.Status != Succeeded && c.Status != Cancelled {
		return fmt.Errorf("payment: the gateway %s did not cancel %s, it is %s", p.Gateway, c.Reference, c.Status)
	}
	return s.follow(ctx, p, c)
}

// Compare finds bookings (and orders without one) of sales with recent money whose captured money is not
// what it should be (invariant 3), and raises or closes their alerts. Every
// recorded movement keeps the sum in its own transaction, so each difference is
// a fault and none is only early.
func (s *Service) Compare(ctx context.Context, since time.Duration) (int, error) {
	var sales []int64
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["money-sales"], since, maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, err
	}
	faults := 0
	var still []alert.About
	for _, sale := range sales {
		err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
			rows, err := q.Query(ctx, sql["money-faults"], sale, 100)
			if err != nil {
				return err
			}
			var subject string
			var captured, due int64
			_, err = pgx.ForEachRow(rows, []any{&subject, &captured, &due}, func() error {
				faults++
				still = append(still, alert.About{Sale: sale, Subject: subject})
				return nil
			})
			return err
		})
		if err != nil {
			return faults, err
		}
	}
	for _, a := range still {
		s.alerts.Raise(ctx, a.Sale, AlertMoney, a.Subject, "what was captured is not the fare, the refunds and the fees of this booking")
	}
	return faults, s.alerts.CloseOthers(ctx, AlertMoney, still)
}

// closeEventAlerts closes the alerts of references that were placed meanwhile.
func (s *Service) closeEventAlerts(ctx context.Context) error {
	var still []alert.About
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["unknown-events"])
		if err != nil {
			return err
		}
		still, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (alert.About, error) {
			var a alert.About
			err := r.Scan(&a.Subject)
			return a, err
		})
		return err
	})
	if err != nil {
		return err
	}
	// A message that could not be read stays for a person to see.
	still = append(still, alert.About{Subject: "stream " + StreamGateway})
	return s.alerts.CloseOthers(ctx, AlertEvent, still)
}
