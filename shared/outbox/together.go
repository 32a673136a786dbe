package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

// togetherWait is the longest wait of a row that failed together with others:
// what the outside has missed is soon caught up with.
const togetherWait = time.Minute

// Together works at the due rows of one kind of a sale in batches of 100, each
// with one call of work. The rows are read and not claimed, so two replicas may
// work at one row at once: it is for work that looks how things are and makes
// them so, whoever does it and however often. A batch whose work fails is due
// again later as a whole; from the third failure on there is an alert, which is
// closed when the kind has no such row. The error is work's, or Postgres's.
func (b *Box) Together(ctx context.Context, sale int64, kind string, work func(ctx context.Context, rows []Row) error) (Did, error) {
	var did Did
	for range maxBatches {
		rows, err := b.due(ctx, sale, kind)
		if err != nil || len(rows) == 0 {
			return did, err
		}
		ids, tries := make([]int64, len(rows)), 0
		for i, r := range rows {
			ids[i] = r.ID
			tries = max(tries, r.Tries)
		}
		err = work(ctx, rows)
		// What was done is written down even when the caller has gone away.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		if err != nil {
			did.Failed += len(rows)
			b.failed(ctx, sale, kind, rows, ids, err)
			cancel()
			return did, err
		}
		did.Done += len(rows)
		err = b.exec(ctx, sql["done-all"], sale, ids)
		if err == nil && tries >= TriesBeforeAlert {
			b.heal(ctx, rows[0])
		}
		cancel()
		if err != nil || len(rows) < Batch {
			return did, err
		}
	}
	return did, nil
}

func (b *Box) due(ctx context.Context, sale int64, kind string) ([]Row, error) {
	var due []Row
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["due"], sale, kind, Batch)
		if err != nil {
			return err
		}
		due, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (Row, error) {
			row := Row{Sale: sale, Kind: kind}
			err := r.Scan(&row.ID, &row.Subject, &row.Payload, &row.CreatedAt, &row.Tries, &row.TraceID)
			return row, err
		})
		return err
	})
	return due, err
}

// failed puts a batch off.
func (b *Box) failed(ctx context.Context, sale int64, kind string, rows []Row, ids []int64, cause error) {
	text := cause.Error()
	if r := []rune(text); len(r) > maxError {
		text = string(r[:maxError])
	}
	waits := make([]time.Duration, len(rows))
	var aside []int64
	for i, r := range rows {
		waits[i] = min(Wait(r.Tries+1), togetherWait)
		if r.Tries+1 >= TriesBeforeAlert {
			aside = append(aside, r.ID)
		}
	}
	if err := b.exec(ctx, sql["again-all"], sale, ids, waits, text); err != nil {
		slog.WarnContext(ctx, "outbox rows not put off", "sale", sale, "kind", kind, "rows", len(ids), "error", err)
	}
	if len(aside) > 0 {
		if err := b.exec(ctx, sql["aside-all"], sale, aside); err != nil {
			slog.WarnContext(ctx, "outbox rows not set aside", "sale", sale, "kind", kind, "rows", len(aside), "error", err)
		}
		b.alerts.Raise(ctx, sale, AlertKind, kind, fmt.Sprintf("%d rows: %s", len(aside), text))
	}
}
