// Package room_test runs the waiting room on real servers.
package room_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/shared/event"
	"handler/function/shared/key"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/room"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// world is one test's services and what its rooms front.
type world struct {
	t     testing.TB
	db    *harness.Database
	redis *harness.RedisServer
	nats  *harness.NATSServer
	keys  key.Ring
	draw  key.Ring
	admin *store.DB

	mu     sync.Mutex
	counts map[int64]room.Count
	used   map[int64]bool
	fail   error
}

func setup(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, db: harness.DB(t), redis: harness.Redis(t), nats: harness.NATS(t),
		keys: ring(t, "k1:"+strings.Repeat("11", 32)), draw: ring(t, "d1:"+strings.Repeat("22", 32)),
		counts: map[int64]room.Count{}, used: map[int64]bool{},
	}
	w.admin = store.New(w.db.App)
	return w
}

func ring(t testing.TB, file string) key.Ring {
	t.Helper()
	r, err := key.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replica is a Service as a function's replica has it, with connections of its
// own. redisURL is empty for the world's.
func (w *world) replica(redisURL string) *room.Service { return w.replicaWith(redisURL, nil) }

func (w *world) replicaWith(redisURL string, change func(*room.Options)) *room.Service {
	w.t.Helper()
	if redisURL == "" {
		redisURL = w.redis.URL
	}
	db, err := store.OpenSize(w.db.AppURL, 8)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := queue.Open(redisURL)
	if err != nil {
		w.t.Fatal(err)
	}
	bus, err := event.Open(w.nats.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { bus.Close(); _ = r.Close(); db.Close() })
	o := room.Options{
		DB: db, Redis: r, Bus: bus, Tokens: room.NewTokens(w.keys, nil), Draw: w.draw, StreamReplicas: 1,
		Count: w.count,
		RoomOf: func(_ context.Context, sale int64) (int64, error) {
			return 0, problem.New(problem.NotFound, "There is no such sale.")
		},
		Used: func(_ context.Context, _ []int64, admission int64) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.used[admission], nil
		},
	}
	if change != nil {
		change(&o)
	}
	return room.New(o)
}

func (w *world) count(_ context.Context, sale int64) (room.Count, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.counts[sale]; ok || w.fail != nil {
		return c, w.fail
	}
	return room.Count{}, problem.New(problem.NotFound, "There is no such sale.")
}

func (w *world) setLeft(sale int64, left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[sale] = room.Count{Open: true, Left: left, Classes: []room.ClassLeft{{Class: "economy", Left: left, Whole: left}}}
}

func (w *world) setCount(sale int64, c room.Count) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[sale] = c
}

// room makes a room in front of the sale 1000 + its id, with 1,000 seats left.
func (w *world) room(s room.Settings) (id int64) {
	w.t.Helper()
	id, err := room.Create(w.t.Context(), w.admin, w.draw, s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.setLeft(1000+id, 1000)
	if err := room.Attach(w.t.Context(), w.admin, id, 1000+id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// run ticks with each replica, as cron does, until the test ends or stop is called.
func (w *world) run(replicas ...*room.Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, r := range replicas {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := r.Tick(ctx); err != nil && ctx.Err() == nil && !problem.Is(err, problem.Unavailable) {
					w.t.Errorf("tick: %v", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	w.t.Cleanup(stop)
	return stop
}

// until asks again until ok says yes, for at most 30 s.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func join(t testing.TB, s *room.Service, id int64, account, token string) room.Answer {
	t.Helper()
	a, err := s.Join(context.Background(), room.Ask{Room: id, Account: account, PlaceToken: token})
	if err != nil {
		t.Fatalf("%s: %v", account, err)
	}
	return a
}

// crowd joins n accounts in parallel and returns their answers.
func crowd(t testing.TB, s *room.Service, id int64, prefix string, n int) []room.Answer {
	t.Helper()
	answers := make([]room.Answer, n)
	each(t, n, func(i int) error {
		a, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprint(prefix, i)})
		answers[i] = a
		return err
	})
	return answers
}

// each runs f for 0 to n-1, 64 at a time.
func each(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range 64 {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("%d: %w", i, err))
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if len(errs) > 0 {
		t.Fatalf("%d of %d failed, first: %v", len(errs), n, errors.Join(errs[:min(3, len(errs))]...))
	}
}

func status(t testing.TB, s *room.Service, id int64) room.Status {
	t.Helper()
	return decode(t, s, id)
}

// pause is what two settings of a test have between them.
func seconds(n float64) *time.Duration {
	d := time.Duration(n * float64(time.Second))
	return &d
}
