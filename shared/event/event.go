// Package event is NATS as every other package sees it: nudges on core NATS
// that may be lost (law 1), and the streams that keep what must not be: joins of
// a room, releases of seats and, while Postgres is away, events of payment
// gateways.
package event

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Subjects is how many subjects each kind of event has: one sale's events in
// order, eight sales in parallel (DESIGN section 3).
const Subjects = 8

// The kinds of events; a subject is kind.<0..7>.
const (
	BookingConfirmed = "booking.confirmed"
	OrderMatched     = "order.matched"
	SeatReleased     = "seat.released"
)

const (
	maxPending = 4096            // messages for streams without an acknowledgement
	ackTimeout = 5 * time.Second // after which one is given up for lost
)

// ErrDown means that NATS is away.
var ErrDown = errors.New("event: nats is away")

// Bus is the process's connection to NATS; it reconnects for ever.
type Bus struct {
	nc *nats.Conn
	js jetstream.JetStream

	mu      sync.Mutex
	streams map[string]bool
	tries   map[string]int // failures of messages that were put off, by stream and sequence
}

// Open connects, or goes on trying in the background while NATS is away.
func Open(url string) (*Bus, error) {
	nc, err := nats.Connect(url, nats.Name("holdfast"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond), nats.Timeout(time.Second), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("event: %w", err)
	}
	return &Bus{nc: nc, js: js, streams: map[string]bool{}, tries: map[string]int{}}, nil
}

// Close ends the connection.
func (b *Bus) Close() { b.nc.Close() }

// Up says whether NATS is connected now.
func (b *Bus) Up() bool { return b.nc.IsConnected() }

// Conn and JetStream are the connection itself.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// JetStream is the stream side of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Subject is the subject of a kind for a sale.
func Subject(kind string, sale int64) string {
	h := fnv.New32a()
	_, _ = h.Write(strconv.AppendInt(nil, sale, 10))
	return kind + "." + strconv.Itoa(int(h.Sum32()%Subjects))
}

// Nudge publishes an event for a sale on core NATS. It does not wait and does
// not promise: who must act finds the work in Postgres.
func (b *Bus) Nudge(kind string, sale int64, data []byte) error {
	if !b.Up() {
		return ErrDown
	}
	return b.nc.Publish(Subject(kind, sale), data)
}

// Stream makes sure, once a process, that a stream exists.
func (b *Bus) Stream(ctx context.Context, cfg jetstream.StreamConfig) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams[cfg.Name] {
		return nil
	}
	if !b.Up() {
		return ErrDown
	}
	if _, err := b.js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("%w: %w", ErrDown, err)
	}
	b.streams[cfg.Name] = true
	return nil
}
