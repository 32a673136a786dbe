package stream

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"handler/function/shared/event"

	"github.com/nats-io/nats.go/jetstream"
)

var things = jetstream.StreamConfig{Name: "THINGS", Subjects: []string{"things"}, Duplicates: time.Minute}

func keep(t *testing.T, w *world, bus *event.Bus, from, to int) {
	t.Helper()
	var msgs []event.Message
	for i := from; i <= to; i++ {
		s := strconv.Itoa(i)
		msgs = append(msgs, event.Message{Subject: "things", ID: s, Data: []byte(s)})
	}
	if err := bus.Keep(w.ctx, things, 10*time.Second, msgs...); err != nil {
		t.Fatal(err)
	}
}

func never(t *testing.T) func(context.Context, []byte, error) {
	return func(_ context.Context, data []byte, cause error) { t.Errorf("%s set aside: %v", data, cause) }
}

// Everything that stands in the stream is worked at once, in its order, by one
// or another of two consumers.
func TestConsume(t *testing.T) {
	w := setup(t)
	bus := w.bus()
	keep(t, w, bus, 1, 250)
	keep(t, w, bus, 240, 260) // repeats
	var got []string
	n, err := event.Consume(w.ctx, bus, things, "c", func(_ context.Context, data []byte) error {
		got = append(got, string(data))
		return nil
	}, never(t))
	if n != 260 || err != nil || len(got) != 260 || got[0] != "1" || got[259] != "260" {
		t.Errorf("%d, %v, %d messages", n, err, len(got))
	}
	if n, err := event.Consume(w.ctx, bus, things, "c", func(context.Context, []byte) error { return nil }, never(t)); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
	keep(t, w, bus, 1001, 1300)
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 2 {
		other := w.bus()
		wg.Go(func() {
			_, err := event.Consume(w.ctx, other, things, "c", func(_ context.Context, data []byte) error {
				mu.Lock()
				defer mu.Unlock()
				seen[string(data)]++
				return nil
			}, never(t))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for s, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", s, times)
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d messages, want 300", len(seen))
	}
}

// A bad message is tried three times and set aside once; the others go on.
func TestConsumeBad(t *testing.T) {
	w := setup(t)
	bus := w.bus()
	keep(t, w, bus, 1, 5)
	broken := errors.New("broken")
	tries := 0
	var got, aside []string
	run := func() {
		_, err := event.Consume(w.ctx, bus, things, "c", func(_ context.Context, data []byte) error {
			if string(data) == "3" {
				tries++
				return broken
			}
			got = append(got, string(data))
			return nil
		}, func(_ context.Context, data []byte, cause error) {
			if !errors.Is(cause, broken) {
				t.Errorf("cause %v", cause)
			}
			aside = append(aside, string(data))
		})
		if err != nil {
			t.Error(err)
		}
	}
	w.eventually("set aside", func() bool { run(); return len(aside) > 0 })
	run()
	if tries != 3 || !slices.Equal(aside, []string{"3"}) || !slices.Equal(got, []string{"1", "2", "4", "5"}) {
		t.Errorf("%d tries, set aside %v, done %v", tries, aside, got)
	}
}

// What the work needs is away: the batch stops, nothing is lost or set aside
// however often that happens, and the rest is done when it is back.
func TestConsumeAway(t *testing.T) {
	w := setup(t)
	bus := w.bus()
	keep(t, w, bus, 1, 120)
	gone := errors.New("gone")
	calls := 0
	for range 5 { // more often than a bad message is tried
		n, err := event.Consume(w.ctx, bus, things, "c", func(_ context.Context, data []byte) error {
			calls++
			return event.Away(gone)
		}, never(t))
		if n != 0 || (err != nil && !errors.Is(err, gone)) {
			t.Errorf("%d, %v", n, err)
		}
	}
	if calls == 0 || calls > 5 {
		t.Errorf("asked %d times in 5 batches", calls)
	}
	seen := map[string]bool{}
	failed := false
	w.eventually("all done", func() bool {
		_, err := event.Consume(w.ctx, bus, things, "c", func(_ context.Context, data []byte) error {
			if string(data) == "1" && !failed {
				failed = true
				return errors.New("once") // its first try, whatever was put off before
			}
			seen[string(data)] = true
			return nil
		}, never(t))
		if err != nil {
			t.Error(err)
		}
		return len(seen) == 120
	})
}

// Without NATS there is nothing to do.
func TestConsumeDown(t *testing.T) {
	w := setup(t)
	bus := w.bus()
	_ = w.nats.Close()
	w.eventually("down", func() bool { return !bus.Up() })
	for _, b := range []*event.Bus{nil, bus} {
		n, err := event.Consume(w.ctx, b, things, "c", func(context.Context, []byte) error { return nil }, never(t))
		if n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if err := bus.Keep(w.ctx, things, time.Second, event.Message{Subject: "things", ID: "1"}); !errors.Is(err, event.ErrDown) {
		t.Errorf("kept: %v", err)
	}
}
