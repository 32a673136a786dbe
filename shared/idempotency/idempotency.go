// Package idempotency makes a request that is sent twice have one effect and one
// answer (law 5), for requests that call the outside between two transactions.
// Those that are one SQL function keep their row themselves.
//
//	kept, err := keys.Do(ctx, call, func(ctx context.Context) (int, any, error) { … })
//
// A row is kept 24 hours by (sale, account, function, key).
package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

//go:embed idempotency.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Lease is how long a request may run before the same one may be taken up by a
// retry. It is as long as a function may run at all, so two never run at a time
// and a crash blocks a key no longer than this (field case 27).
const Lease = 10 * time.Second

// Kept is how long an answer is kept.
const Kept = 24 * time.Hour

// Limits of the dropping of old rows.
const (
	dropBatch = 500 // rows of one statement
	dropMost  = 20  // statements of one Sweep
	maxSales  = 1000
)

// Call names one request.
type Call struct {
	Sale     int64 // 0 where the request makes the sale
	Account  string
	Function string
	Key      string // Idempotency-Key
	Hash     []byte // of the input, see Hash
}

// Hash is the hash of a request's body.
func Hash(body []byte) []byte {
	h := sha256.Sum256(body)
	return h[:]
}

// Answer is what a request is answered with. Replay says that it was given
// before and this is the same again.
type Answer struct {
	Status int
	Body   json.RawMessage
	Replay bool
}

// Store keeps the rows. It is safe for concurrent use.
type Store struct{ db *store.DB }

// New makes a Store.
func New(db *store.DB) *Store { return &Store{db: db} }

// refusal is a kept problem, in no language yet.
type refusal struct {
	Code   problem.Code    `json:"code"`
	Format string          `json:"format"`
	Args   []any           `json:"args,omitempty"`
	Fields []problem.Field `json:"fields,omitempty"`
}

// Do runs f once for a call and keeps its answer, or gives the kept one. f
// returns a status with a body to be written as JSON, or an error: a 4xx problem
// other than 429 is kept and comes again as the same error (with Replay set);
// for anything else the key is freed and a retry runs f again, so f must go on
// from its recovery points. Errors of Do itself: idempotency-mismatch,
// in-progress, unavailable.
func (s *Store) Do(ctx context.Context, c Call, f func(ctx context.Context) (int, any, error)) (Answer, error) {
	kept, err := s.begin(ctx, c)
	if err != nil || kept != nil {
		if err == nil {
			return kept.answer()
		}
		return Answer{}, err
	}
	status, body, err := run(ctx, f)
	var p *problem.Error
	switch {
	case err == nil:
	case errors.As(err, &p) && final(p.Code.Status()):
		status, body = p.Code.Status(), refusal{p.Code, p.Format, p.Args, p.Fields}
	default:
		s.end(ctx, sql["let-go"], c.Sale, c.Account, c.Function, c.Key)
		return Answer{}, err
	}
	raw, merr := json.Marshal(body)
	if merr != nil {
		return Answer{}, fmt.Errorf("idempotency: answer of %s: %w", c.Function, merr)
	}
	s.end(ctx, sql["finish"], c.Sale, c.Account, c.Function, c.Key, status, raw)
	return Answer{Status: status, Body: raw}, err
}

// run frees the key of a run that panicked.
func run(ctx context.Context, f func(ctx context.Context) (int, any, error)) (status int, body any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f(ctx)
}

// final says whether a refusal would be the same again: never a 429 or 5xx.
func final(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests
}

// row is what is kept.
type row struct {
	Answer
}

func (r row) answer() (Answer, error) {
	a := r.Answer
	a.Replay = true
	if a.Status < 400 {
		return a, nil
	}
	var no refusal
	if err := json.Unmarshal(a.Body, &no); err != nil {
		return Answer{}, fmt.Errorf("idempotency: a kept refusal: %w", err)
	}
	for i := range no.Fields {
		no.Fields[i].Args = numbers(no.Fields[i].Args)
	}
	return a, &problem.Error{Code: no.Code, Format: no.Format, Args: numbers(no.Args), Fields: no.Fields, Replay: true}
}

// numbers makes whole numbers of what JSON made floats, for the formats' %d.
func numbers(args []any) []any {
	for i, a := range args {
		if f, ok := a.(float64); ok && f == float64(int64(f)) {
			args[i] = int64(f)
		}
	}
	return args
}

// begin takes the key for this run (nil, nil), or gives the kept answer.
func (s *Store) begin(ctx context.Context, c Call) (*row, error) {
	var kept *row
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		kept = nil
		var ours bool
		err := q.QueryRow(ctx, sql["begin"], c.Sale, c.Account, c.Function, c.Key, c.Hash, Lease).Scan(&ours)
		if err == nil || !store.IsNoRows(err) {
			return err
		}
		var (
			hash    []byte
			status  *int
			body    json.RawMessage
			running *bool
		)
		err = q.QueryRow(ctx, sql["look"], c.Sale, c.Account, c.Function, c.Key).Scan(&hash, &status, &body, &running)
		switch {
		case store.IsNoRows(err): // dropped between the two statements
			return problem.New(problem.InProgress, "The same request is still being worked on.").After(time.Second)
		case err != nil:
			return err
		case !bytes.Equal(hash, c.Hash):
			return problem.New(problem.IdempotencyMismatch, "This Idempotency-Key was used with another body.")
		case status == nil:
			return problem.New(problem.InProgress, "The same request is still being worked on.").After(time.Second)
		}
		kept = &row{Answer{Status: *status, Body: body}}
		return nil
	})
	return kept, err
}

// end writes what came of a run even when its caller has gone away. If that
// fails the lease ends by itself and a retry goes on from the recovery points.
func (s *Store) end(ctx context.Context, statement string, args ...any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, statement, args...)
		return err
	})
	if err != nil {
		slog.WarnContext(ctx, "idempotency row not finished", "error", err)
	}
}

// Sweep drops rows older than a day, at most some thousands, in small
// statements. It returns how many.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	var sales []int64
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["old-sales"], Kept, maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, err
	}
	dropped, statements := 0, 0
	for _, sale := range sales {
		for statements < dropMost {
			statements++
			var n int
			err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
				tag, err := q.Exec(ctx, sql["drop-old"], sale, Kept, dropBatch)
				n = int(tag.RowsAffected())
				return err
			})
			if err != nil {
				return dropped, err
			}
			dropped += n
			if n < dropBatch {
				break
			}
		}
	}
	return dropped, nil
}
