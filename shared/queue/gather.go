package queue

import (
	"context"
	"sync"
	"time"
)

// Gather makes few calls of many: what is asked for while a call is in the air
// waits and goes out together with the next one. A lone caller waits for nobody,
// unless calls are kept apart.
type Gather[T, R any] struct {
	run     func([]T) ([]R, error)
	most    int // items of a call
	flights int // calls in the air at once
	apart   time.Duration

	mu      sync.Mutex
	waiting []ask[T, R]
	flying  int
	next    time.Time // when the next call may go out
}

type ask[T, R any] struct {
	item T
	done chan answer[R]
}

type answer[R any] struct {
	value R
	err   error
}

// NewGather makes a Gather. run gets 1 to most items in the order they came and
// gives one result for each, or an error for all; it must end by itself. At most
// flights calls run at once.
func NewGather[T, R any](most, flights int, run func([]T) ([]R, error)) *Gather[T, R] {
	return &Gather[T, R]{run: run, most: most, flights: flights}
}

// Do hands in one item and waits for its result. When ctx ends first the item
// may still be run.
func (g *Gather[T, R]) Do(ctx context.Context, item T) (R, error) {
	a := ask[T, R]{item: item, done: make(chan answer[R], 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	if g.flying < g.flights {
		g.flying++
		go g.fly()
	}
	g.mu.Unlock()
	select {
	case r := <-a.done:
		return r.value, r.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// Apart has calls go out at least this long after one another, so that fewer go.
// It is set before the first Do.
func (g *Gather[T, R]) Apart(d time.Duration) *Gather[T, R] {
	g.apart = d
	return g
}

// fly runs calls until nothing waits.
func (g *Gather[T, R]) fly() {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), g.most)
		if n == 0 {
			g.waiting = nil
			g.flying--
			g.mu.Unlock()
			return
		}
		if wait := time.Until(g.next); wait > 0 {
			g.mu.Unlock()
			time.Sleep(wait)
			continue
		}
		g.next = time.Now().Add(g.apart)
		batch := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.mu.Unlock()

		items := make([]T, n)
		for i, a := range batch {
			items[i] = a.item
		}
		results, err := g.run(items)
		for i, a := range batch {
			r := answer[R]{err: err}
			if err == nil {
				r.value = results[i]
			}
			a.done <- r
		}
	}
}
