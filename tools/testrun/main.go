// Command testrun runs `go test -json` with its arguments, shows one line a
// package and the whole output of what failed, and lists every skipped test. A
// skip that is not named in the file of -skips fails the run: a test that
// quietly stops running is a defect.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
	"time"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

func main() {
	skips := flag.String("skips", "", "file of the skips that are allowed")
	flag.Parse()
	allowed := ""
	if *skips != "" {
		b, err := os.ReadFile(*skips)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testrun:", err)
			os.Exit(1)
		}
		allowed = string(b)
	}
	began := time.Now()
	cmd := exec.Command("go", append([]string{"test", "-json"}, flag.Args()...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
	r := newRun(parseSkips(allowed), os.Stdout)
	readErr := r.read(out)
	testErr := cmd.Wait()
	ok := r.finish()
	fmt.Printf("%d tests in %s\n", r.passed+r.failed+len(r.skipped), time.Since(began).Round(time.Second))
	if readErr != nil {
		fmt.Fprintln(os.Stderr, "testrun:", readErr)
	}
	if testErr != nil {
		fmt.Fprintln(os.Stderr, "testrun: go test:", testErr)
	}
	if !ok || readErr != nil || testErr != nil {
		os.Exit(1)
	}
}

// parseSkips reads lines of `PACKAGE TEST reason`; PACKAGE is below the module.
func parseSkips(text string) map[string]bool {
	m := map[string]bool{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) >= 2 {
			m[f[0]+" "+f[1]] = true
		}
	}
	return m
}

type run struct {
	allowed        map[string]bool
	w              io.Writer
	output         map[string][]string // by package and test, until it is known to have passed
	skipped        map[string]string   // name → reason
	passed, failed int
}

func newRun(allowed map[string]bool, w io.Writer) *run {
	return &run{allowed: allowed, w: w, output: map[string][]string{}, skipped: map[string]string{}}
}

func (r *run) read(in io.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			fmt.Fprintln(r.w, s.Text()) // not an event: what go itself has to say
			continue
		}
		r.take(e)
	}
	return s.Err()
}

func (r *run) take(e event) {
	name := strings.TrimPrefix(e.Package, "handler/function/") + " " + e.Test
	switch e.Action {
	case "output":
		r.output[name] = append(r.output[name], e.Output)
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "pass", "fail", "skip":
		switch {
		case e.Test == "" && e.Action == "skip": // no test files
		case e.Test == "":
			fmt.Fprintf(r.w, "%-5s %s %.1fs\n", e.Action, strings.TrimSpace(name), e.Elapsed)
		case e.Action == "pass":
			r.passed++
		case e.Action == "skip":
			r.skipped[name] = reason(r.output[name])
		case e.Action == "fail":
			r.failed++
		}
		if e.Action == "fail" {
			for _, line := range r.output[name] {
				fmt.Fprint(r.w, line)
			}
		}
		delete(r.output, name)
	}
}

// reason is the line that t.Skip printed.
func reason(output []string) string {
	for _, line := range output {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") && line != "" {
			return line
		}
	}
	return ""
}

// finish lists the skips and says whether all are allowed.
func (r *run) finish() bool {
	names := make([]string, 0, len(r.skipped))
	for name := range r.skipped {
		names = append(names, name)
	}
	sort.Strings(names)
	ok := true
	for _, name := range names {
		mark := "skipped"
		if !r.allowed[name] {
			mark, ok = "SKIPPED, not on the list of tests/skips.txt", false
		}
		fmt.Fprintf(r.w, "%s: %s: %s\n", mark, name, r.skipped[name])
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(names))
	return ok
}
