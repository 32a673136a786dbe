// Package release tells what came free. Legs of a seat come free by a refund, a
// hold's end, an exchange, an added seat or a hold let go; each is a row of the
// table seat_release, written in the transaction that frees the legs. After its
// commit the row's event goes out on NATS, where it nudges `match` and stands in
// the stream RELEASES for a week.
//
// The row is the truth and the event a copy: told_at is NULL until the stream
// has it, rows are found by that and never by a sequence (a row with a lower
// number may commit later), and an event told twice is one in the stream, by its
// id. So whoever released tells at once, and `admit-tick` and `reconcile` tell
// what is left.
package release

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/errgroup"

	"handler/function/shared/alert"
	"handler/function/shared/event"
	"handler/function/shared/id"
	"handler/function/shared/store"
)

//go:embed release.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Stream keeps the events of a week, for whoever wants to follow them; what
// counts is in Postgres.
const Stream = "RELEASES"

const (
	streamAge      = 7 * 24 * time.Hour
	streamMessages = 5_000_000       // about 2 GiB
	streamRepeats  = 5 * time.Minute // within which an event told twice is one
	batch          = 100             // rows told at once (DESIGN 9)
	batches        = 100             // of one call; the next call goes on
	ackWait        = time.Second     // for a batch
	breakerTries   = 3               // batches in vain before the stream is not asked
	breakerOpen    = time.Second
	maxSales       = 1000 // of one TellAll
	together       = 2    // sales told at a time by TellAll
	lateAfter      = 60 * time.Second
	requestTime    = 2 * time.Second // that a request waits for its telling
)

// AlertLate is the kind of alert for a sale with releases that nobody was told of
// for 60 s (invariant 5); its subject is "seat.released".
const AlertLate = "release-untold"

// Event is what goes out on the subjects seat.released.0 to .7.
type Event struct {
	ID         string    `json:"event_id"`   // SALE-RELEASE, the same however often it is told
	Type       string    `json:"event_type"` // REFUND, TIMEOUT, RESCHEDULE, EXTRA_SEAT or ABANDON
	Sale       string    `json:"sale"`
	Seat       string    `json:"seat"` // its shown name
	Class      string    `json:"class"`
	From       string    `json:"from"` // stop ids
	To         string    `json:"to"`
	ReleasedAt time.Time `json:"released_at"`
	TraceID    string    `json:"trace_id"` // of the request that released; may be empty
}

// Service tells releases for one replica. It is safe for concurrent use.
type Service struct {
	db      *store.DB
	bus     *event.Bus
	alerts  *alert.Board
	breaker *gobreaker.CircuitBreaker[struct{}]
}

// New makes a Service. Without a bus nothing is told.
func New(db *store.DB, bus *event.Bus, alerts *alert.Board) *Service {
	return &Service{db: db, bus: bus, alerts: alerts, breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "releases", Timeout: breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTries },
	})}
}

func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Stream, Subjects: []string{event.SeatReleased + ".*"}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
		MaxAge: streamAge, MaxMsgs: streamMessages, Duplicates: streamRepeats,
	}
}

// untold is a row whose event has not gone out.
type untold struct {
	release int64
	Event
}

// Tell tells the sale's releases that nobody was told of, the oldest first, and
// returns how many. Two tellers at once tell the same twice, which is one event.
// Errors: event.ErrDown while NATS is away (also without a bus), unavailable
// while Postgres is; what is left is told by the next call.
func (s *Service) Tell(ctx context.Context, sale int64) (n int, err error) {
	if s.bus == nil || !s.bus.Up() {
		return 0, event.ErrDown
	}
	for range batches {
		rows, err := s.untold(ctx, sale)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		if err := s.tell(ctx, sale, rows); err != nil {
			return n, err
		}
		if n += len(rows); len(rows) < batch {
			break
		}
	}
	return n, nil
}

// Committed is Tell after a commit that may have released something of the sale.
// What cannot be told now is told by admit-tick or reconcile, so the request
// knows of no error. A nil Service tells nothing.
func (s *Service) Committed(ctx context.Context, sale int64) {
	if s == nil {
		return
	}
	// The change is made, whether or not its caller still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	if _, err := s.Tell(ctx, sale); err != nil {
		slog.WarnContext(ctx, "releases left to reconcile", "sale", sale, "error", err)
	}
}

// TellAll is Tell for every sale that has something to tell. One sale's trouble
// is no other's: the errors are joined.
func (s *Service) TellAll(ctx context.Context) (int, error) {
	if s.bus == nil || !s.bus.Up() {
		return 0, event.ErrDown
	}
	var sales []int64
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["untold-sales"], maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, err
	}
	var told atomic.Int64
	errs := make([]error, len(sales))
	var group errgroup.Group
	group.SetLimit(together)
	for i, sale := range sales {
		group.Go(func() error {
			var n int
			n, errs[i] = s.Tell(ctx, sale)
			told.Add(int64(n))
			return nil
		})
	}
	_ = group.Wait()
	return int(told.Load()), errors.Join(errs...)
}

// Overdue raises an alert for each sale with releases that nobody was told of for
// 60 s (invariant 5) and closes those that healed. It returns how many sales are
// late.
func (s *Service) Overdue(ctx context.Context) (int, error) {
	type late struct {
		sale  int64
		count int
		since time.Time
	}
	var all []late
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["late"], lateAfter, maxSales)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (l late, err error) {
			err = r.Scan(&l.sale, &l.count, &l.since)
			return l, err
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	still := make([]alert.About, 0, len(all))
	for _, l := range all {
		still = append(still, alert.About{Sale: l.sale, Subject: event.SeatReleased})
		s.alerts.Raise(ctx, l.sale, AlertLate, event.SeatReleased,
			fmt.Sprintf("%d releases not told, the first of %s", l.count, l.since.UTC().Format(time.RFC3339)))
	}
	return len(all), s.alerts.CloseOthers(ctx, AlertLate, still)
}

func (s *Service) untold(ctx context.Context, sale int64) (all []untold, err error) {
	err = s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["untold"], sale, batch)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (u untold, err error) {
			err = r.Scan(&u.release, &u.Type, &u.Seat, &u.Class, &u.From, &u.To, &u.ReleasedAt, &u.TraceID)
			u.ID, u.Sale, u.ReleasedAt = fmt.Sprintf("%d-%d", sale, u.release), id.Format(sale), u.ReleasedAt.UTC()
			return u, err
		})
		return err
	})
	return all, err
}

// tell puts the events into the stream and then marks their rows. A crash in
// between tells them again.
func (s *Service) tell(ctx context.Context, sale int64, rows []untold) error {
	subject := event.Subject(event.SeatReleased, sale)
	msgs, releases := make([]event.Message, len(rows)), make([]int64, len(rows))
	for i, u := range rows {
		data, err := json.Marshal(u.Event)
		if err != nil {
			return err
		}
		msgs[i], releases[i] = event.Message{Subject: subject, ID: u.ID, Data: data}, u.release
	}
	_, err := s.breaker.Execute(func() (struct{}, error) {
		return struct{}{}, s.bus.Keep(ctx, streamConfig(), ackWait, msgs...)
	})
	if err != nil {
		if !errors.Is(err, event.ErrDown) { // the breaker's own
			err = fmt.Errorf("%w: %w", event.ErrDown, err)
		}
		return err
	}
	return s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, sql["told"], sale, releases)
		return err
	})
}
