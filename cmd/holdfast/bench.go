package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/openfaas/go-sdk/stack"
	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/cmd/holdfast/bench"
	"handler/function/cmd/holdfast/platform"
	"handler/function/cmd/holdfast/services"
)

// benchCmd measures a function against the least its work could cost.
type benchCmd struct {
	Name    string        `arg:"" enum:"hold,confirm,join,poll,map,match,standby-first" help:"hold, confirm, join, poll, map, match or standby-first."`
	Rounds  int           `help:"Turns of each side that count, when not the benchmark's own; one more warms up."`
	Each    time.Duration `help:"Length of a turn, when not the benchmark's own."`
	Workers int           `help:"Requests at a time, when not the benchmark's own."`
	Queued  []int         `help:"Of match: orders in the hottest queue (1000,100000,2000000)."`
	Profile string        `help:"Write a CPU profile of our last turn to this file." type:"path"`
}

func (c *benchCmd) Run(ctx context.Context, out *output) error {
	temp, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil { // Postgres, not run as root, must reach it
		return err
	}
	// Functions inside one process would share a larger pool: here it is a
	// replica's, as the bare driver's is.
	if err := os.Setenv("HOLDFAST_POOL", strconv.Itoa(bench.PoolSize)); err != nil {
		return err
	}
	out.log("starting services of our own")
	o := platform.Options{Data: temp, NoTriggers: true}
	if c.Name == "match" {
		// From commit to commit, through NATS and the connector; nothing else runs.
		o.NoTriggers, o.CommitTimes = false, true
		if o.Stack, err = onlyTriggers("match"); err != nil {
			return err
		}
	}
	p, err := startPlatform(ctx, o)
	if err != nil {
		return err
	}
	defer p.Close()
	g := bench.NewGround(p, func(name string) (*bench.Server, error) {
		if name == "echo" {
			return serveFunction(name, "")
		}
		return serveFunction(name, c.Profile)
	})
	res, err := bench.Run(ctx, g, bench.Options{
		Name: c.Name, Rounds: c.Rounds, Each: c.Each, Workers: c.Workers, Queued: c.Queued, Profile: c.Profile, Log: out.log,
	})
	if err != nil {
		return err
	}
	if err := out.result(res, res.Print); err != nil {
		return err
	}
	if res.Failed {
		return failed{1}
	}
	return nil
}

// onlyTriggers is stack.yml with the triggers of one function.
func onlyTriggers(function string) (*stack.Services, error) {
	root, err := platform.Root()
	if err != nil {
		return nil, err
	}
	s, err := platform.ReadStack(filepath.Join(root, "stack.yml"))
	if err != nil {
		return nil, err
	}
	for name, f := range s.Functions {
		if name != function {
			f.Annotations = nil
			s.Functions[name] = f
		}
	}
	return s, nil
}

// benchServeCmd is the process of one function, or of the echo function, under
// a benchmark.
type benchServeCmd struct {
	Name    string `arg:""`
	Profile string
}

func (c *benchServeCmd) Run(ctx context.Context) error {
	if c.Profile != "" {
		f, err := os.Create(c.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	handle := platform.Functions[c.Name]
	if c.Name == "echo" {
		handle = echo
	}
	if handle == nil {
		return fmt.Errorf("no function %s", c.Name)
	}
	root, err := platform.Root()
	if err != nil {
		return err
	}
	stack, err := platform.ReadStack(filepath.Join(root, "stack.yml"))
	if err != nil {
		return err
	}
	limits, err := platform.LimitsOf(stack.Functions[c.Name].Environment)
	if err != nil {
		return err
	}
	return platform.RunFunction(ctx, handle, limits)
}

// echo answers what it was asked: the least a function on the template can do.
func echo(r handler.Request) (handler.Response, error) {
	return handler.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(r.QueryString),
	}, nil
}

// serveFunction starts benchServeCmd with this process's environment, in which
// the platform has put where its secrets are.
func serveFunction(name, profile string) (*bench.Server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := exec.Command(exe, "bench-serve", name, "--profile="+profile)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{write} // descriptor 3: where it says its port
	err = services.Start(cmd, syscall.SIGKILL)
	write.Close()
	if err != nil {
		return nil, err
	}
	end := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(read).ReadString('\n')
	port, portErr := strconv.Atoi(strings.TrimSpace(line))
	if err = errors.Join(err, portErr); err != nil {
		end()
		return nil, fmt.Errorf("%s did not start: %w", name, err)
	}
	return &bench.Server{URL: fmt.Sprintf("http://127.0.0.1:%d", port), PID: cmd.Process.Pid, Close: end}, nil
}
