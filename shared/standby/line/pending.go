package line

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"handler/function/shared/event"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

// Stream is the stream that keeps orders whose queues could not be reached when
// they joined (DESIGN 9).
const Stream = "STANDBY"

// AlertPending is the kind of alert for a message of the stream that was set
// aside.
const AlertPending = "standby"

const (
	streamSubject = "standby.pending"
	streamAge     = 14 * 24 * time.Hour
	streamWait    = 2 * time.Second // for its acknowledgement
	consumerName  = "reconcile"
	batch         = 100 // orders recovered at once (DESIGN 9)
	recoverMost   = 100 // batches of a sale in one run
)

func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Stream, Subjects: []string{streamSubject}, MaxAge: streamAge, Duplicates: time.Hour, Storage: jetstream.FileStorage,
	}
}

// pending is a message of the stream.
type pending struct {
	Order    int64     `json:"order"`
	Sale     int64     `json:"sale"`
	JoinedAt time.Time `json:"joined_at"`
}

// keepPending puts an order into the stream if it is pending, once by its number.
func (l *Lines) keepPending(ctx context.Context, sale, number int64) error {
	if l.o.Bus == nil {
		return event.ErrDown
	}
	m := pending{Order: number, Sale: sale}
	waits := false
	err := l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["order"], sale, number).Scan(&waits, &m.JoinedAt)
	})
	if err != nil || !waits {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return l.o.Bus.Keep(context.WithoutCancel(ctx), streamConfig(), streamWait,
		event.Message{Subject: streamSubject, ID: fmt.Sprintf("%d:%d", sale, number), Data: data})
}

// Recover brings orders that are pending into their queues: those of the stream,
// and whatever else Postgres has, in batches of 100. Their places and times stay
// what they were. Doing it twice does no harm. A message that cannot be read is
// set aside after three tries with an alert; while Redis or Postgres is away the
// batch stops and the rest stays. It returns how many orders it found pending.
func (l *Lines) Recover(ctx context.Context) (recovered int, err error) {
	if !l.Reachable(ctx) {
		return 0, nil
	}
	done := map[[2]int64]bool{} // of this run: one look serves a batch of messages
	one := func(ctx context.Context, data []byte) error {
		var m pending
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		if m.Sale <= 0 || m.Order <= 0 {
			return errors.New("not an order")
		}
		if done[[2]int64{m.Sale, m.Order}] {
			return nil
		}
		numbers, err := l.pendingOf(ctx, m.Sale, m.Order)
		if err == nil {
			var n int
			n, err = l.mirror(ctx, m.Sale, append(numbers, m.Order))
			recovered += n
		}
		if errors.Is(err, queue.ErrDown) || problem.Is(err, problem.Unavailable) {
			return event.Away(err)
		}
		if err != nil {
			return err
		}
		done[[2]int64{m.Sale, m.Order}] = true
		for _, number := range numbers {
			done[[2]int64{m.Sale, number}] = true
		}
		return nil
	}
	_, err = event.Consume(ctx, l.o.Bus, streamConfig(), consumerName, one, func(ctx context.Context, data []byte, cause error) {
		l.o.Alerts.Raise(ctx, 0, AlertPending, "stream "+Stream, fmt.Sprintf("set aside, %v: %.200s", cause, data))
	})
	if err != nil {
		return recovered, err
	}
	sales, err := l.sales(ctx, "pending-sales")
	if err != nil {
		return recovered, err
	}
	for _, sale := range sales {
		for range recoverMost {
			numbers, err := l.pendingOf(ctx, sale, 0)
			if err != nil {
				return recovered, err
			}
			if len(numbers) == 0 {
				break
			}
			n, err := l.mirror(ctx, sale, numbers)
			recovered += n
			if err != nil {
				return recovered, err
			}
		}
	}
	return recovered, nil
}

// pendingOf names at most 100 pending orders of a sale, but for one.
func (l *Lines) pendingOf(ctx context.Context, sale, but int64) (numbers []int64, err error) {
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["pending"], sale, but, batch)
		if err != nil {
			return err
		}
		numbers, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return numbers, err
}

// sales runs a statement that names sales.
func (l *Lines) sales(ctx context.Context, statement string) (sales []int64, err error) {
	err = l.o.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql[statement], maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return sales, err
}
