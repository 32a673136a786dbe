package rush

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"handler/function/cmd/holdfast/wire"
)

// Asking for places must not become a load of its own: so many at once, and a
// place that cannot be told (the line is down) is asked for again for so long.
const (
	askersAtOnce = 16
	askFor       = 30 * time.Second
)

// askPlaces asks a sample of the people in line for their places, with their
// Place-Token and, as one who lost it, without. What they are told is
// remembered: a place that differs from before is a broken promise.
func (r *run) askPlaces(ctx context.Context, when string) {
	var line []*person
	for _, p := range r.c.people {
		if p.token() != "" {
			line = append(line, p)
		}
	}
	n := sample
	if when == "at the end" {
		n = 5 * sample
	}
	step := max(1, len(line)/n)
	var wg sync.WaitGroup
	work := make(chan *person)
	for range askersAtOnce {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for p := range work {
				for _, with := range []bool{true, false} {
					if err := p.askPlace(ctx, with); err != nil && ctx.Err() == nil {
						r.c.story.note(when + ": " + err.Error())
					}
				}
			}
		}()
	}
	for i := 0; i < len(line); i += step {
		select {
		case work <- line[i]:
		case <-ctx.Done():
		}
	}
	close(work)
	wg.Wait()
}

func (p *person) token() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placeToken
}

// askPlace asks for the place once, and again while the answer is "later".
// Somebody whose draw is still open has no place to compare.
func (p *person) askPlace(ctx context.Context, withToken bool) error {
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
		a, err := p.c.w.Do(ctx, "POST", "/function/join-room", headers, body, nil)
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
