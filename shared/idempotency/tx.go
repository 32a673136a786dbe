package idempotency

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

//go:embed tx.sql
var txFile string

var txSQL = store.Queries(txFile)

// DoTx is Do for a change of one sale that is one transaction: key, change and
// answer commit together, so that there is nothing to recover. A refusal undoes
// the change and is kept. f may be run again after a deadlock.
func (s *Store) DoTx(ctx context.Context, c Call, f func(ctx context.Context, tx pgx.Tx) (int, any, error)) (Answer, error) {
	var answer Answer
	var no error
	err := s.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		answer, no = Answer{}, nil
		var ours bool
		err := tx.QueryRow(ctx, sql["begin"], c.Sale, c.Account, c.Function, c.Key, c.Hash, time.Duration(0)).Scan(&ours)
		if store.IsNoRows(err) {
			answer, no, err = lookTx(ctx, tx, c)
			return err
		}
		if err != nil {
			return err
		}
		var status int
		var body any
		err = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) (err error) {
			status, body, err = f(ctx, inner)
			return err
		})
		var p *problem.Error
		switch {
		case err == nil:
		case errors.As(err, &p) && final(p.Code.Status()):
			no = p
			status, body = p.Code.Status(), refusal{p.Code, p.Format, p.Args, p.Fields}
		default:
			return err
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("idempotency: answer of %s: %w", c.Function, err)
		}
		answer = Answer{Status: status, Body: raw}
		_, err = tx.Exec(ctx, sql["finish"], c.Sale, c.Account, c.Function, c.Key, status, raw)
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	return answer, no
}

// lookTx gives the kept answer of a key that is not ours to run.
func lookTx(ctx context.Context, tx pgx.Tx, c Call) (answer Answer, refused, err error) {
	var hash []byte
	var status *int
	var body json.RawMessage
	var running *bool
	if err := tx.QueryRow(ctx, sql["look"], c.Sale, c.Account, c.Function, c.Key).Scan(&hash, &status, &body, &running); err != nil {
		return Answer{}, nil, err
	}
	switch {
	case string(hash) != string(c.Hash):
		return Answer{}, problem.New(problem.IdempotencyMismatch, "This Idempotency-Key was used with another body."), nil
	case status == nil:
		return Answer{}, problem.New(problem.InProgress, "The same request is still being worked on.").After(time.Second), nil
	}
	answer, refused = row{Answer{Status: *status, Body: body}}.answer()
	return answer, refused, nil
}

// Plan reads, inside a run of Do, the recovery point of a run before it that
// died; false where there is none.
func (s *Store) Plan(ctx context.Context, c Call, into any) (bool, error) {
	var raw json.RawMessage
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, txSQL["plan"], c.Sale, c.Account, c.Function, c.Key).Scan(&raw)
	})
	if store.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(raw, into)
}

// SavePlan writes, inside a run of Do, a recovery point: what has been given out
// so far and must not be given out again.
func (s *Store) SavePlan(ctx context.Context, c Call, plan any) error {
	raw, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, txSQL["save-plan"], c.Sale, c.Account, c.Function, c.Key, raw)
		return err
	})
}
