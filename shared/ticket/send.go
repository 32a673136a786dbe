package ticket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/mail"
	"handler/function/shared/outbox"
	"handler/function/shared/problem"
	"handler/function/shared/sms"
	"handler/function/shared/store"
)

// The kinds of outbox row that are sent from here. The payload of a ticket row
// is {"booking": NUMBER}, that of a notify row a Notice.
const (
	TicketKind = "ticket"
	NotifyKind = "notify"
)

const (
	// parallel is how many customers are written to at once by a replica. Each
	// takes a connection to the mail server and, briefly, one to Postgres.
	parallel = 8
	// sendTime bounds one customer's messages. It does not end with the request
	// that began it: a mail under way is not torn off.
	sendTime = 40 * time.Second
	// pause is the least time between two looks for due rows, however many
	// nudges come.
	pause = 100 * time.Millisecond
	// pauseDown is told to who nudges while the mail server is away.
	pauseDown = 5 * time.Second
	// finishTries is how often the end of a delivery is written down: losing it
	// would send the message again.
	finishTries = 3
	// refusedAlert is the kind of alert for an address that takes no mail.
	refusedAlert = "message-refused"
)

// Drain sends every ticket and notice that is due, of every sale. Nothing in the
// event that led here is believed; while one call drains, others return at once
// and leave their wish with it.
func (s *Service) Drain(ctx context.Context) (outbox.Did, error) {
	var did outbox.Did
	s.wanted.Store(true)
	for s.wanted.Load() && ctx.Err() == nil {
		if !s.draining.TryLock() {
			return did, nil
		}
		err := s.round(ctx, &did)
		s.draining.Unlock()
		switch {
		case ctx.Err() != nil:
			return did, nil // time is up: what is left is due, and reconcile nudges
		case outbox.IsDown(err):
			return did, problem.New(problem.Unavailable, "We cannot send mail at the moment. Please try again soon").After(pauseDown).Because(err)
		case err != nil:
			return did, err
		}
	}
	return did, nil
}

func (s *Service) round(ctx context.Context, did *outbox.Did) error {
	if wait := time.Until(s.lastRound.Add(pause)); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
	s.wanted.Store(false)
	s.lastRound = time.Now()
	for kind, work := range map[string]outbox.Work{TicketKind: s.sendTicket, NotifyKind: s.sendNotice} {
		d, err := s.box.DrainAll(ctx, kind, parallel, work)
		did.Add(d)
		if err != nil {
			return err
		}
	}
	return nil
}

// sendTicket sends the ticket of a booked booking; one that is not booked any
// more needs none.
func (s *Service) sendTicket(ctx context.Context, row outbox.Row) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	var payload struct {
		Booking int64 `json:"booking"`
	}
	if err := row.Bind(&payload); err != nil {
		return err
	}
	b, t, err := s.load(ctx, row.Sale, payload.Booking, row.Subject)
	if err != nil {
		return err
	}
	if b.State != booking.Booked {
		slog.InfoContext(ctx, "ticket not sent: booking is not booked", "sale", b.Sale, "booking", b.Number, "state", b.State, "trace_id", row.TraceID)
		return nil
	}
	m := Confirmation(t, s.publicURL)
	return s.deliver(ctx, row, b.Contact, m, func() ([]mail.Attachment, error) {
		paper, err := s.Paper(ctx, t)
		if err != nil {
			return nil, err
		}
		return []mail.Attachment{
			{Name: "ticket-" + t.Locator + ".pdf", Type: "application/pdf", Data: paper},
			{Name: "ticket-" + t.Locator + ".ics", Type: "text/calendar; charset=utf-8; method=PUBLISH", Data: Calendar(t)},
		}, nil
	})
}

func (s *Service) sendNotice(ctx context.Context, row outbox.Row) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	var n Notice
	if err := n.Bind(row.Payload); err != nil {
		return err
	}
	if n.Booking == 0 && n.Order != 0 {
		return s.sendOrderNotice(ctx, row, n)
	}
	b, t, err := s.load(ctx, row.Sale, n.Booking, row.Subject)
	if err != nil {
		return err
	}
	m, err := Notify(t, n)
	if err != nil {
		return err
	}
	return s.deliver(ctx, row, b.Contact, m, nil)
}

// load reads a booking and makes its ticket. Where the payload names no number
// the row's subject does.
func (s *Service) load(ctx context.Context, sale, number int64, subject string) (*booking.Booking, *Ticket, error) {
	if number == 0 {
		number, _ = strconv.ParseInt(subject, 10, 64)
	}
	b, err := s.bookings.Load(ctx, sale, number)
	if err != nil {
		return nil, nil, fmt.Errorf("ticket: booking %d of sale %d: %w", number, sale, err)
	}
	of, err := s.sales.Sale(ctx, sale)
	if err != nil {
		return nil, nil, fmt.Errorf("ticket: sale %d: %w", sale, err)
	}
	t, err := Build(of, b, s.signer)
	return b, t, err
}

// deliver sends a message by mail and by SMS, as far as the contact names them
// and they are configured, each at most once for a row as far as the other side
// lets us know: see docs/tickets.md for the window that remains.
func (s *Service) deliver(ctx context.Context, row outbox.Row, to booking.Contact, m Message, attach func() ([]mail.Attachment, error)) error {
	id := fmt.Sprintf("%s.%d.%d@%s", row.Kind, row.Sale, row.ID, "holdfast")
	var byMail, bySMS error
	if to.Email != "" && s.mail != nil {
		byMail = s.once(ctx, row, "mail", func() error {
			msg := mail.Message{To: to.Email, Subject: m.Subject, Text: m.Text, ID: id, Language: to.Language}
			if attach != nil {
				var err error
				if msg.Attachments, err = attach(); err != nil {
					return err
				}
			}
			return s.mail.Send(ctx, msg)
		})
	}
	if to.Phone != "" && s.sms != nil {
		bySMS = s.once(ctx, row, "sms", func() error { return s.sms.Send(ctx, id, to.Phone, m.Short) })
	}
	err := errors.Join(byMail, bySMS)
	if errors.Is(byMail, mail.ErrDown) {
		return outbox.Down(err)
	}
	return err
}

// once sends between two recovery points.
func (s *Service) once(ctx context.Context, row outbox.Row, way string, send func() error) error {
	var outcome string
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["begin-delivery"], row.Sale, row.ID, way).Scan(&outcome)
	})
	if err != nil || outcome != "" {
		return err
	}
	outcome = "sent"
	if err := send(); err != nil {
		refused := errors.Is(err, mail.ErrRefused) || errors.Is(err, sms.ErrRefused)
		if !refused || row.Tries < outbox.TriesBeforeAlert {
			return err
		}
		outcome = "refused"
		s.alerts.Raise(ctx, row.Sale, refusedAlert, row.Subject, way+": "+err.Error())
	}
	for try := range finishTries {
		err = s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
			_, err := q.Exec(ctx, sql["finish-delivery"], row.Sale, row.ID, way, outcome)
			return err
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Duration(try+1) * 200 * time.Millisecond)
	}
	return err
}
