package bench

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 2, 8, 6}, 5}} {
		if got := middle(c.in); got != c.want {
			t.Errorf("middle(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestTurnCountsAndStops(t *testing.T) {
	s := side{"x", func(context.Context) (func(context.Context, int) error, int, error) {
		return func(context.Context, int) error { time.Sleep(time.Millisecond); return nil }, 40, nil
	}, func() float64 { return 0 }}
	got, err := take(context.Background(), s, 4, time.Minute, false, io.Discard)
	if err != nil || got.latency.TotalCount() != 40 || got.perSecond <= 0 {
		t.Fatalf("%+v %v, want 40 done", got, err)
	}
	fails := errors.New("no")
	s.setup = func(context.Context) (func(context.Context, int) error, int, error) {
		return func(context.Context, int) error { return fails }, 40, nil
	}
	if _, err := take(context.Background(), s, 4, time.Minute, false, io.Discard); !errors.Is(err, fails) {
		t.Fatalf("a failed operation gave %v", err)
	}
}

func TestJudgeFailsUnderTheGate(t *testing.T) {
	of := func(rates ...float64) []turn {
		var list []turn
		for _, r := range rates {
			list = append(list, turn{r, 1, hdrhistogram.New(1, 60_000_000, 3)})
		}
		return list
	}
	c := &contest{sides: make([]side, 2), workers: 1}
	r := judge(Options{Name: "hold", Rounds: 3}, c, [][]turn{of(10, 50, 30), of(100, 100, 60)}, 0.4)
	if r.Ratio != 0.5 || r.Failed {
		t.Errorf("ratio %v, failed %v; want the median of the rounds' ratios, 0.5", r.Ratio, r.Failed)
	}
	if r = judge(Options{Name: "hold", Rounds: 3}, c, [][]turn{of(10, 30, 30), of(100, 100, 100)}, 0.4); !r.Failed {
		t.Error("0.3 passed a gate of 0.4")
	}
	c.byCost = true
	dear, cheap := of(100), of(10)
	dear[0].cpuMicros, cheap[0].cpuMicros = 5, 4
	if r = judge(Options{Name: "standby-first", Rounds: 1}, c, [][]turn{dear, cheap}, standbyFirst); r.Ratio != 0.8 || !r.Failed {
		t.Errorf("a quarter more processor time: ratio %v, failed %v", r.Ratio, r.Failed)
	}
}
