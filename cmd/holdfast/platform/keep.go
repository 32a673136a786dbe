package platform

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"handler/function/cmd/holdfast/services"
)

// keep starts a service again, on the port it had, when it ends unasked.
func (p *Running) keep(name string, ended <-chan struct{}, again func() (<-chan struct{}, error)) {
	for {
		<-ended
		if p.closing.Load() {
			return
		}
		slog.Warn("a service ended and is started again", "service", name)
		for {
			time.Sleep(300 * time.Millisecond)
			if p.closing.Load() {
				return
			}
			next, err := again()
			if err == nil {
				ended = next
				break
			}
			slog.Error("a service does not start", "service", name, "error", err)
		}
	}
}

func (p *Running) keepPostgres(s *services.Postgres, o services.PostgresOptions) {
	p.adopt(func() { p.postgres = s }, func() {
		p.mu.Lock()
		s := p.postgres
		p.mu.Unlock()
		_ = s.Close()
	})
	go p.keep("postgres", s.Done(), func() (<-chan struct{}, error) {
		p.mu.Lock()
		p.used.Postgres += p.postgres.CPU().Seconds()
		p.mu.Unlock()
		s, err := services.StartPostgres(context.Background(), o)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.postgres = s
		p.mu.Unlock()
		if p.closing.Load() {
			_ = s.Close()
		}
		return s.Done(), nil
	})
}

func (p *Running) keepRedis(s *services.Redis, o services.RedisOptions) {
	p.adopt(func() { p.redis = s }, func() {
		p.mu.Lock()
		s := p.redis
		p.mu.Unlock()
		_ = s.Close()
	})
	go p.keep("redis", s.Done(), func() (<-chan struct{}, error) {
		p.mu.Lock()
		p.used.Redis += p.redis.CPU().Seconds()
		p.mu.Unlock()
		s, err := services.StartRedis(context.Background(), o)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.redis = s
		p.mu.Unlock()
		if p.closing.Load() {
			_ = s.Close()
		}
		return s.Done(), nil
	})
}

// adopt notes a started service and how it is stopped; services start in parallel.
func (p *Running) adopt(set, stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	p.OnClose(stop)
}

// natsProcess is the NATS server: inside this process, or with Processes one of
// its own, so that its processor time can be told apart.
type natsProcess struct {
	server *services.NATS
	cmd    *exec.Cmd
	url    string
	done   chan struct{}
}

func (p *Running) startNATS(ctx context.Context, o Options) error {
	dir := filepath.Join(p.Data, "nats")
	if !o.Processes {
		s, err := services.StartNATS(services.NATSOptions{Dir: dir})
		if err != nil {
			return err
		}
		p.NATSURL = s.URL()
		p.adopt(func() { p.nats = &natsProcess{server: s} }, func() { _ = s.Close() })
		return nil
	}
	run := o.Command
	if run == nil {
		run = command
	}
	n, err := spawnNATS(ctx, run, dir, 0)
	if err != nil {
		return err
	}
	p.NATSURL = n.url
	port, err := strconv.Atoi(n.url[strings.LastIndexByte(n.url, ':')+1:])
	if err != nil {
		return err
	}
	p.adopt(func() { p.nats = n }, func() {
		p.mu.Lock()
		n := p.nats
		p.mu.Unlock()
		n.stop()
	})
	go p.keep("nats", n.done, func() (<-chan struct{}, error) {
		n, err := spawnNATS(context.Background(), run, dir, port)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		old := p.nats.cmd.ProcessState
		p.used.NATS += (old.SystemTime() + old.UserTime()).Seconds()
		p.nats = n
		p.mu.Unlock()
		if p.closing.Load() {
			n.stop()
		}
		return n.done, nil
	})
	return nil
}

func spawnNATS(ctx context.Context, run func(string, ...string) *exec.Cmd, dir string, port int) (*natsProcess, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := run("nats", "--dir", dir, "--port", strconv.Itoa(port))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{write}
	err = services.Start(cmd, syscall.SIGTERM)
	write.Close()
	if err != nil {
		return nil, err
	}
	n := &natsProcess{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(n.done)
	}()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(read).ReadString('\n')
	if !stop() || err != nil {
		_ = cmd.Process.Kill()
		<-n.done
		return nil, fmt.Errorf("nats did not start: %w", err)
	}
	n.url = strings.TrimSpace(line)
	return n, nil
}

func (n *natsProcess) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(10 * time.Second):
		_ = n.cmd.Process.Kill()
		<-n.done
	}
}

// RunNATS is the NATS server's process: it says its URL on descriptor 3 and
// runs until ctx ends.
func RunNATS(ctx context.Context, dir string, port int) error {
	s, err := services.StartNATS(services.NATSOptions{Dir: dir, Port: port})
	if err != nil {
		return err
	}
	defer s.Close()
	tell := os.NewFile(3, "url")
	if _, err := fmt.Fprintln(tell, s.URL()); err != nil {
		return err
	}
	tell.Close()
	<-ctx.Done()
	return nil
}
