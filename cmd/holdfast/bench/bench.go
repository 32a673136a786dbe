// Package bench measures one function against the least that its work could
// cost: for a write the bare driver or script that does only what no design can
// leave out, for a read an echo function on the same server. Ours and the limit
// take turns in one run, so that what the machine does beside hits both.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Names of the benchmarks, with the ratio each must reach (issue 2, demand 6;
// issue 3, demands 2 and 3; confirm has no gate).
var gates = map[string]float64{"hold": 0.4, "confirm": 0, "join": 0.45, "poll": 0.7, "map": 0.7, "match": matchTextbook, "standby-first": standbyFirst}

// Names lists the benchmarks.
func Names() []string {
	return []string{"hold", "confirm", "join", "poll", "map", "match", "standby-first"}
}

// Options of one benchmark.
type Options struct {
	Name    string
	Rounds  int           // turns of each side that count; one more warms up; 0: the benchmark's own
	Each    time.Duration // length of a turn; 0: the benchmark's own
	Workers int           // requests at a time; 0: the benchmark's own
	Profile string        // file for a CPU profile of our turns; empty: none
	Queued  []int         // of match: orders in the hottest queue; empty: its own
	Log     func(format string, args ...any)
}

// Result is what a benchmark measured; rates are medians over the rounds.
type Result struct {
	Name     string             `json:"name"`
	Ours     float64            `json:"ours_per_s"`
	Limit    float64            `json:"limit_per_s"`
	Ratio    float64            `json:"ratio"`
	CPU      float64            `json:"cpu_us"` // processor time of one of ours, with backends, microseconds
	P50      float64            `json:"p50_ms"`
	P99      float64            `json:"p99_ms"`
	Peers    map[string]float64 `json:"peers"`  // what else took turns, a second
	Gate     float64            `json:"gate"`   // the least ratio; 0: none
	Failed   bool               `json:"failed"` // the ratio is under the gate
	LimitCPU float64            `json:"limit_cpu_us"`
	Workers  int                `json:"workers"`
	Rounds   int                `json:"rounds"`
	What     string             `json:"what"` // what the limit is, in words

	// Of match: its latency by the length of the hottest queue, and the memory of
	// Redis for each queued order.
	At         []At    `json:"at,omitempty"`
	RedisBytes float64 `json:"redis_bytes_per_order,omitempty"`
	// Faults are the other gates that were missed, in words.
	Faults []string `json:"faults,omitempty"`
}

