package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is one message for a stream.
type Message struct {
	Subject string
	ID      string // a repeat within the stream's window of duplicates is one message
	Data    []byte
}

// Keep puts messages into a stream in their order, making the stream if need be,
// and waits until it has all of them, at most wait. Whoever listens on core NATS
// gets them too. The error is ErrDown: then some may be in the stream, and
// putting all of them in again does no harm.
func (b *Bus) Keep(ctx context.Context, cfg jetstream.StreamConfig, wait time.Duration, msgs ...Message) error {
	if err := b.Stream(ctx, cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	acks := make([]jetstream.PubAckFuture, 0, len(msgs))
	for _, m := range msgs {
		out := nats.NewMsg(m.Subject)
		out.Data = m.Data
		ack, err := b.js.PublishMsgAsync(out, jetstream.WithMsgID(m.ID), jetstream.WithExpectStream(cfg.Name), jetstream.WithRetryAttempts(0))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDown, err)
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
				b.forget(cfg.Name)
			}
			return fmt.Errorf("%w: %w", ErrDown, err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s does not acknowledge: %w", ErrDown, cfg.Name, ctx.Err())
		}
	}
	return nil
}

// forget makes Stream look again: the stream was lost.
func (b *Bus) forget(stream string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.streams, stream)
}
