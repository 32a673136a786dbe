// Package rush_test lets a small crowd come to the whole platform, as a process
// for each function, and breaks what can break meanwhile.
package rush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/tests/harness"
)

type result struct {
	People           int      `json:"people"`
	Joined           int      `json:"joined"`
	Sold             int      `json:"sold"`
	Oversold         int      `json:"oversold"`
	JoinsFirstOK     int      `json:"joins_first_attempt_ok"`
	JoinsFirstFailed int      `json:"joins_first_attempt_failed"`
	JoinsFirstKilled int      `json:"joins_first_attempt_killed"`
	PlacesChanged    int      `json:"places_changed"`
	PlacesTwice      int      `json:"places_twice"`
	PaidBookings     int      `json:"paid_bookings"`
	Flushes          int      `json:"flushes"`
	Kills            int      `json:"kills"`
	Promotions       int      `json:"promotions"`
	Broken           []string `json:"broken"`
	CPU              struct {
		Functions float64 `json:"functions"`
		Postgres  float64 `json:"postgres"`
		Load      float64 `json:"load"`
	} `json:"cpu_seconds"`
}

// holdfast is the workbench: HOLDFAST_TEST_BINARY, or built once.
var holdfast = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("HOLDFAST_TEST_BINARY"); bin != "" {
		return bin, nil
	}
	bin := filepath.Join(harness.Dir(), "holdfast")
	out, err := exec.Command("go", "build", "-o", bin, "handler/function/cmd/holdfast").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, err
})

func rush(t *testing.T, args ...string) result {
	t.Helper()
	bin, err := holdfast()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	logs := filepath.Join(t.TempDir(), "platform.log")
	cmd := exec.CommandContext(ctx, bin, append([]string{"--json", "rush", "--logs", logs}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err = cmd.Run()
	var r result
	if json.Unmarshal(out.Bytes(), &r) != nil {
		tail, _ := os.ReadFile(logs)
		t.Fatalf("holdfast rush: %v\n%s\nplatform:\n%s", err, lastLines(log.String(), 20), lastLines(string(tail), 30))
	}
	for _, b := range r.Broken {
		t.Errorf("broken: %s", b)
	}
	if t.Failed() {
		t.Logf("%s", out.Bytes())
	}
	return r
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// A crowd of 1,500 meets killed functions and an emptied Redis in every phase:
// nobody loses a place, every seat is sold once and paid for.
func TestRush(t *testing.T) {
	t.Parallel()
	r := rush(t, "--people", "1500", "--window", "12s", "--draw", "16s", "--seats", "160", "--party", "2",
		"--hold", "8s", "--admit", "100", "--flush", "draw,wait,admit", "--kill-functions")
	if r.Joined != 1500 || r.JoinsFirstFailed != 0 || r.JoinsFirstOK+r.JoinsFirstKilled < 1400 {
		t.Errorf("joined %d, at first attempt %d, failed %d, killed %d; want all 1,500", r.Joined, r.JoinsFirstOK, r.JoinsFirstFailed, r.JoinsFirstKilled)
	}
	if r.Sold != 160 || r.Oversold != 0 || r.PaidBookings != 80 {
		t.Errorf("sold %d, oversold %d, paid bookings %d; want 160, 0, 80", r.Sold, r.Oversold, r.PaidBookings)
	}
	if r.PlacesChanged != 0 || r.PlacesTwice != 0 {
		t.Errorf("places changed %d, given twice %d", r.PlacesChanged, r.PlacesTwice)
	}
	if r.Flushes != 3 || r.Kills < 3*10 {
		t.Errorf("flushes %d, kills %d: the disturbances did not happen", r.Flushes, r.Kills)
	}
	if r.CPU.Functions == 0 || r.CPU.Postgres == 0 || r.CPU.Load == 0 {
		t.Errorf("CPU %+v: not counted", r.CPU)
	}
}

// A lagging replica of Redis takes over while the old master still serves, on
// a train whose buyers travel between any stops.
func TestRushFailover(t *testing.T) {
	t.Parallel()
	r := rush(t, "--people", "600", "--window", "6s", "--draw", "4s", "--seats", "60", "--party", "2", "--legs", "4",
		"--hold", "6s", "--admit", "50", "--promote", "wait")
	if r.Joined != 600 || r.JoinsFirstFailed != 0 {
		t.Errorf("joined %d, first attempts failed %d", r.Joined, r.JoinsFirstFailed)
	}
	if r.Sold < 60 || r.Oversold != 0 || r.PlacesChanged != 0 || r.PlacesTwice != 0 || r.Promotions != 1 {
		t.Errorf("%+v", r)
	}
}
