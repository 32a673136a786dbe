package platform

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"handler/function/cmd/holdfast/services"
)

// replica is one process of one function, started again whenever it ends.
type replica struct {
	name    string // of the function
	command func() *exec.Cmd
	addr    atomic.Pointer[string] // nil while it is down
	pid     atomic.Int64
	usedCPU atomic.Int64 // nanoseconds, of its ended processes
	cancel  context.CancelFunc
	ended   chan struct{}
	started chan error // one value: how the first start went
}

// address is host:port, empty while the process is down.
func (r *replica) address() string {
	if a := r.addr.Load(); a != nil {
		return *a
	}
	return ""
}

// startReplica starts the process and keeps it running until stop.
func startReplica(name string, command func() *exec.Cmd) *replica {
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{name: name, command: command, cancel: cancel, ended: make(chan struct{}), started: make(chan error, 1)}
	go r.run(ctx)
	return r
}

// run starts the process again at once, and later and later (at most 5 s) when
// it ends within 10 s of its start, as a cluster would.
func (r *replica) run(ctx context.Context) {
	defer close(r.ended)
	wait := time.Duration(0)
	for first := true; ; first = false {
		began := time.Now()
		err := r.once(ctx, first)
		if ctx.Err() != nil {
			return
		}
		slog.Warn("a function's process ended", "function", r.name, "error", err)
		if time.Since(began) > 10*time.Second {
			wait = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(max(2*wait, 100*time.Millisecond), 5*time.Second)
	}
}

// once runs the process to its end.
func (r *replica) once(ctx context.Context, first bool) error {
	tell := func(err error) error {
		if first {
			r.started <- err
			first = false
		}
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return tell(err)
	}
	defer read.Close()
	cmd := r.command()
	cmd.ExtraFiles = []*os.File{write} // descriptor 3: where it says its port
	err = services.Start(cmd, syscall.SIGKILL)
	write.Close()
	if err != nil {
		return tell(err)
	}
	r.pid.Store(int64(cmd.Process.Pid))
	done := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		r.usedCPU.Add(int64(cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()))
		done <- err
	}()
	line, err := bufio.NewReader(read).ReadString('\n') // ends with the process, too
	port, portErr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || portErr != nil {
		_ = cmd.Process.Kill()
		err := <-done
		r.pid.Store(0)
		return tell(fmt.Errorf("%s did not start: %w", r.name, errors.Join(err, portErr)))
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	r.addr.Store(&addr)
	_ = tell(nil)
	select {
	case err = <-done:
		r.addr.Store(nil)
		r.pid.Store(0)
		return err
	case <-ctx.Done():
	}
	r.addr.Store(nil)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
	r.pid.Store(0)
	return nil
}

// stop ends the process: it may finish what it has begun, for at most 5 s.
func (r *replica) stop() {
	r.cancel()
	<-r.ended
}

// newOutside starts n processes of a function.
func newOutside(name string, n int, command func() *exec.Cmd) *outside {
	f := &outside{name: name, client: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 1024,
		// Shorter than the template's idle time (its read_timeout): a connection
		// must not be closed there while we choose it here.
		IdleConnTimeout:    2 * time.Second,
		DisableCompression: true,
	}}
	var turn atomic.Uint64
	f.next = func() int { return int(turn.Add(1) % uint64(n)) }
	for range n {
		f.replicas = append(f.replicas, startReplica(name, command))
	}
	return f
}

// ready waits for the first start of all replicas.
func (f *outside) ready(ctx context.Context) error {
	for _, r := range f.replicas {
		select {
		case err := <-r.started:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *outside) close() {
	var wg sync.WaitGroup
	for _, r := range f.replicas {
		wg.Go(r.stop)
	}
	wg.Wait()
}

// RunFunction is the process of one function: the template's server on a free
// port of 127.0.0.1, told to the parent on descriptor 3. It returns when ctx
// ends and what had begun is answered.
func RunFunction(ctx context.Context, handle Handle, l Limits) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := TemplateServer(Watch(handle, l), l)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	tell := os.NewFile(3, "port")
	if tell == nil {
		return errors.New("descriptor 3 is not open: this command is started by holdfast up --processes")
	}
	if _, err := fmt.Fprintln(tell, listener.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	tell.Close()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		return server.Shutdown(stop)
	}
}
