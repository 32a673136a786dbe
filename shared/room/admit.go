package room

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"handler/function/shared/store"
)

const (
	// admitBatch bounds the people of one room_admit call.
	admitBatch = 64
	// memoryMax bounds the admissions a replica remembers, about 200 bytes each.
	memoryMax = 200_000
	// noneKept is how long a replica believes that a person has no admission while
	// none is given anyway.
	noneKept = 30 * time.Second
)

type placeKey struct{ room, generation, place int64 }

// admitAsk is one person who says they are served.
type admitAsk struct {
	room, generation int64
	account          string
	place            int64
}

// admitted is room_admit's answer for one person.
type admitted struct {
	outcome string // see migrations/00010_room.sql
	admit   Admit
	wait    time.Duration
	until   time.Time // of what is remembered: not asked again before
}

// memory is what a replica remembers of its answers, so that asking again costs
// no call.
type memory struct {
	mu   sync.Mutex
	max  int
	rows map[placeKey]admitted
}

func newMemory(most int) *memory { return &memory{max: most, rows: map[placeKey]admitted{}} }

func (m *memory) get(k placeKey) (admitted, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.rows[k]
	return a, ok
}

func (m *memory) put(k placeKey, a admitted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.rows) >= m.max {
		for old := range m.rows { // in Go's random order
			delete(m.rows, old)
			if len(m.rows) <= m.max/2 {
				break
			}
		}
	}
	m.rows[k] = a
}

func (m *memory) forget(k placeKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, k)
}

// admit answers a person whose place is served.
func (s *Service) admit(ctx context.Context, snap *snapshot, at *standing, a *Answer) error {
	doc := snap.doc
	got, err := s.askAdmission(ctx, snap, at)
	if err != nil {
		if !isBusy(err) {
			return err
		}
		a.State, a.Notice = Served, NoticeMaintenance
		a.PollAfterMS = spread(3 * time.Second)
		return nil
	}
	switch got.outcome {
	case "same", "new":
		token, err := s.Tokens.IssueAdmit(got.admit)
		if err != nil {
			return err
		}
		ends := got.admit.Ends
		a.State, a.AdmitToken, a.AdmitFor, a.AdmitExpiresAt = Served, token, got.admit.For, &ends
		if got.admit.For == ForStandby {
			a.State = Standby
		}
	case "wait":
		a.State, a.Notice = Served, NoticeSoon
		a.PollAfterMS = spread(max(got.wait, 500*time.Millisecond))
	case "ended", "lapsed":
		a.State = Lapsed
	case "paused":
		a.State = Paused
	case "closed":
		a.State = Closed
	case "reset":
		// Postgres knows of a newer generation that nobody has published yet.
		v := s.view(snap.line.room)
		s.tickFor(ctx, v)
		v.forget()
		return WasReset()
	default: // early, nobody
		a.State = waitingState(doc)
	}
	return nil
}

func spread(d time.Duration) int64 { return (d + rand.N(d)).Milliseconds() }

// askAdmission is the person's admission, from memory where that is certain, by
// one gathered call to Postgres where not.
func (s *Service) askAdmission(ctx context.Context, snap *snapshot, at *standing) (admitted, error) {
	doc := snap.doc
	now := s.Clock.Now()
	key := placeKey{snap.line.room, doc.Generation, at.place}
	if got, ok := s.issued.get(key); ok {
		switch got.outcome {
		case "same", "new":
			if now.Before(got.admit.Ends) {
				return got, nil
			}
			got.outcome = "ended"
			return got, nil
		case "ended", "lapsed": // for good
			return got, nil
		case "wait":
			if now.Before(got.until) {
				got.wait = got.until.Sub(now)
				return got, nil
			}
		default:
			// None was given, and none would be now.
			if (doc.State == Paused || doc.AdmitFor == "nobody") && now.Before(got.until) {
				return got, nil
			}
		}
	}
	got, err := s.admits.Do(ctx, admitAsk{snap.line.room, doc.Generation, at.account, at.place})
	if err != nil {
		return admitted{}, err
	}
	switch got.outcome {
	case "wait":
		got.until = now.Add(got.wait)
	case "reset":
		return got, nil
	default:
		got.until = now.Add(noneKept)
	}
	s.issued.put(key, got)
	return got, nil
}

// admitAll asks Postgres for many people of, mostly, one room.
func (s *Service) admitAll(asks []admitAsk) ([]admitted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	type rooms struct{ room, generation int64 }
	parts := map[rooms][]int{}
	for i, a := range asks {
		k := rooms{a.room, a.generation}
		parts[k] = append(parts[k], i)
	}
	out := make([]admitted, len(asks))
	for k, which := range parts {
		accounts := make([]string, len(which))
		places := make([]int64, len(which))
		for n, i := range which {
			accounts[n], places[n] = asks[i].account, asks[i].place
		}
		err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
			rows, err := q.Query(ctx, sql["admit"], k.room, k.generation, accounts, places)
			if err != nil {
				return err
			}
			var ord, wait int
			var outcome string
			var admission *int64
			var what *string
			var issued, ends *time.Time
			_, err = pgx.ForEachRow(rows, []any{&ord, &outcome, &admission, &what, &issued, &ends, &wait}, func() error {
				i := which[ord-1]
				got := admitted{outcome: outcome, wait: time.Duration(wait) * time.Millisecond}
				if admission != nil {
					got.admit = Admit{Room: k.room, Generation: k.generation, Account: asks[i].account,
						Admission: *admission, For: *what, Issued: *issued, Ends: *ends}
				}
				out[i] = got
				return nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// letGo ends an admission's right to be given again: its account joins again.
func (s *Service) letGo(ctx context.Context, a Admit) error {
	return s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, sql["let-go"], a.Room, a.Generation, a.Account, a.Admission)
		return err
	})
}
