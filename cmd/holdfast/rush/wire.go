package rush

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Limits of the client. The crowd shares the machine with what it loads, so the
// client keeps few connections and speaks HTTP/1.1 on them directly: net/http's
// Transport wakes two goroutines for each request, which at several thousand
// requests a second is most of what a load generator costs.
const (
	// maxBody bounds an answer that is read, in bytes; a layout of a few
	// thousand seats is the largest answer the crowd asks for.
	maxBody = 8 << 20
	// requestTimeout is how long a person waits for one answer.
	requestTimeout = 30 * time.Second
)

// wire is an HTTP/1.1 client for one host: a bounded pool of kept connections.
type wire struct {
	scheme string
	addr   string
	host   string
	base   string
	slots  chan struct{}

	mu   sync.Mutex
	free []*wireConn
}

type wireConn struct {
	net.Conn
	br   *bufio.Reader
	out  bytes.Buffer
	used bool
}

// answer is one response, read to its end. trace is the answer's X-Trace-Id.
type answer struct {
	status     int
	body       []byte
	header     http.Header
	retryAfter time.Duration
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// header is one request header; a slice keeps the order and costs no map.
type header struct{ name, value string }

func newWire(rawURL string, conns int) (*wire, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("rush: %q is not an http address", rawURL)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	base := u.Path
	for len(base) > 0 && base[len(base)-1] == '/' {
		base = base[:len(base)-1]
	}
	return &wire{scheme: u.Scheme, addr: addr, host: u.Host, base: base, slots: make(chan struct{}, conns)}, nil
}

// do sends one request and reads its answer. sent is called with the moment
// the request has a connection and goes out, so that waiting for the client's
// own pool is counted as the load's lateness and not as the platform's time.
// A kept connection that the server had closed is replaced once, as browsers do.
func (w *wire) do(ctx context.Context, method, path string, headers []header, body []byte, sent func(time.Time)) (answer, error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	defer func() { <-w.slots }()
	if sent != nil {
		sent(time.Now())
	}
	for {
		c, err := w.conn(ctx)
		if err != nil {
			return answer{}, err
		}
		kept := c.used
		a, begun, keep, err := w.exchange(ctx, c, method, path, headers, body)
		if err == nil {
			if keep {
				w.keep(c)
			} else {
				c.Close()
			}
			return a, nil
		}
		c.Close()
		if ctx.Err() != nil {
			return answer{}, ctx.Err()
		}
		var timeout net.Error
		if kept && !begun && !(errors.As(err, &timeout) && timeout.Timeout()) {
			continue
		}
		return answer{}, err
	}
}

func (w *wire) conn(ctx context.Context) (*wireConn, error) {
	w.mu.Lock()
	if n := len(w.free); n > 0 {
		c := w.free[n-1]
		w.free = w.free[:n-1]
		w.mu.Unlock()
		return c, nil
	}
	w.mu.Unlock()
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", w.addr)
	if err != nil {
		return nil, err
	}
	if w.scheme == "https" {
		name, _, _ := net.SplitHostPort(w.addr)
		nc = tls.Client(nc, &tls.Config{ServerName: name})
	}
	return &wireConn{Conn: nc, br: bufio.NewReaderSize(nc, 4<<10)}, nil
}

func (w *wire) keep(c *wireConn) {
	c.used = true
	w.mu.Lock()
	w.free = append(w.free, c)
	w.mu.Unlock()
}

func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.free {
		c.Close()
	}
	w.free = nil
}

// exchange writes one request and reads one answer. begun says whether a byte
// of the answer was seen, keep whether the connection may be used again.
func (w *wire) exchange(ctx context.Context, c *wireConn, method, path string, headers []header, body []byte) (a answer, begun, keep bool, err error) {
	deadline := time.Now().Add(requestTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.SetDeadline(deadline); err != nil {
		return a, false, false, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	b := &c.out
	b.Reset()
	b.WriteString(method)
	b.WriteByte(' ')
	b.WriteString(w.base)
	b.WriteString(path)
	b.WriteString(" HTTP/1.1\r\nHost: ")
	b.WriteString(w.host)
	b.WriteString("\r\nUser-Agent: holdfast-rush\r\n")
	for _, h := range headers {
		b.WriteString(h.name)
		b.WriteString(": ")
		b.WriteString(h.value)
		b.WriteString("\r\n")
	}
	if method != http.MethodGet {
		b.WriteString("Content-Type: application/json\r\nContent-Length: ")
		b.WriteString(strconv.Itoa(len(body)))
		b.WriteString("\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	if _, err := c.Write(b.Bytes()); err != nil {
		return a, false, false, err
	}
	if _, err := c.br.Peek(1); err != nil {
		return a, false, false, err
	}
	res, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return a, true, false, err
	}
	defer res.Body.Close()
	a.status, a.header = res.StatusCode, res.Header
	if a.body, err = io.ReadAll(io.LimitReader(res.Body, maxBody)); err != nil {
		return a, true, false, err
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		a.retryAfter = time.Duration(s) * time.Second
	}
	return a, true, !res.Close, nil
}
