package line

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// However many ask, a sale has its turn at once and then one a while; whoever asks
// last is served by a turn that begins after that.
func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns, seen, asked atomic.Int64
		s := newSoon(100*time.Millisecond, func(sale int64) {
			if sale == 1 {
				turns.Add(1)
				seen.Store(asked.Load())
			}
		})
		for range 1000 { // for a second
			asked.Add(1)
			s.ask(1)
			time.Sleep(time.Millisecond)
		}
		s.ask(2) // another sale waits for nobody
		time.Sleep(time.Second)
		synctest.Wait()
		if n := turns.Load(); n < 10 || n > 12 {
			t.Errorf("%d turns for a thousand asks within a second, want about 11", n)
		}
		if seen.Load() != asked.Load() {
			t.Errorf("the last turn saw %d of %d asks", seen.Load(), asked.Load())
		}
		if len(s.busy) != 0 {
			t.Errorf("remembers %v", s.busy)
		}
		before := turns.Load()
		s.ask(1)
		synctest.Wait()
		if turns.Load() != before+1 {
			t.Error("after a quiet while the turn is not at once")
		}
		time.Sleep(time.Second)
	})
}
