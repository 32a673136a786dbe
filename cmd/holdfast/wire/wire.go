// Package wire is a lean HTTP/1.1 client for one host, for generating load on the
// machine that is under it.
package wire

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

// Limits of the client. A load shares the machine with what it loads, so the
// client keeps few connections and speaks HTTP/1.1 on them directly: net/http's
// Transport wakes two goroutines for each request, which at several thousand
// requests a second is most of what a load generator costs.
const (
	// maxBody bounds an answer that is read, in bytes; a layout of a few
	// thousand seats is the largest answer of the platform.
	maxBody = 8 << 20
	// requestTimeout is how long a caller waits for one answer.
	requestTimeout = 30 * time.Second
)

// Client is an HTTP/1.1 client for one host: a bounded pool of kept connections.
type Client struct {
	scheme string
	addr   string
	host   string
	base   string
	slots  chan struct{}

	mu   sync.Mutex
	free []*conn
}

type conn struct {
	net.Conn
	br   *bufio.Reader
	out  bytes.Buffer
	used bool
}

// Answer is one response, read to its end.
type Answer struct {
	Status     int
	Body       []byte
	Header     http.Header
	RetryAfter time.Duration // 0 where the answer says nothing
}

// OK says whether the status is 2xx.
func (a Answer) OK() bool { return a.Status >= 200 && a.Status < 300 }

// Header is one request header; a slice keeps the order and costs no map.
type Header struct{ Name, Value string }

// New makes a client for an address (http or https; a path is put before every
// request's) with at most conns connections.
func New(rawURL string, conns int) (*Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("wire: %q is not an http address", rawURL)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	base := u.Path
	for len(base) > 0 && base[len(base)-1] == '/' {
		base = base[:len(base)-1]
	}
	return &Client{scheme: u.Scheme, addr: addr, host: u.Host, base: base, slots: make(chan struct{}, conns)}, nil
}

// Do sends one request and reads its answer. sent is called with the moment
// the request has a connection and goes out, so that waiting for the client's
// own pool is counted as the load's lateness and not as the platform's time.
// A kept connection that the server had closed is replaced once, as browsers do.
func (w *Client) Do(ctx context.Context, method, path string, headers []Header, body []byte, sent func(time.Time)) (Answer, error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	defer func() { <-w.slots }()
	if sent != nil {
		sent(time.Now())
	}
	for {
		c, err := w.connection(ctx)
		if err != nil {
			return Answer{}, err
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
			return Answer{}, ctx.Err()
		}
		var timeout net.Error
		if kept && !begun && !(errors.As(err, &timeout) && timeout.Timeout()) {
			continue
		}
		return Answer{}, err
	}
}

func (w *Client) connection(ctx context.Context) (*conn, error) {
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
	return &conn{Conn: nc, br: bufio.NewReaderSize(nc, 4<<10)}, nil
}

func (w *Client) keep(c *conn) {
	c.used = true
	w.mu.Lock()
	w.free = append(w.free, c)
	w.mu.Unlock()
}

// Close ends the connections that are not in use.
func (w *Client) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.free {
		c.Close()
	}
	w.free = nil
}

// exchange writes one request and reads one answer. begun says whether a byte
// of the answer was seen, keep whether the connection may be used again.
func (w *Client) exchange(ctx context.Context, c *conn, method, path string, headers []Header, body []byte) (a Answer, begun, keep bool, err error) {
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
	b.WriteString("\r\nUser-Agent: holdfast\r\n")
	for _, h := range headers {
		b.WriteString(h.Name)
		b.WriteString(": ")
		b.WriteString(h.Value)
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
	a.Status, a.Header = res.StatusCode, res.Header
	if a.Body, err = io.ReadAll(io.LimitReader(res.Body, maxBody)); err != nil {
		return a, true, false, err
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		a.RetryAfter = time.Duration(s) * time.Second
	}
	return a, true, !res.Close, nil
}
