package rush

import (
	"fmt"
	"sort"
	"sync"
	"time"
)

// maxProblems bounds the lists kept for the report.
const maxProblems = 50

// story keeps the moments of a rush, to be told in words at the end.
type story struct {
	start time.Time // when the line opened
	opens time.Time // when the sale opened

	mu            sync.Mutex
	lastState     string
	asOf          time.Time // of the newest document seen
	drewAt        time.Time
	firstAdmitted time.Time
	firstHeld     time.Time
	firstTicket   time.Time
	firstSoldOut  time.Time
	reopened      int // times the room went back from sold out
	allSold       time.Time
	events        []Moment
	notes         map[string]int
	problems      []string
	payments      []paid
}

type paid struct {
	booking, reference string
	amount             int64
}

// Moment is one event of the story; At is in milliseconds since the line opened.
type Moment struct {
	At   int64  `json:"at_ms"`
	What string `json:"what"`
}

// mark sets a moment the first time it happens.
func (s *story) mark(t *time.Time) {
	s.mu.Lock()
	if t.IsZero() {
		*t = time.Now()
	}
	s.mu.Unlock()
}

// tell adds an event.
func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	s.add(time.Now(), fmt.Sprintf(format, args...))
	s.mu.Unlock()
}

func (s *story) add(at time.Time, what string) {
	s.events = append(s.events, Moment{at.Sub(s.start).Milliseconds(), what})
}

// problem records something that must not happen: the rush has failed.
func (s *story) problem(what string) {
	s.mu.Lock()
	if len(s.problems) < maxProblems {
		s.problems = append(s.problems, what)
	}
	s.mu.Unlock()
}

// note counts something worth knowing that is no fault.
func (s *story) note(what string) {
	s.mu.Lock()
	if s.notes == nil {
		s.notes = map[string]int{}
	}
	if len(s.notes) < maxProblems {
		s.notes[what]++
	}
	s.mu.Unlock()
}

func (s *story) paid(booking, reference string, amount int64) {
	s.mu.Lock()
	s.payments = append(s.payments, paid{booking, reference, amount})
	s.mu.Unlock()
}

// sawStatus notes what the room's document tells everybody.
func (s *story) sawStatus(doc *status, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !doc.AsOf.After(s.asOf) {
		return // replicas keep the document for a moment, each its own
	}
	s.asOf = doc.AsOf
	now := time.Now()
	state := doc.State
	if state == "standby" { // sold out, and who is served may wait for seats
		state = "sold_out"
	}
	if state != s.lastState {
		switch {
		case s.lastState == "drawing" && s.drewAt.IsZero():
			s.drewAt = now
			s.add(now, fmt.Sprintf("the draw closed with %s in line (the room says: %s)", count(int(doc.Joined)), doc.State))
		case state == "sold_out":
			if s.firstSoldOut.IsZero() {
				s.firstSoldOut = now
				s.add(now, fmt.Sprintf("sold out for the first time, with the line served up to place %s", count(int(doc.Serving))))
			}
		case s.lastState == "sold_out":
			s.reopened++
			if s.reopened == 1 {
				s.add(now, fmt.Sprintf("holds that were not paid ended: %s seats came back and the line moved on", count(left)))
			}
		}
		s.lastState = state
	}
}

func (s *story) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastState
}

// moments gives the events in order of time.
func (s *story) moments() []Moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append([]Moment(nil), s.events...)
	for _, m := range []struct {
		at   time.Time
		what string
	}{
		{s.firstAdmitted, "the first person was admitted"},
		{s.firstHeld, "the first seats were held"},
		{s.firstTicket, "the first ticket was in a customer's hands"},
		{s.allSold, "the last seat was paid for and ticketed"},
	} {
		if !m.at.IsZero() {
			list = append(list, Moment{m.at.Sub(s.start).Milliseconds(), m.what})
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].At < list[j].At })
	return list
}

// count writes a number with its thousands apart.
func count(n int) string {
	if n < 0 {
		return "-" + count(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}
