package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sony/gobreaker/v2"

	"handler/function/shared/event"
)

// JoinsStream keeps every join until long after its sale.
const JoinsStream = "JOINS"

const (
	joinsAge     = 30 * 24 * time.Hour
	joinsMessage = 256 << 10 // bytes of a message: at most joinBatch accounts
	publishWait  = time.Second
	readWait     = 5 * time.Second // for the next messages of a stream that has them
	readPage     = 500             // messages
)

// message is what the stream keeps: people who joined together, or the close of
// the draw.
type message struct {
	Generation int64    `json:"g"`
	Accounts   []string `json:"a,omitempty"`
	Late       []int64  `json:"k,omitempty"` // late numbers by account; 0: none was given
	Identity   string   `json:"i,omitempty"` // of the Redis that gave the numbers
	Close      bool     `json:"close,omitempty"`
}

// joins is the stream of joins.
type joins struct {
	bus      *event.Bus
	replicas int
	breaker  *gobreaker.CircuitBreaker[struct{}]
	made     atomic.Bool
}

func newJoins(bus *event.Bus, replicas int) *joins {
	return &joins{bus: bus, replicas: max(1, replicas), breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "joins", Timeout: time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
	})}
}

func subject(room int64) string { return "room.joins." + strconv.FormatInt(room, 10) }

// do runs f when the stream is there; every error is event.ErrDown.
func (j *joins) do(ctx context.Context, f func(ctx context.Context, js jetstream.JetStream) error) error {
	if j.bus == nil {
		return event.ErrDown
	}
	_, err := j.breaker.Execute(func() (struct{}, error) {
		if !j.bus.Up() {
			return struct{}{}, event.ErrDown
		}
		if err := j.ensure(ctx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, f(ctx, j.bus.JetStream())
	})
	if err != nil && !errors.Is(err, event.ErrDown) {
		err = fmt.Errorf("%w: %w", event.ErrDown, err)
	}
	return err
}

// ensure makes the stream when it is missing. One that exists is the operator's
// and stays as it is.
func (j *joins) ensure(ctx context.Context) error {
	if j.made.Load() {
		return nil
	}
	cfg := jetstream.StreamConfig{
		Name: JoinsStream, Subjects: []string{"room.joins.*"}, Storage: jetstream.FileStorage, Replicas: j.replicas,
		MaxAge: joinsAge, MaxMsgSize: joinsMessage, Duplicates: 2 * time.Minute,
	}
	_, err := j.bus.JetStream().CreateStream(ctx, cfg)
	var refused *jetstream.APIError
	if j.replicas > 1 && errors.As(err, &refused) && refused.ErrorCode == 10074 { // replicas need a cluster
		slog.Warn("room: NATS is one server: joins are kept there alone", "error", err)
		cfg.Replicas = 1
		_, err = j.bus.JetStream().CreateStream(ctx, cfg)
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return err
	}
	j.made.Store(true)
	return nil
}

// publish stores a message and waits until the stream has it. id, when given,
// makes a repeat within two minutes one message.
func (j *joins) publish(ctx context.Context, room int64, m message, id string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return j.do(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		ctx, cancel := context.WithTimeout(ctx, publishWait)
		defer cancel()
		out := nats.NewMsg(subject(room))
		out.Data = data
		opts := []jetstream.PublishOpt{jetstream.WithExpectStream(JoinsStream), jetstream.WithRetryAttempts(0)}
		if id != "" {
			opts = append(opts, jetstream.WithMsgID(id))
		}
		_, err := js.PublishMsg(ctx, out, opts...)
		if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
			j.made.Store(false) // the stream was lost: made again at the next try
		}
		return err
	})
}

// read gives f every message of the room from sequence on (1: all), in order,
// until f says stop or the messages stored at the time of the call are through.
// It returns the sequence to go on from.
func (j *joins) read(ctx context.Context, room int64, from uint64, f func(message) (stop bool)) (next uint64, err error) {
	next = max(from, 1)
	err = j.do(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, JoinsStream)
		if err != nil {
			return err
		}
		last, err := stream.GetLastMsgForSubject(ctx, subject(room))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if last.Sequence < next {
			return nil
		}
		consumer, err := js.OrderedConsumer(ctx, JoinsStream, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{subject(room)}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
			InactiveThreshold: 30 * time.Second,
		})
		if err != nil {
			return err
		}
		defer func() { _ = js.DeleteConsumer(context.WithoutCancel(ctx), JoinsStream, consumer.CachedInfo().Name) }()
		for {
			batch, err := consumer.Fetch(readPage, jetstream.FetchMaxWait(readWait))
			if err != nil {
				return err
			}
			got := 0
			for raw := range batch.Messages() {
				got++
				meta, err := raw.Metadata()
				if err != nil {
					return err
				}
				next = meta.Sequence.Stream + 1
				var m message
				if json.Unmarshal(raw.Data(), &m) == nil && f(m) { // what is no message of ours is passed over
					return nil
				}
				if meta.Sequence.Stream >= last.Sequence {
					return nil
				}
			}
			if err := batch.Error(); err != nil {
				return err
			}
			if got == 0 {
				return errors.New("room: the stream stopped answering")
			}
		}
	})
	return next, err
}

// people reads everyone whom the stream took for the draw of a generation: all
// joins before its close marker that were not given a late number.
func (j *joins) people(ctx context.Context, room, generation int64) ([]string, error) {
	var accounts []string
	_, err := j.read(ctx, room, 1, func(m message) bool {
		if m.Generation != generation {
			return m.Generation > generation
		}
		for i, a := range m.Accounts {
			if i >= len(m.Late) || m.Late[i] == 0 {
				accounts = append(accounts, a)
			}
		}
		return m.Close
	})
	return accounts, err
}

// numbers reads late numbers from a sequence on: the last of each account, and
// the sequence to go on from. Those given by the Redis called mine are left out,
// as it has them.
func (j *joins) numbers(ctx context.Context, room, generation int64, from uint64, mine string) (map[string]int64, uint64, error) {
	last := map[string]int64{}
	next, err := j.read(ctx, room, from, func(m message) bool {
		if m.Generation != generation {
			return m.Generation > generation
		}
		for i, k := range m.Late {
			switch {
			case i >= len(m.Accounts) || k == 0:
			case mine != "" && m.Identity == mine:
				delete(last, m.Accounts[i])
			default:
				last[m.Accounts[i]] = k
			}
		}
		return false
	})
	return last, next, err
}
