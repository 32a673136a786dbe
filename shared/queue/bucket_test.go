package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"handler/function/shared/clock"
)

func TestBucketWithoutRedis(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBuckets(nil, clock.Func(func() time.Time { return now }))
	for i := range 5 {
		if ok, _ := b.Take(context.Background(), "a", 2, 5); !ok {
			t.Fatalf("token %d of the burst was refused", i+1)
		}
	}
	ok, after := b.Take(context.Background(), "a", 2, 5)
	if ok || after != 500*time.Millisecond {
		t.Fatalf("the sixth token: %v after %v, want refused for 500ms", ok, after)
	}
	if ok, _ := b.Take(context.Background(), "b", 2, 5); !ok {
		t.Fatal("another bucket is empty too")
	}
	now = now.Add(after)
	if ok, _ := b.Take(context.Background(), "a", 2, 5); !ok {
		t.Fatal("no token after the time that was told")
	}
}

func TestBucketsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBuckets(nil, clock.Func(func() time.Time { return now }))
	for i := range localBuckets + 10 {
		b.Take(context.Background(), fmt.Sprint(i), 0.001, 1)
	}
	if len(b.local) > localBuckets {
		t.Fatalf("%d buckets are kept", len(b.local))
	}
}

func TestGatherAnswersEachItsOwn(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	g := NewGather(16, 2, func(items []int) ([]int, error) {
		mu.Lock()
		calls++
		mu.Unlock()
		if len(items) == 0 || len(items) > 16 {
			t.Errorf("a call of %d items", len(items))
		}
		out := make([]int, len(items))
		for i, n := range items {
			out[i] = n * n
		}
		return out, nil
	})
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			if r, err := g.Do(context.Background(), i); err != nil || r != i*i {
				t.Errorf("%d: %d %v", i, r, err)
			}
		})
	}
	wg.Wait()
	if calls > 1000 {
		t.Errorf("%d calls", calls)
	}
}

func TestGatherKeepsCallsApart(t *testing.T) {
	const apart = 30 * time.Millisecond
	var began []time.Time // of calls, one at a time
	g := NewGather(1000, 1, func(items []int) ([]int, error) {
		began = append(began, time.Now())
		return items, nil
	}).Apart(apart)
	first := time.Now()
	if _, err := g.Do(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(first); took >= apart {
		t.Errorf("a lone call took %s", took)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			if r, err := g.Do(context.Background(), i); err != nil || r != i {
				t.Errorf("%d: %d %v", i, r, err)
			}
		})
	}
	wg.Wait()
	for i := 1; i < len(began); i++ {
		if gap := began[i].Sub(began[i-1]); gap < apart-time.Millisecond {
			t.Errorf("call %d went out %s after the one before", i, gap)
		}
	}
	if most := int(time.Since(first)/apart) + 1; len(began) > most {
		t.Errorf("%d calls, not %d at most", len(began), most)
	}
}
