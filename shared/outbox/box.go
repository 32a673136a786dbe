package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

//go:embed outbox.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Limits of a draining.
const (
	maxBatches = 50                     // of one Drain: 5,000 rows, then others have their turn
	maxSales   = 1000                   // looked at by one DueSales
	workTime   = Claim - 10*time.Second // of one row, so that it ends inside its claim
	maxError   = 500                    // characters of an error kept in the row
	overdueFor = 60 * time.Second       // invariant 5
)

// Kinds of alerts; their subject is the kind of the rows.
const (
	AlertKind = "outbox"      // rows that fail
	LateKind  = "outbox-late" // rows that nobody works at
)

// Work does what a row asks for, outside any transaction. It may be called for
// one row again after it has already succeeded (a crash before the finish), and
// must then have no second effect. Errors: see Down and Later; any other counts
// as a failure of this row.
type Work func(ctx context.Context, row Row) error

// Box is the outbox of every sale. It is safe for concurrent use.
type Box struct {
	db     *store.DB
	alerts *alert.Board
}

// New makes a Box.
func New(db *store.DB, alerts *alert.Board) *Box { return &Box{db: db, alerts: alerts} }

// Add writes a row in the caller's transaction, for Go code that changes
// something; SQL functions write theirs themselves.
func Add(ctx context.Context, tx pgx.Tx, sale int64, kind, subject string, payload any, trace string) error {
	b, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("outbox: payload of %s: %w", kind, err)
	}
	if _, err = tx.Exec(ctx, sql["add"], sale, kind, subject, b, trace); err != nil {
		return fmt.Errorf("outbox: adding %s: %w", kind, err)
	}
	return nil
}

// DueSales lists at most 1,000 sales that have due rows of these kinds.
func (b *Box) DueSales(ctx context.Context, kinds ...string) ([]int64, error) {
	var sales []int64
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["due-sales"], kinds, maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return sales, err
}

// DrainAll drains every sale that has due rows of the kind.
func (b *Box) DrainAll(ctx context.Context, kind string, parallel int, work Work) (Did, error) {
	var did Did
	sales, err := b.DueSales(ctx, kind)
	if err != nil {
		return did, err
	}
	for _, sale := range sales {
		d, err := b.Drain(ctx, sale, kind, parallel, work)
		did.Add(d)
		if err != nil {
			return did, err
		}
	}
	return did, nil
}

// Drain works at the due rows of one kind of a sale, parallel (1 to 100) at a
// time, until none is due. A row that fails is due again later (Wait) and does
// not stop the others; from its third failure on there is an alert, which is
// closed when no such row is left. It returns early, with the error, when
// Postgres is away, when the context ends, or when work said Down.
func (b *Box) Drain(ctx context.Context, sale int64, kind string, parallel int, work Work) (Did, error) {
	var did Did
	for range maxBatches {
		rows, err := b.claim(ctx, sale, kind)
		if err != nil || len(rows) == 0 {
			return did, err
		}
		d, err := b.batch(ctx, rows, min(max(parallel, 1), Batch), work)
		did.Add(d)
		if err != nil {
			return did, err
		}
		if len(rows) < Batch {
			return did, nil
		}
	}
	return did, nil
}

func (b *Box) claim(ctx context.Context, sale int64, kind string) ([]Row, error) {
	var claimed []Row
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["claim"], sale, kind, Batch, Claim)
		if err != nil {
			return err
		}
		claimed, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (Row, error) {
			row := Row{Sale: sale, Kind: kind}
			err := r.Scan(&row.ID, &row.Subject, &row.Payload, &row.CreatedAt, &row.Tries, &row.TraceID)
			return row, err
		})
		return err
	})
	return claimed, err
}

// batch works at claimed rows and finishes each as soon as it is done.
func (b *Box) batch(ctx context.Context, rows []Row, parallel int, work Work) (Did, error) {
	var (
		mu    sync.Mutex
		did   Did
		fatal error
		wait  sync.WaitGroup
		slots = make(chan struct{}, parallel)
	)
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fatal != nil || ctx.Err() != nil
	}
	begun := 0
	for ; begun < len(rows); begun++ {
		slots <- struct{}{}
		if stopped() {
			break
		}
		row := rows[begun]
		wait.Go(func() {
			defer func() { <-slots }()
			d, err := b.one(ctx, row, work)
			mu.Lock()
			defer mu.Unlock()
			did.Add(d)
			if err != nil {
				fatal = err
			}
		})
	}
	wait.Wait()
	if begun < len(rows) {
		b.putBack(ctx, rows[begun:])
	}
	if fatal == nil {
		fatal = ctx.Err()
	}
	return did, fatal
}

