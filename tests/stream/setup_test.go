// Package stream tries what goes out on NATS: releases of seats, and how a
// stream is worked off. Postgres, Redis and NATS are real.
package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/event"
	"handler/function/shared/release"
	"handler/function/shared/store"
	"handler/function/tests/harness"

	"github.com/nats-io/nats.go/jetstream"
)

// world is one test's database, NATS server and sale of three legs.
type world struct {
	*testing.T
	ctx  context.Context
	db   *harness.Database
	nats *harness.NATSServer
	sale int64
}

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, ctx: context.Background(), db: harness.DB(t), nats: harness.NATS(t)}
	w.sale = w.db.OpenSale(t, 3, 8)
	return w
}

// bus is a connection to the test's NATS server.
func (w *world) bus() *event.Bus {
	w.Helper()
	bus, err := event.Open(w.nats.URL)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(bus.Close)
	w.eventually("NATS is there", bus.Up)
	return bus
}

// releases is a replica's service with a connection of its own.
func (w *world) releases() *release.Service {
	w.Helper()
	db := store.New(w.db.App)
	return release.New(db, w.bus(), alert.New(db, ""))
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) scan(to any, sql string, args ...any) {
	w.Helper()
	if err := w.db.Owner.QueryRow(w.ctx, sql, args...).Scan(to); err != nil {
		w.Fatal(err)
	}
}

func (w *world) count(sql string, args ...any) int {
	w.Helper()
	var n int
	w.scan(&n, sql, args...)
	return n
}

// hold holds seats on legs 2 to 3 and returns the booking's number.
func (w *world) hold(account string, seats ...int) int64 {
	w.Helper()
	var raw []byte
	w.scan(&raw, `SELECT hold_seats($1, $2, $3, 'h', NULL, NULL, 'second', 2, 3, $4, NULL, $5, 100, now() + interval '2 days', '[]', '{}', NULL, 'customer', 'trace-hold')`,
		w.sale, account, fmt.Sprintf("%s-%v", account, seats), seats, len(seats))
	var a struct {
		Code   string
		Number int64
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Code != "held" {
		w.Fatalf("hold of %v: %s, %v", seats, raw, err)
	}
	return a.Number
}

// letGo holds seats and lets them go: an ABANDON release each.
func (w *world) letGo(account string, seats ...int) {
	w.Helper()
	w.exec(`SELECT let_go_booking($1, $2, $3, 'test', 'trace-1')`, w.sale, w.hold(account, seats...), account)
}

// told is what stands in the stream, in its order, with the moment it came.
func (w *world) told() (all []release.Event, at []time.Time) {
	w.Helper()
	js, err := jetstream.New(w.nats.Conn)
	if err != nil {
		w.Fatal(err)
	}
	s, err := js.Stream(w.ctx, release.Stream)
	if err != nil {
		return nil, nil
	}
	info, err := s.Info(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := s.GetMsg(w.ctx, seq)
		if err != nil {
			w.Fatal(err)
		}
		var e release.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			w.Fatal(err)
		}
		if want := event.Subject(event.SeatReleased, w.sale); m.Subject != want {
			w.Errorf("subject %s, want %s", m.Subject, want)
		}
		all, at = append(all, e), append(at, m.Time)
	}
	return all, at
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not within 20 s: %s", what)
		}
	}
}
