package rush

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/cmd/holdfast/services"
)

// Times of a failover. What was written within lag of it is lost with the old
// master, which goes on serving whoever is still connected for split.
const (
	lag   = 1500 * time.Millisecond
	split = 3 * time.Second
)

// Failover is a Redis with a lagging replica behind one address: what a
// fail-over by Sentinel or a cloud looks like to clients, at its worst.
type Failover struct {
	master, replica *services.Redis
	front           *switchboard // where the platform's clients connect
	link            *switchboard // the replica's way to its master
	password        string
}

// NewFailover starts both servers in folders below dir.
func NewFailover(ctx context.Context, dir string) (_ *Failover, err error) {
	f := &Failover{}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.master, err = services.StartRedis(ctx, services.RedisOptions{Dir: filepath.Join(dir, "redis-1"), Persist: true}); err != nil {
		return nil, err
	}
	f.password = f.master.Password
	if f.link, err = listen(local(f.master.Port)); err != nil {
		return nil, err
	}
	if f.front, err = listen(local(f.master.Port)); err != nil {
		return nil, err
	}
	f.replica, err = services.StartRedis(ctx, services.RedisOptions{
		Dir: filepath.Join(dir, "redis-2"), Persist: true, ReplicaOf: f.link.port(), Password: f.password,
	})
	return f, err
}

// URL is the address for the platform.
func (f *Failover) URL() string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword("", f.password), Host: local(f.front.port()), Path: "/0"}).String()
}

// Promote lets the replica fall behind, makes it a master while the old one
// still serves, moves half of the connections over, and the rest after a while.
func (f *Failover) Promote(ctx context.Context, tell func(string, ...any)) error {
	f.link.stall()
	if !sleepUntil(ctx, time.Now().Add(lag)) {
		return ctx.Err()
	}
	r := redis.NewClient(&redis.Options{Addr: local(f.replica.Port), Password: f.password})
	defer r.Close()
	if err := r.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		return fmt.Errorf("promote the replica: %w", err)
	}
	f.front.point(local(f.replica.Port))
	cut := f.front.cut(2)
	tell("a replica of Redis that was %.1f s behind took over; the old master went on serving the other half of %d connections", lag.Seconds(), cut)
	if !sleepUntil(ctx, time.Now().Add(split)) {
		return ctx.Err()
	}
	f.front.cut(1)
	tell("the old master of Redis was cut off")
	return nil
}

// Close stops both servers.
func (f *Failover) Close() {
	for _, s := range []*switchboard{f.front, f.link} {
		if s != nil {
			s.close()
		}
	}
	for _, r := range []*services.Redis{f.replica, f.master} {
		if r != nil {
			_ = r.Close()
		}
	}
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// switchboard passes TCP connections on to one server, and new ones to another
// after point.
type switchboard struct {
	l       net.Listener
	target  atomic.Pointer[string]
	stalled atomic.Bool

	mu     sync.Mutex
	conns  map[int]net.Conn
	moved  map[int]bool // connections made before the last point
	number int
}

func listen(target string) (*switchboard, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &switchboard{l: l, conns: map[int]net.Conn{}, moved: map[int]bool{}}
	s.target.Store(&target)
	go s.accept()
	return s, nil
}

func (s *switchboard) port() int { return s.l.Addr().(*net.TCPAddr).Port }

func (s *switchboard) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		go s.pass(c)
	}
}

func (s *switchboard) pass(c net.Conn) {
	defer c.Close()
	to, err := net.DialTimeout("tcp", *s.target.Load(), 2*time.Second)
	if err != nil {
		return
	}
	defer to.Close()
	s.mu.Lock()
	s.number++
	n := s.number
	s.conns[n] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, n)
		delete(s.moved, n)
		s.mu.Unlock()
	}()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, to}, {to, c}} {
		go func() {
			s.copy(way[1], way[0])
			done <- struct{}{}
		}()
	}
	<-done
}

// copy passes bytes on; while stalled nothing passes and nothing breaks.
func (s *switchboard) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !s.stalled.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// stall lets bytes vanish from now on.
func (s *switchboard) stall() { s.stalled.Store(true) }

// point sends new connections elsewhere.
func (s *switchboard) point(target string) {
	s.target.Store(&target)
	s.mu.Lock()
	for n := range s.conns {
		s.moved[n] = true
	}
	s.mu.Unlock()
}

// cut ends every nth of the connections made before the last point, and says
// how many there were.
func (s *switchboard) cut(nth int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	for n := range s.moved {
		if i%nth == 0 {
			if c := s.conns[n]; c != nil {
				c.Close()
			}
		}
		i++
	}
	return i
}

func (s *switchboard) close() {
	s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}
