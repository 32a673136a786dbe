package ticket

import (
	"context"
	_ "embed"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/mail"
	"handler/function/shared/outbox"
	"handler/function/shared/pdf"
	"handler/function/shared/problem"
	"handler/function/shared/sms"
	"handler/function/shared/store"
)

//go:embed ticket.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Bookings reads bookings: *booking.Service.
type Bookings interface {
	Load(ctx context.Context, sale, number int64) (*booking.Booking, error)
	Find(ctx context.Context, account, which string) (*booking.Booking, error)
}

// Sales looks a sale up: *catalog.Reader.
type Sales interface {
	Sale(ctx context.Context, sale int64) (*catalog.Sale, error)
}

// Options are what a Service stands on. Mail and SMS may be nil: that way is
// then not used. Fonts may be nil where nothing is printed or sent.
type Options struct {
	DB        *store.DB
	Bookings  Bookings
	Orders    Orders // nil: notices of standby orders cannot be sent
	Sales     Sales
	Box       *outbox.Box
	Alerts    *alert.Board
	Signer    *Signer
	Fonts     *pdf.Fonts
	Mail      *mail.Sender
	SMS       *sms.Sender
	PublicURL string // the gateway as customers see it; may be empty
}

// Service shows, sends and checks in tickets for one replica. It is safe for
// concurrent use.
type Service struct {
	db        *store.DB
	bookings  Bookings
	orders    Orders
	sales     Sales
	box       *outbox.Box
	alerts    *alert.Board
	signer    *Signer
	fonts     *pdf.Fonts
	mail      *mail.Sender
	sms       *sms.Sender
	publicURL string

	// printing bounds the papers drawn at once: each costs about 10 ms of a core a
	// page, and people in line come first.
	printing chan struct{}

	wanted    atomic.Bool // somebody asked for a draining
	draining  sync.Mutex
	lastRound time.Time // guarded by draining
}

// New makes a Service.
func New(o Options) (*Service, error) {
	if o.DB == nil || o.Bookings == nil || o.Sales == nil || o.Signer == nil {
		return nil, errors.New("ticket: a service needs a database, bookings, sales and a signer")
	}
	return &Service{
		db: o.DB, bookings: o.Bookings, orders: o.Orders, sales: o.Sales, box: o.Box, alerts: o.Alerts, signer: o.Signer, fonts: o.Fonts,
		mail: o.Mail, sms: o.SMS, publicURL: o.PublicURL,
		printing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}, nil
}

// Show returns the ticket of an account's own booking, named by its public id or
// locator. Errors: not-found, also for another's; wrong-state unless it is
// booked.
func (s *Service) Show(ctx context.Context, account, which string) (*Ticket, error) {
	b, err := s.bookings.Find(ctx, account, which)
	if err != nil {
		return nil, err
	}
	if b.State != booking.Booked {
		return nil, problem.New(problem.WrongState, "There is a ticket once the booking is paid for")
	}
	sale, err := s.sales.Sale(ctx, b.Sale)
	if err != nil {
		return nil, err
	}
	return Build(sale, b, s.signer)
}

// Paper is the PDF of a ticket.
func (s *Service) Paper(ctx context.Context, t *Ticket) ([]byte, error) {
	if s.fonts == nil {
		return nil, errors.New("ticket: no fonts")
	}
	select {
	case s.printing <- struct{}{}:
		defer func() { <-s.printing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return Paper(s.fonts, t)
}

// Keys are the public keys a gate checks codes with, offline.
func (s *Service) Keys() PublicKeys { return s.signer.Public() }
