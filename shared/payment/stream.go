package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	return event.Consume(ctx, s.bus, streamConfig(), consumerName, s.replay, func(ctx context.Context, data []byte, cause error) {
		s.alerts.Raise(ctx, 0, AlertEvent, "stream "+StreamGateway, fmt.Sprintf("set aside, %v: %.200s", cause, data))
	})
}

// replay moves one message.
func (s *Service) replay(ctx context.Context, data []byte) error {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return err
	}
	if k.Event.Gateway == "" || !k.Event.readable() {
		return errors.New("not an event")
	}
	_, applied, err := s.record(ctx, k.Event, k.Received)
	if problem.Is(err, problem.Unavailable) {
		return event.Away(err)
	}
	if err == nil && !applied {
		s.apply(ctx, k.Event, 0)
	}
	return err
}
