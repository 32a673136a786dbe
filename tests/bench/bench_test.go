// Package bench_test runs the benchmarks of standby at a small size: that they run,
// and say what they must. What they say of speed is looked at by `make bench`.
package bench_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"handler/function/cmd/holdfast/bench"
	"handler/function/tests/harness"
)

// run runs `holdfast bench` and reads its answer. A missed gate is exit status 1,
// with the answer: a test machine is busy.
func run(t *testing.T, args ...string) bench.Result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), append([]string{"--json", "bench"}, args...)...)
	cmd.Dir = harness.Root()
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r bench.Result
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		t.Fatalf("%v: %v\n%s", err, jsonErr, log.String())
	}
	if failed := err != nil; failed != r.Failed {
		t.Errorf("exit status %v, failed %v", err, r.Failed)
	}
	if r.Failed && r.Ratio >= r.Gate && len(r.Faults) == 0 {
		t.Error("it failed and does not say why")
	}
	return r
}

func TestMatch(t *testing.T) {
	r := run(t, "match", "--queued", "40", "--queued", "120", "--rounds", "1", "--each", "500ms")
	if len(r.At) != 4 {
		t.Fatalf("at %+v, want two sizes with and without joins", r.At)
	}
	for i, at := range r.At {
		if want := []int{40, 120}[i%2]; at.Queued != want || at.Matches < 1 || at.P50 <= 0 || at.P99 < at.P50 || at.Growth <= 0 {
			t.Errorf("at[%d] is %+v, want %d queued", i, at, want)
		}
		if joins := i >= 2; joins != (at.Joining > 0) {
			t.Errorf("at[%d] has %d joining a second", i, at.Joining)
		}
	}
	if r.RedisBytes < 5 || r.RedisBytes > 400 { // a short queue is packed
		t.Errorf("%.0f bytes for each queued order", r.RedisBytes)
	}
	if r.Ours <= 0 || r.Peers["textbook"] <= 0 || r.Peers["ours, one caller"] <= 0 || r.Ratio <= 0 || r.Gate != 5 {
		t.Errorf("ours %v, peers %v, ratio %v, gate %v", r.Ours, r.Peers, r.Ratio, r.Gate)
	}
	for _, f := range r.Faults { // a short turn on a busy machine is slow, and no more
		if !strings.Contains(f, "p99") && !strings.Contains(f, "times") && !strings.Contains(f, "bytes") && !strings.Contains(f, "joined") {
			t.Error(f)
		}
	}
}

func TestStandbyFirst(t *testing.T) {
	r := run(t, "standby-first", "--rounds", "1", "--each", "300ms")
	if r.Ours <= 0 || r.Limit <= 0 || r.Ratio <= 0 || r.Gate <= 0.8 || r.Peers["any two"] <= 0 {
		t.Errorf("%+v", r)
	}
}
