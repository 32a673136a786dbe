package line

import (
	"sync"
	"time"
)

// soon does something for a sale at once, and at most once in a while: whoever
// asks within it is served by one more run at its end. What is run looks how
// things are by then, so that one run does for all who asked before it.
type soon struct {
	every time.Duration
	run   func(sale int64)

	mu   sync.Mutex
	busy map[int64]bool // sales whose while is not over; true: asked for again
}

func newSoon(every time.Duration, run func(sale int64)) *soon {
	return &soon{every: every, run: run, busy: map[int64]bool{}}
}

// ask returns at once.
func (s *soon) ask(sale int64) {
	s.mu.Lock()
	_, busy := s.busy[sale]
	s.busy[sale] = busy
	s.mu.Unlock()
	if !busy {
		go s.turn(sale)
	}
}

func (s *soon) turn(sale int64) {
	s.run(sale)
	time.AfterFunc(s.every, func() {
		s.mu.Lock()
		again := s.busy[sale]
		if again {
			s.busy[sale] = false
		} else {
			delete(s.busy, sale)
		}
		s.mu.Unlock()
		if again {
			s.turn(sale)
		}
	})
}
