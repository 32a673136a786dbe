package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How a stream is worked off (DESIGN 9: recovery in batches of 100, a bad
// message is set aside after three tries).
const (
	consumeBatch   = 100
	consumeBatches = 50               // of one call
	consumeWait    = time.Second      // for messages that are there
	ackWait        = 30 * time.Second // of a message that somebody works at
	triesMost      = 3                // of a bad message, in one process
	badWait        = time.Second      // between them, at least
	awayWait       = time.Second      // before what could not be worked at comes again
)

// away marks an error that says nothing about the message.
type away struct{ error }

func (a away) Unwrap() error { return a.error }

// Away says that what the work needs is away (Postgres, Redis): the message is
// put back as it was, the batch stops and the rest stays in the stream.
func Away(err error) error {
	if err == nil {
		return nil
	}
	return away{err}
}

// Consume works off what stands in a stream: handle is called for one message
// after another, in batches of 100, until the stream is empty or 50 batches are
// done, and n counts the messages that it took. The stream is made if need be;
// durable names the consumer whose place in it is kept. Several replicas may
// consume at once, each message goes to one of them; it comes again when that
// one does not end within 30 s, so the work must have one effect however often
// it is called.
//
// A message whose handling fails is bad: it comes again after a second, the
// others go on, and after its third try it is given to setAside, which tells
// somebody (an alert), and taken out. An error marked by Away stops the batch and
// is returned without the mark; it counts as no try. With no bus, or while NATS
// is away, there is nothing to do and no error.
func Consume(ctx context.Context, bus *Bus, cfg jetstream.StreamConfig, durable string,
	handle func(ctx context.Context, data []byte) error, setAside func(ctx context.Context, data []byte, cause error)) (n int, err error) {
	if bus == nil || !bus.Up() {
		return 0, nil
	}
	if err := bus.Stream(ctx, cfg); err != nil {
		return 0, err
	}
	consumer, err := bus.js.CreateOrUpdateConsumer(ctx, cfg.Name, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 10 * consumeBatch,
	})
	if err != nil {
		return 0, fmt.Errorf("event: consumer %s of %s: %w", durable, cfg.Name, err)
	}
	for range consumeBatches {
		info, err := consumer.Info(ctx)
		if err != nil {
			return n, fmt.Errorf("event: consumer %s of %s: %w", durable, cfg.Name, err)
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return n, nil
		}
		batch, err := consumer.Fetch(consumeBatch, jetstream.FetchMaxWait(consumeWait))
		if err != nil {
			return n, fmt.Errorf("event: stream %s: %w", cfg.Name, err)
		}
		got := 0
		var stop error
		for m := range batch.Messages() {
			got++
			if stop != nil {
				_ = m.NakWithDelay(awayWait)
				continue
			}
			err := handle(ctx, m.Data())
			if gone := (away{}); errors.As(err, &gone) {
				stop = gone.error
				_ = m.NakWithDelay(awayWait)
			} else if err != nil {
				bus.bad(ctx, cfg.Name, m, err, setAside)
			} else {
				n++
				bus.good(ctx, cfg.Name, m)
			}
		}
		if stop != nil {
			return n, stop
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return n, fmt.Errorf("event: stream %s: %w", cfg.Name, err)
		}
		if got == 0 {
			return n, nil
		}
	}
	return n, nil
}

// good takes a message out that was worked at.
func (b *Bus) good(ctx context.Context, stream string, m jetstream.Msg) {
	b.tried(stream, m, true)
	if err := m.Ack(); err != nil {
		slog.WarnContext(ctx, "message not acknowledged, it will come again", "stream", stream, "error", err)
	}
}

// bad puts a message off, and after its third try sets it aside.
func (b *Bus) bad(ctx context.Context, stream string, m jetstream.Msg, cause error, setAside func(ctx context.Context, data []byte, cause error)) {
	tries := b.tried(stream, m, false)
	slog.ErrorContext(ctx, "message of the stream is bad", "stream", stream, "tries", tries, "error", cause)
	done := func() error { return m.NakWithDelay(badWait) }
	if tries >= triesMost {
		setAside(ctx, m.Data(), cause)
		b.tried(stream, m, true)
		done = m.Term
	}
	if err := done(); err != nil {
		slog.WarnContext(ctx, "message not put off, it will come again", "stream", stream, "error", err)
	}
}

// tried counts the failures of a message in this process, or forgets them. The
// stream's own count of deliveries will not do: it rises while Postgres is away.
// There are at most as many as a consumer may have pending.
func (b *Bus) tried(stream string, m jetstream.Msg, forget bool) int {
	meta, err := m.Metadata()
	if err != nil {
		return 1
	}
	name := fmt.Sprintf("%s %d", stream, meta.Sequence.Stream)
	b.mu.Lock()
	defer b.mu.Unlock()
	if forget {
		delete(b.tries, name)
		return 0
	}
	b.tries[name]++
	return b.tries[name]
}
