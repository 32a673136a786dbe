package rush

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"handler/function/cmd/holdfast/proc"

	"github.com/redis/go-redis/v9"
)

// A disturbance is something broken on purpose while the crowd is there.
type disturbance struct {
	phase string // draw, wait, admit
	what  string // flush, kill, promote
}

// Phases of a rush in which something can be broken.
const (
	PhaseDraw  = "draw"  // while the draw is open
	PhaseWait  = "wait"  // the draw has closed, almost everybody waits
	PhaseAdmit = "admit" // people are being admitted and buy
)

// settle is how long the platform has after a disturbance before places are
// asked again; recovery from the stream runs at the next tick or reconcile.
const settle = 3 * time.Second

// restart is how long the platform may take to start a killed function again.
const restart = 15 * time.Second

// disturb waits for each phase and breaks what was asked for in it. Before and
// after each disturbance a sample of people is asked for their places.
func (r *run) disturb(ctx context.Context, list []disturbance) {
	for _, phase := range []string{PhaseDraw, PhaseWait, PhaseAdmit} {
		var due []disturbance
		for _, d := range list {
			if d.phase == phase {
				due = append(due, d)
			}
		}
		if len(due) == 0 {
			continue
		}
		if !r.reach(ctx, phase) {
			if ctx.Err() == nil {
				r.c.story.problem("the rush was over before anything could be broken in the phase " + phase)
			}
			return
		}
		for _, d := range due {
			if phase != PhaseDraw { // nobody has a place before the draw has closed
				r.asked += r.askPlaces(ctx, sample, askBefore, "before "+d.what)
			}
			// Only a killed process can take a request with it; without Redis a join
			// is taken all the same.
			if d.what == "kill" {
				r.c.inFault.Add(1)
			}
			err := r.breakIt(ctx, d)
			if err != nil {
				r.c.story.problem(fmt.Sprintf("%s in the phase %s did not work: %v", d.what, phase, err))
			}
			sleepUntil(ctx, time.Now().Add(settle))
			if d.what == "kill" {
				r.c.inFault.Add(-1)
			}
			if phase != PhaseDraw {
				r.asked += r.askPlaces(ctx, sample, askAfter, "after "+d.what)
			}
		}
	}
}

// reach waits until the phase has come; false when the rush ended before.
func (r *run) reach(ctx context.Context, phase string) bool {
	draw := r.o.Draw
	for {
		since := time.Since(r.c.target.opens)
		switch phase {
		case PhaseDraw:
			if since >= draw/4 {
				return true
			}
		case PhaseWait:
			if s := r.c.story.state(); s != "" && s != "before" && s != "drawing" {
				return true
			}
		case PhaseAdmit:
			if r.c.m.admitted.Load() > 0 && r.c.m.heldSeats.Load() > 0 {
				return true
			}
		}
		select {
		case <-r.c.over:
			return false
		default:
		}
		if !sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) {
			return false
		}
	}
}

func (r *run) breakIt(ctx context.Context, d disturbance) error {
	switch d.what {
	case "flush":
		return r.flush(ctx)
	case "kill":
		return r.killFunctions(ctx)
	case "promote":
		if err := r.o.Platform.Promote(ctx, r.c.story.tell); err != nil {
			return err
		}
		r.promotions++
		return nil
	}
	return fmt.Errorf("unknown disturbance %q", d.what)
}

// flush empties Redis.
func (r *run) flush(ctx context.Context) error {
	opts, err := redis.ParseURL(r.o.Platform.Redis)
	if err != nil {
		return err
	}
	c := redis.NewClient(opts)
	defer c.Close()
	n, _ := c.DBSize(ctx).Result()
	if err := c.FlushAll(ctx).Err(); err != nil {
		return err
	}
	r.flushes++
	r.c.story.tell("Redis was emptied (%s keys)", count(int(n)))
	return nil
}

// killFunctions sends SIGKILL to every function process of the platform, which
// starts them again: the first replica of each function at once, the second when
// the first has come back, and so on. A function with one replica is down for
// the moment its start takes.
func (r *run) killFunctions(ctx context.Context) error {
	replicas := r.functions()
	if len(replicas) == 0 {
		return fmt.Errorf("process %d has no function processes: was the platform started with --processes?", r.o.Platform.PID)
	}
	killed := map[int]bool{}
	for pass := 0; ; pass++ {
		n := 0
		for _, pids := range replicas {
			if pass < len(pids) && syscall.Kill(pids[pass], syscall.SIGKILL) == nil {
				killed[pids[pass]] = true
				n++
			}
		}
		if n == 0 {
			break
		}
		if err := r.backUp(ctx, replicas, killed); err != nil {
			return err
		}
	}
	r.kills += len(killed)
	r.c.story.tell("%d function processes had been killed with SIGKILL and were back", len(killed))
	return nil
}

// backUp waits until as many processes run of each function as before, none of
// them killed, and gives them a moment to listen.
func (r *run) backUp(ctx context.Context, want map[string][]int, killed map[int]bool) error {
	deadline := time.Now().Add(restart)
	for {
		up := 0
		now := r.functions()
		for name, pids := range want {
			n := 0
			for _, pid := range now[name] {
				if !killed[pid] {
					n++
				}
			}
			if n >= len(pids) {
				up++
			}
		}
		if !sleepUntil(ctx, time.Now().Add(200*time.Millisecond)) {
			return ctx.Err()
		}
		if up == len(want) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d functions were started again within %s", up, len(want), restart)
		}
	}
}

// functions lists the platform's function processes by the function's name.
func (r *run) functions() map[string][]int {
	list := map[string][]int{}
	for _, q := range proc.All() {
		if q.Parent == r.o.Platform.PID && kindOf(q) == isFunction {
			if words := strings.Fields(proc.CommandLine(q.PID)); len(words) > 2 {
				list[words[2]] = append(list[words[2]], q.PID)
			}
		}
	}
	return list
}
