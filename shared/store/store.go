// Package store is Postgres as every other package sees it: one small pool a
// process, a circuit breaker, retries of deadlocks and serialisation errors,
// named SQL, and one place that reads SQLSTATEs.
package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"handler/function/shared/problem"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sony/gobreaker/v2"
)

// Limits of a replica. The connection budget is stated in docs/operate.md.
const (
	poolMax          = 4                // connections a replica (DESIGN section 5)
	breakerFailures  = 5                // failures in a row that open the breaker
	breakerOpen      = 2 * time.Second  // how long it stays open
	retries          = 2                // of a deadlock or serialisation error (law 2)
	retryAfter       = 2 * time.Second  // told to a caller while Postgres is away
	statementTimeout = 10 * time.Second // of any statement of a function
)

// Querier is what both the pool and a transaction can do.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// DB is the process's way to Postgres.
type DB struct {
	pool    *pgxpool.Pool
	breaker *gobreaker.CircuitBreaker[struct{}]
}

// Open makes the pool without connecting: a function starts while Postgres is
// away. dsn is a libpq URL; `default_query_exec_mode` in it suits PgBouncer.
func Open(dsn string) (*DB, error) { return OpenSize(dsn, poolMax) }

// OpenSize is Open with a pool of at most size connections (1 to 64), for the
// workbench, where one process serves every function.
func OpenSize(dsn string, size int32) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("store: postgres-url: %w", err)
	}
	cfg.MaxConns = size
	cfg.ConnConfig.ConnectTimeout = 2 * time.Second
	cfg.MaxConnIdleTime = 5 * time.Minute
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return New(pool), nil
}

// New wraps a pool that the caller made; tests use it.
func New(pool *pgxpool.Pool) *DB {
	return &DB{pool: pool, breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "postgres",
		Timeout:     breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool {
			return !Unreachable(err)
		},
	})}
}

// Close ends every connection.
func (db *DB) Close() { db.pool.Close() }

// Pool is the pool itself, for COPY and tests.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }

// Down says whether the breaker is open: Postgres was away a moment ago.
func (db *DB) Down() bool { return db.breaker.State() == gobreaker.StateOpen }

// Do runs f on the pool, behind the breaker, and again (at most twice) after a
// deadlock or serialisation error. f must be one statement or function call,
// or be safe to run again. Postgres away is problem.Unavailable.
func (db *DB) Do(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return db.run(ctx, func(ctx context.Context) error { return f(ctx, db.pool) })
}

// Tx runs f in one READ COMMITTED transaction under the same rules as Do; f
// must touch one sale (law 8) and call nothing outside Postgres (law 9).
func (db *DB) Tx(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return db.run(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}

func (db *DB) run(ctx context.Context, f func(ctx context.Context) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := db.breaker.Execute(func() (struct{}, error) {
		var err error
		for range retries + 1 {
			if err = f(ctx); !retryable(err) {
				break
			}
		}
		return struct{}{}, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) || Unreachable(err) {
		return problem.New(problem.Unavailable, "Under maintenance, you keep your place").After(retryAfter).Because(err)
	}
	return err
}

// Deadlock says whether Postgres ended a transaction because it and others waited
// for each other. Do and Tx have tried again by then.
func Deadlock(err error) bool { return State(err) == "40P01" }

func retryable(err error) bool { return Deadlock(err) || State(err) == "40001" }

// State is the SQLSTATE of an error, "" for none. Constraint names are never
// asked: they differ on a distributed table (SQL rule 6).
func State(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// IsNoRows says whether a single row was asked for and there was none.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Unreachable says whether err means that Postgres is away rather than that it
// refused: no connection, shutting down, starting, read-only, too many
// connections, or out of time.
func Unreachable(err error) bool {
	if err == nil {
		return false
	}
	switch code := State(err); {
	case strings.HasPrefix(code, "08"), code == "57P01", code == "57P02", code == "57P03", code == "53300",
		code == "25006", // read-only: a standby that is not promoted yet
		code == "25P03": // idle in a transaction for too long: the connection was ended
		return true
	case code != "":
		return false
	}
	var connect *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connect) || errors.As(err, &netErr) ||
		errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) ||
		strings.Contains(err.Error(), "unexpected EOF") || strings.Contains(err.Error(), "conn closed") ||
		strings.Contains(err.Error(), "connection reset")
}

// Queries reads a .sql file of named statements, each after a line
// `-- name: Name`, into a map. A file that names one twice panics: it is ours.
func Queries(file string) map[string]string {
	all := map[string]string{}
	name := ""
	for _, line := range strings.Split(file, "\n") {
		if n, ok := strings.CutPrefix(line, "-- name: "); ok {
			name = strings.TrimSpace(n)
			if _, twice := all[name]; twice {
				panic("store: the statement " + name + " is named twice")
			}
			all[name] = ""
			continue
		}
		if name != "" {
			all[name] += line + "\n"
		}
	}
	return all
}
