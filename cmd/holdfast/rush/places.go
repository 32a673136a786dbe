package rush

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"handler/function/cmd/holdfast/wire"
)

// Asking for places must not become a load of its own, nor wait behind the
// crowd: it has connections of its own, so many, and an end.
const (
	askersAtOnce = 24
	askFor       = 30 * time.Second // one place that is told "later"
	askBefore    = 4 * time.Second  // all, before something is broken
	askAfter     = 20 * time.Second // all, afterwards
)

// askPlaces asks a sample of the people in line for their places, with their
// Place-Token and, as one who lost it, without. What they are told is
// remembered: a place that differs from before is a broken promise. It ends
// after within and says how many people were asked.
func (r *run) askPlaces(ctx context.Context, n int, within time.Duration, when string) int {
	var line []*person
	for _, p := range r.c.people {
		if p.token() != "" {
			line = append(line, p)
		}
	}
	step := max(1, len(line)/n)
	end := time.Now().Add(within)
	var asked atomic.Int64
	var wg sync.WaitGroup
	work := make(chan *person)
	for range askersAtOnce {
		wg.Go(func() {
			for p := range work {
				if time.Now().After(end) {
					continue
				}
				for _, with := range []bool{true, false} {
					if err := p.askPlace(ctx, r.asking, with); err != nil && ctx.Err() == nil {
						r.c.story.note(when + ": " + err.Error())
					}
				}
				asked.Add(1)
			}
		})
	}
	for i := 0; i < len(line) && ctx.Err() == nil; i += step {
		work <- line[i]
	}
	close(work)
	wg.Wait()
	return int(asked.Load())
}

func (p *person) token() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placeToken
}

// askPlace asks for the place once, and again while the answer is "later".
// Somebody whose draw is still open has no place to compare.
func (p *person) askPlace(ctx context.Context, w *wire.Client, withToken bool) error {
	body, err := json.Marshal(map[string]any{"sale": p.c.target.sale})
	if err != nil {
		return err
	}
	turn, known := p.c.line.asking(p.account)
	deadline := time.Now().Add(askFor)
	var last string
	for time.Now().Before(deadline) && ctx.Err() == nil {
		headers := []wire.Header{p.auth}
		if withToken {
			headers = append(headers, wire.Header{Name: "Place-Token", Value: p.token()})
		}
		a, err := w.Do(ctx, "POST", "/function/join-room", headers, body, nil)
		var j joinAnswer
		switch {
		case err != nil || !a.OK():
			last = reason(a, err)
		case json.Unmarshal(a.Body, &j) != nil:
			return fmt.Errorf("join-room: %s", short(a.Body))
		case j.Place != nil:
			p.c.line.toldAgain(p.account, *j.Place, turn)
			return nil
		case !known:
			return nil
		default:
			last = "place later"
		}
		if !sleepUntil(ctx, time.Now().Add(max(500*time.Millisecond, a.RetryAfter))) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("a place was not told within %s: %s", askFor, last)
}