// fail notes a gate that was missed.
func (r *Result) fail(format string, args ...any) {
	r.Failed = true
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

// side is one of those that take turns.
type side struct {
	name string
	// setup prepares a turn outside the time that counts. It returns the
	// operation, called with 0, 1, 2… by many workers, and how many times at most.
	setup func(ctx context.Context) (op func(ctx context.Context, i int) error, most int, err error)
	// cpu is the processor time in seconds used so far by whatever serves this
	// side.
	cpu func() float64
}

// contest is one benchmark: ours first, the limit second, then peers.
type contest struct {
	sides   []side
	workers int
	rounds  int
	each    time.Duration
	what    string
	byCost  bool // the ratio is that of processor times, not of rates
	close   func()
}

// turn is what one side did in one turn.
type turn struct {
	perSecond float64
	cpuMicros float64
	latency   *hdrhistogram.Histogram
}

// Run runs one benchmark on a platform.
func Run(ctx context.Context, g Ground, o Options) (*Result, error) {
	gate, ok := gates[o.Name]
	if !ok {
		return nil, fmt.Errorf("no benchmark %q: there are %v", o.Name, Names())
	}
	if o.Rounds < 0 || o.Each < 0 || o.Workers < 0 {
		return nil, errors.New("--rounds, --each and --workers must not be negative")
	}
	if o.Name == "match" {
		r, err := g.match(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("bench match: %w", err)
		}
		return r, nil
	}
	var c *contest
	var err error
	switch o.Name {
	case "hold":
		c, err = g.holdContest(ctx)
	case "confirm":
		c, err = g.confirmContest(ctx)
	case "join":
		c, err = g.joinContest(ctx)
	case "poll":
		c, err = g.pollContest(ctx)
	case "map":
		c, err = g.mapContest(ctx)
	case "standby-first":
		c, err = g.standbyFirstContest(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("bench %s: %w", o.Name, err)
	}
	defer c.close()
	if o.Workers > 0 {
		c.workers = o.Workers
	}
	if o.Rounds == 0 {
		o.Rounds = c.rounds
	}
	if o.Each == 0 {
		o.Each = c.each
	}
	read := o.Name == "poll" || o.Name == "map" // profiled in its own process
	var profile io.WriteCloser
	if o.Profile != "" && !read {
		if profile, err = os.Create(o.Profile); err != nil {
			return nil, err
		}
		defer profile.Close()
	}
	turns := make([][]turn, len(c.sides))
	for round := 0; round <= o.Rounds; round++ {
		for i, s := range c.sides {
			last := profile != nil && i == 0 && round == o.Rounds
			t, err := take(ctx, s, c.workers, o.Each, last, profile)
			if err != nil {
				return nil, fmt.Errorf("bench %s: %s: %w", o.Name, s.name, err)
			}
			if round == 0 {
				continue // warms up
			}
			o.Log("round %d of %d: %-8s %9.0f a second, %6.0f us CPU each", round, o.Rounds, s.name, t.perSecond, t.cpuMicros)
			turns[i] = append(turns[i], t)
		}
	}
	return judge(o, c, turns, gate), nil
}

// take is one turn of one side.
func take(ctx context.Context, s side, workers int, each time.Duration, profiled bool, profile io.Writer) (turn, error) {
	op, most, err := s.setup(ctx)
	if err != nil {
		return turn{}, err
	}
	runtime.GC()
	if profiled {
		if err := pprof.StartCPUProfile(profile); err != nil {
			return turn{}, err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	latency := make([]*hdrhistogram.Histogram, workers)
	cpu := s.cpu()
	start := time.Now()
	end := start.Add(each)
	for w := range workers {
		latency[w] = hdrhistogram.New(1, 60_000_000, 3)
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				i := next.Add(1) - 1
				if began.After(end) || i >= int64(most) {
					return
				}
				if err := op(ctx, int(i)); err != nil {
					cancel(err)
					return
				}
				done.Add(1)
				_ = latency[w].RecordValue(max(1, time.Since(began).Microseconds()))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return turn{}, err
	}
	n := float64(done.Load())
	all := latency[0]
	for _, h := range latency[1:] {
		all.Merge(h)
	}
	return turn{n / took.Seconds(), (s.cpu() - cpu) / n * 1e6, all}, nil
}

func judge(o Options, c *contest, turns [][]turn, gate float64) *Result {
	rate := func(t turn) float64 { return t.perSecond }
	cost := func(t turn) float64 { return t.cpuMicros }
	latency := hdrhistogram.New(1, 60_000_000, 3)
	for _, t := range turns[0] {
		latency.Merge(t.latency)
	}
	r := &Result{
		Name: o.Name, Ours: median(turns[0], rate), Limit: median(turns[1], rate),
		CPU: median(turns[0], cost), LimitCPU: median(turns[1], cost),
		P50: float64(latency.ValueAtQuantile(50)) / 1000, P99: float64(latency.ValueAtQuantile(99)) / 1000,
		Peers: map[string]float64{}, Gate: gate, Workers: c.workers, Rounds: o.Rounds, What: c.what,
	}
	// The median of the rounds' ratios and not the ratio of the medians: what a
	// round has in common falls out.
	var ratios []float64
	for i := range turns[0] {
		ratio := turns[0][i].perSecond / turns[1][i].perSecond
		if c.byCost {
			ratio = turns[1][i].cpuMicros / turns[0][i].cpuMicros
		}
		ratios = append(ratios, ratio)
	}
	r.Ratio = middle(ratios)
	for i, s := range c.sides[2:] {
		r.Peers[s.name] = median(turns[i+2], rate)
	}
	r.Failed = r.Ratio < gate
	return r
}

func median(turns []turn, f func(turn) float64) float64 {
	v := make([]float64, len(turns))
	for i, t := range turns {
		v[i] = f(t)
	}
	return middle(v)
}

// middle is the median of a list that is not empty.
func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// Print writes the result for a terminal.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "bench %s, %d requests at a time, %d rounds\n", r.Name, r.Workers, r.Rounds)
	fmt.Fprintf(w, "  ours   %10.0f a second  %7.0f us CPU each  p50 %.2f ms  p99 %.2f ms\n", r.Ours, r.CPU, r.P50, r.P99)
	fmt.Fprintf(w, "  limit  %10.0f a second  %7.0f us CPU each  (%s)\n", r.Limit, r.LimitCPU, r.What)
	for name, rate := range r.Peers {
		fmt.Fprintf(w, "  %s %.0f a second\n", name, rate)
	}
	verdict := "no gate"
	if r.Gate > 0 {
		verdict = fmt.Sprintf("the gate is %.2f: passed", r.Gate)
		if r.Ratio < r.Gate {
			verdict = fmt.Sprintf("the gate is %.2f: FAILED", r.Gate)
		}
	}
	fmt.Fprintf(w, "  ratio  %10.2f (%s)\n", r.Ratio, verdict)
	for _, at := range r.At {
		fmt.Fprintf(w, "  %9d queued, %3.0f joining a second: p50 %.2f ms, p99 %.2f ms, %.2f times the shortest queue's\n", at.Queued, at.Joined, at.P50, at.P99, at.Growth)
	}
	if r.RedisBytes > 0 {
		fmt.Fprintf(w, "  Redis  %10.0f bytes for each queued order\n", r.RedisBytes)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(w, "  FAILED: %s\n", f)
	}
}
