package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"handler/function/cmd/holdfast/platform"
	"handler/function/cmd/holdfast/services"
)

// startPlatform starts the whole platform with our functions, schema and
// sandbox gateway: inside this process, or with Processes each function in one
// of its own. Close stops it.
func startPlatform(ctx context.Context, o platform.Options) (*platform.Running, error) {
	o.Dev = devHandlers
	return platform.Start(ctx, o)
}

// childPlatform is a platform started as `holdfast up`, a process of its own: so
// that a load generator's or a benchmark's time is not the platform's.
type childPlatform struct {
	upResult
	cmd  *exec.Cmd
	done chan struct{}
	temp string // removed at the end
	once sync.Once
}

// startChild starts `holdfast up --port 0 --json` on temporary data, with more
// arguments behind, and returns when it is ready. Its logs go to logs. It ends
// with this process, however that ends.
func startChild(ctx context.Context, logs io.Writer, args ...string) (*childPlatform, error) {
	temp, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return nil, err
	}
	c := &childPlatform{temp: temp, done: make(chan struct{})}
	// Postgres is not run as root and must reach its folder.
	if err := os.Chmod(temp, 0o755); err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	c.cmd = exec.Command(exe, append([]string{"--json", "up", "--port", "0", "--data", temp}, args...)...)
	c.cmd.Stderr = logs
	read, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	defer read.Close()
	c.cmd.Stdout = write
	err = services.Start(c.cmd, syscall.SIGTERM)
	write.Close()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.done)
	}()
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(read).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &c.upResult)
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("the platform did not start: %w", err)
	}
	return c, nil
}

// Close stops the platform and removes its data.
func (c *childPlatform) Close() {
	c.once.Do(func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(40 * time.Second):
			_ = c.cmd.Process.Kill()
			<-c.done
		}
		_ = os.RemoveAll(c.temp)
	})
}

func cutEnv(kv string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(kv, "=")
	return name, value, ok && name != ""
}