// one works at a row and writes what came of it. The error is one that stops
// the batch.
func (b *Box) one(ctx context.Context, row Row, work Work) (Did, error) {
	err := call(ctx, row, work)
	// What was done is written down even when the caller has gone away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var notYet later
	switch {
	case err == nil:
		err = b.exec(ctx, sql["done"], row.Sale, row.ID)
		if err == nil && row.Tries > TriesBeforeAlert {
			b.heal(ctx, row)
		}
		return Did{Done: 1}, err
	case errors.As(err, &notYet):
		return Did{Later: 1}, b.exec(ctx, sql["again"], row.Sale, row.ID, notYet.wait, row.Tries-1, nil)
	}
	slog.WarnContext(ctx, "outbox row failed", "kind", row.Kind, "sale", row.Sale, "row", row.ID,
		"subject", row.Subject, "tries", row.Tries, "trace_id", row.TraceID, "error", err)
	text := err.Error()
	if r := []rune(text); len(r) > maxError {
		text = string(r[:maxError])
	}
	statement := sql["again"]
	if row.Tries >= TriesBeforeAlert {
		statement = sql["aside"]
	}
	again := b.exec(ctx, statement, row.Sale, row.ID, Wait(row.Tries), row.Tries, text)
	if row.Tries >= TriesBeforeAlert {
		b.alerts.Raise(ctx, row.Sale, AlertKind, row.Kind, row.Subject+": "+text)
	}
	if again != nil {
		return Did{Failed: 1}, again
	}
	if IsDown(err) {
		return Did{Failed: 1}, err
	}
	return Did{Failed: 1}, nil
}

// call runs the work within its time; a panic is a failure of the row.
func call(ctx context.Context, row Row, work Work) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("outbox: %s row %d of sale %d: panic: %v", row.Kind, row.ID, row.Sale, p)
		}
	}()
	return work(ctx, row)
}

func (b *Box) putBack(ctx context.Context, rows []Row) {
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// If this fails too, the claims end by themselves.
	if err := b.exec(ctx, sql["put-back"], rows[0].Sale, ids); err != nil {
		slog.WarnContext(ctx, "outbox rows not put back", "sale", rows[0].Sale, "rows", len(ids), "error", err)
	}
}

// heal closes the alert of a kind once no row of it is set aside.
func (b *Box) heal(ctx context.Context, row Row) {
	var left int
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["set-aside"], row.Sale, row.Kind).Scan(&left)
	})
	if err == nil && left == 0 {
		err = b.alerts.Close(ctx, row.Sale, AlertKind, row.Kind)
	}
	if err != nil {
		slog.WarnContext(ctx, "outbox alert not closed", "sale", row.Sale, "kind", row.Kind, "error", err)
	}
}

func (b *Box) exec(ctx context.Context, statement string, args ...any) error {
	return b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, statement, args...)
		return err
	})
}

// Overdue raises an alert for each (sale, kind) with rows 60 s past due
// (invariant 5) and closes those alerts that healed. It returns how many
// (sale, kind) are late.
func (b *Box) Overdue(ctx context.Context) (int, error) {
	type late struct {
		sale  int64
		kind  string
		count int
		since time.Time
	}
	var all []late
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["overdue"], overdueFor, maxSales)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (late, error) {
			var l late
			err := r.Scan(&l.sale, &l.kind, &l.count, &l.since)
			return l, err
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	still := make([]alert.About, 0, len(all))
	for _, l := range all {
		still = append(still, alert.About{Sale: l.sale, Subject: l.kind})
		b.alerts.Raise(ctx, l.sale, LateKind, l.kind, fmt.Sprintf("%d rows, the first of %s", l.count, l.since.UTC().Format(time.RFC3339)))
	}
	return len(all), b.alerts.CloseOthers(ctx, LateKind, still)
}
