package alert

import (
	"sync"
	"time"
)

// sayings keeps a trouble that comes ten times a second from filling the log:
// one line a minute for each alert.
type sayings struct {
	mu   sync.Mutex
	last map[said]time.Time
}

type said struct {
	sale          int64
	kind, subject string
}

// maxSayings bounds the memory; past it everything may be said again.
const maxSayings = 10_000

// first says whether it is time for a line about this again.
func (s *sayings) first(sale int64, kind, subject string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := said{sale, kind, subject}
	if at, ok := s.last[k]; ok && now.Sub(at) < quiet {
		return false
	}
	if s.last == nil || len(s.last) >= maxSayings {
		s.last = map[said]time.Time{}
	}
	s.last[k] = now
	return true
}
