package room_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/room"
)

// A room whose tick takes long keeps no hold of another sale from its end: that
// is looked for each second all the same, and no more often, whoever calls.
func TestHoldsEndWhileARoomIsSlow(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.room(room.Settings{Draw: seconds(0), DrawOpensAt: time.Now().Add(-time.Minute)})
	counting, slow := make(chan struct{}, 1), make(chan struct{})
	var looked atomic.Int64
	s := w.replicaWith("", func(o *room.Options) {
		o.Count = func(context.Context, int64) (room.Count, error) {
			select {
			case counting <- struct{}{}:
			default:
			}
			<-slow
			return room.Count{Open: true, Left: 1}, nil
		}
		o.ExpireHolds = func(context.Context) (int, error) { looked.Add(1); return 0, nil }
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.Tick(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	<-counting
	began := time.Now()
	until(t, "looked for again", func() bool {
		if _, err := s.Tick(context.Background()); err != nil {
			t.Error(err)
		}
		return looked.Load() >= 3
	})
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("two looks took %v beside room %d", took, id)
	}
	if n, most := looked.Load(), int64(time.Since(began)/(900*time.Millisecond))+2; n > most {
		t.Errorf("looked for %d times, at most %d were due", n, most)
	}
	close(slow)
	<-done
}
