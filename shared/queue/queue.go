// Package queue is Redis as every other package sees it: queues, counters and
// caches that only hint (law 1). Everything kept here can be made again from
// Postgres or a stream.
package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

const (
	breakerFailures = 5
	breakerOpen     = time.Second
	dialTimeout     = 500 * time.Millisecond
	ioTimeout       = time.Second
)

// ErrDown means that Redis is away, or was a moment ago and is not asked now.
var ErrDown = errors.New("queue: redis is away")

// Client is the process's way to Redis, behind a circuit breaker.
type Client struct {
	rdb     redis.UniversalClient
	breaker *gobreaker.CircuitBreaker[struct{}]
}

// Open makes a client without connecting. url is redis://… or several
// addresses of a cluster separated by commas.
func Open(url string) (*Client, error) {
	first, _, _ := strings.Cut(url, ",")
	one, err := redis.ParseURL(first)
	if err != nil {
		return nil, fmt.Errorf("queue: redis-url: %w", err)
	}
	opt := &redis.UniversalOptions{
		Addrs: []string{one.Addr}, DB: one.DB, Username: one.Username, Password: one.Password, TLSConfig: one.TLSConfig,
		DialTimeout: dialTimeout, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
		MaxRetries: -1, DialerRetries: 1, PoolSize: 16, ContextTimeoutEnabled: true,
	}
	for _, other := range strings.Split(url, ",")[1:] {
		o, err := redis.ParseURL(other)
		if err != nil {
			return nil, fmt.Errorf("queue: redis-url: %w", err)
		}
		opt.Addrs = append(opt.Addrs, o.Addr)
	}
	return New(redis.NewUniversalClient(opt)), nil
}

// New wraps a client that the caller made; tests use it.
func New(rdb redis.UniversalClient) *Client {
	return &Client{rdb: rdb, breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "redis",
		Timeout:     breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool {
			return err == nil || errors.Is(err, redis.Nil) || answered(err)
		},
	})}
}

// answered says whether the error is Redis's own reply, so Redis is there.
// LOADING, READONLY and MASTERDOWN are replies of a server that cannot serve.
func answered(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, p := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN"} {
		if strings.HasPrefix(reply.Error(), p) {
			return false
		}
	}
	return true
}

// Close ends every connection.
func (c *Client) Close() error { return c.rdb.Close() }

// Redis is the client itself, for tests and for what has a breaker already.
func (c *Client) Redis() redis.UniversalClient { return c.rdb }

// Down says whether Redis was away a moment ago.
func (c *Client) Down() bool { return c.breaker.State() == gobreaker.StateOpen }

// Do runs f behind the breaker. While Redis is away the error is ErrDown
// (wrapped, with its cause); redis.Nil and script errors come through.
func (c *Client) Do(ctx context.Context, f func(ctx context.Context, rdb redis.UniversalClient) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	_, err := c.breaker.Execute(func() (struct{}, error) { return struct{}{}, f(ctx, c.rdb) })
	if err == nil || errors.Is(err, redis.Nil) || answered(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDown, err)
}

// Key builds a key whose hash tag is tag, so that all keys of a sale (or room)
// stand on one node of a cluster: {sale:12}:map:v1.
func Key(tag string, parts ...string) string {
	return "{" + tag + "}:" + strings.Join(parts, ":")
}

// SaleTag and RoomTag are the hash tags.
func SaleTag(sale int64) string { return fmt.Sprintf("sale:%d", sale) }

// RoomTag is the hash tag of a room's keys.
func RoomTag(room int64) string { return fmt.Sprintf("room:%d", room) }
