// Package services starts and stops what Holdfast stands on: Postgres,
// Redis and NATS, for the workbench and for the tests. Everything listens on
// 127.0.0.1 only and ends with the process that started it, even when that
// process is killed.
package services

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// spawner is the one OS thread that starts children. The kernel sends the
// parent-death signal when the *thread* that forked ends, so children must
// not be forked from a thread of the Go scheduler that may come and go.
var spawner = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// Start starts the command such that it receives the signal when this process
// ends in any way. The child gets a process group of its own, so that Ctrl-C in
// a terminal reaches this process alone, which then stops its children in order.
func Start(cmd *exec.Cmd, whenParentDies syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = whenParentDies
	cmd.SysProcAttr.Setpgid = true
	done := make(chan error, 1)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}

// Process is a running child.
type Process struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the child was waited for
	err  error
}

// run starts the command with its output in logFile (appended).
func run(name string, cmd *exec.Cmd, logFile string, whenParentDies syscall.Signal) (*Process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	// A file, not a pipe: a child must be able to say why it ends after we did.
	cmd.Stdout, cmd.Stderr = out, out
	if err := Start(cmd, whenParentDies); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop sends the signal, waits, and kills the child when it has not ended in time.
func (p *Process) Stop(sig syscall.Signal, within time.Duration) error {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
		return nil
	case <-time.After(within):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop within %s and was killed", p.Name, within)
	}
}

// CPU is the time the ended child used, zero while it runs.
func (p *Process) CPU() time.Duration {
	select {
	case <-p.done:
		return p.cmd.ProcessState.SystemTime() + p.cmd.ProcessState.UserTime()
	default:
		return 0
	}
}

// FreePort returns a TCP port that is free on 127.0.0.1 at this moment. Another
// process can take it before it is used: callers try again with another.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail returns the last n bytes of a file, for error messages.
func tail(file string, n int) string {
	b, _ := os.ReadFile(file)
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return strings.TrimSpace(string(b))
}

// endOrphan ends a server that an earlier, killed process of ours left behind.
// pidFile's first line is its process id; it is ours only when the command line
// of that process names the folder.
func endOrphan(pidFile, folder string, sig syscall.Signal) error {
	b, err := os.ReadFile(pidFile)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return nil // a broken pid file: the server itself decides
	}
	alive := func() bool {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		return err == nil && strings.Contains(string(line), folder)
	}
	for i := 0; alive(); i++ {
		switch {
		case i == 0:
			_ = syscall.Kill(pid, sig)
		case i == 300: // 30 s
			_ = syscall.Kill(pid, syscall.SIGKILL)
		case i > 350:
			return fmt.Errorf("process %d still uses %s", pid, folder)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
