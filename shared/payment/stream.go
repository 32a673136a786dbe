package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"handler/function/shared/event"
	"handler/function/shared/problem"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The stream that keeps webhooks while Postgres is away (DESIGN 9).
const (
	StreamGateway = "GATEWAY"
	streamSubject = "gateway.event"
	consumerName  = "reconcile"
	streamAge     = 14 * 24 * time.Hour // longer than any gateway retries
	streamWait    = time.Second         // for messages that are there
	streamBatch   = 100
	ackWait       = 30 * time.Second
	deliverMost   = 3           // tries of a bad message before it is set aside
	badWait       = time.Second // between them, at least
)

func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamGateway, Subjects: []string{streamSubject}, MaxAge: streamAge, Duplicates: time.Hour,
		Storage: jetstream.FileStorage,
	}
}

// keep puts a verified event into the stream, once by its id.
func (s *Service) keep(ctx context.Context, e Event, received time.Time) error {
	if s.bus == nil {
		return event.ErrDown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := s.bus.Stream(ctx, streamConfig()); err != nil {
		return err
	}
	data, err := kept{e, received}.encode()
	if err != nil {
		return err
	}
	msg := nats.NewMsg(streamSubject)
	msg.Data = data
	if _, err := s.bus.JetStream().PublishMsg(ctx, msg, jetstream.WithMsgID(e.Gateway+":"+e.ID)); err != nil {
		return fmt.Errorf("%w: %w", event.ErrDown, err)
	}
	return nil
}

// Replay moves what the stream kept into Postgres, with the time it first came,
// and applies it. A message that cannot be read is set aside after three tries
// with an alert; when Postgres is away the batch stops and the rest stays.
func (s *Service) Replay(ctx context.Context) (int, error) {
	if s.bus == nil || !s.bus.Up() {
		return 0, nil
	}
	if err := s.bus.Stream(ctx, streamConfig()); err != nil {
		return 0, err
	}
	consumer, err := s.bus.JetStream().CreateOrUpdateConsumer(ctx, StreamGateway, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 10 * streamBatch,
	})
	if err != nil {
		return 0, fmt.Errorf("payment: consumer of %s: %w", StreamGateway, err)
	}
	n := 0
	for range 50 {
		info, err := consumer.Info(ctx)
		if err != nil {
			return n, fmt.Errorf("payment: consumer of %s: %w", StreamGateway, err)
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return n, nil
		}
		batch, err := consumer.Fetch(streamBatch, jetstream.FetchMaxWait(streamWait))
		if err != nil {
			return n, fmt.Errorf("payment: stream %s: %w", StreamGateway, err)
		}
		got := 0
		var away error
		for m := range batch.Messages() {
			got++
			if away != nil {
				_ = m.NakWithDelay(time.Second)
				continue
			}
			if away = s.replay(ctx, m); away == nil {
				n++
			}
		}
		if away != nil {
			return n, away
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return n, err
		}
		if got == 0 {
			return n, nil
		}
	}
	return n, nil
}

// replay moves one message. The error means that Postgres is away.
func (s *Service) replay(ctx context.Context, m jetstream.Msg) error {
	var k kept
	err := json.Unmarshal(m.Data(), &k)
	if err == nil && (k.Event.Gateway == "" || !k.Event.readable()) {
		err = errors.New("not an event")
	}
	if err != nil {
		s.bad(ctx, m, err)
		return nil
	}
	_, applied, err := s.record(ctx, k.Event, k.Received)
	if problem.Is(err, problem.Unavailable) {
		_ = m.NakWithDelay(time.Second)
		return err
	}
	if err != nil {
		s.bad(ctx, m, err)
		return nil
	}
	if err := m.Ack(); err != nil {
		slog.WarnContext(ctx, "message not acknowledged, it will come again", "stream", StreamGateway, "error", err)
	}
	if !applied {
		s.apply(ctx, k.Event, 0)
	}
	return nil
}

// bad puts a message off, and after its third try sets it aside with an alert.
func (s *Service) bad(ctx context.Context, m jetstream.Msg, cause error) {
	tries := uint64(1)
	if meta, err := m.Metadata(); err == nil {
		tries = meta.NumDelivered
	}
	slog.ErrorContext(ctx, "message of the stream is bad", "stream", StreamGateway, "tries", tries, "error", cause)
	done := m.NakWithDelay
	if tries >= deliverMost {
		s.alerts.Raise(ctx, 0, AlertEvent, "stream "+StreamGateway, fmt.Sprintf("set aside, %v: %.200s", cause, m.Data()))
		done = func(time.Duration) error { return m.Term() }
	}
	if err := done(badWait); err != nil {
		slog.WarnContext(ctx, "message not put off, it will come again", "stream", StreamGateway, "error", err)
	}
}
