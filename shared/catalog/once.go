package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

// leaseTime is how long a request that makes a sale may run before a repeated
// one takes up its work: longer than a function's time-out.
const leaseTime = 30 * time.Second

// Caller is the organiser who asks, and in whose name a key counts.
type Caller struct {
	Account string
	Org     string
	Key     string // Idempotency-Key
	Hash    []byte // of the body
}

// Answer of a POST. Replay: it was given before.
type Answer struct {
	Status int
	Body   json.RawMessage
	Replay bool
}

// stored is what the table keeps in `answer`: a body, a refusal, or, while the
// request runs, its plan.
type stored struct {
	Body    json.RawMessage `json:"body,omitempty"`
	Refusal *refusal        `json:"refusal,omitempty"`
	Plan    *plan           `json:"plan,omitempty"`
}

// plan is the recovery point of making a sale.
type plan struct {
	Sale int64 `json:"sale,omitempty"`
	Room int64 `json:"room,omitempty"`
}

// refusal is a problem that can be answered again in any language.
type refusal struct {
	Code   problem.Code    `json:"code"`
	Format string          `json:"format"`
	Args   []any           `json:"args,omitempty"`
	Fields []problem.Field `json:"fields,omitempty"`
}

// refused says whether err is a decision that a repeated request must get again:
// never "too many requests", nor anything that is ours.
func refused(err error) (*problem.Error, bool) {
	var p *problem.Error
	if !errors.As(err, &p) || p.Code.Status() >= http.StatusInternalServerError || p.Code == problem.TooManyRequests || p.Code == problem.InProgress {
		return nil, false
	}
	return p, true
}

func (r *refusal) problem() *problem.Error {
	p := problem.New(r.Code, r.Format, numbers(r.Args)...)
	for _, f := range r.Fields {
		p.And(f.Field, f.Format, numbers(f.Args)...)
	}
	return p
}

// numbers makes whole numbers out of JSON's, for %d.
func numbers(args []any) []any {
	for i, a := range args {
		if n, ok := a.(json.Number); ok {
			if whole, err := n.Int64(); err == nil {
				args[i] = whole
			}
		}
	}
	return args
}

// claim looks a key up and takes it. done is set when it has its answer, or its
// refusal as the error; else the caller does the work, from the plan on.
func claim(ctx context.Context, tx pgx.Tx, saleID int64, who Caller, lease time.Duration) (done *Answer, p plan, err error) {
	var fresh bool
	err = tx.QueryRow(ctx, sql["claim"], saleID, who.Account, who.Key, who.Hash, lease).Scan(&fresh)
	if err == nil || !store.IsNoRows(err) {
		return nil, p, err
	}
	var hash, answer []byte
	var status int
	var running bool
	if err := tx.QueryRow(ctx, sql["claimed"], saleID, who.Account, who.Key).Scan(&hash, &status, &answer, &running); err != nil {
		return nil, p, err
	}
	if !bytes.Equal(hash, who.Hash) {
		return nil, p, problem.New(problem.IdempotencyMismatch, "This Idempotency-Key was used with another body.")
	}
	var kept stored
	in := json.NewDecoder(bytes.NewReader(answer))
	in.UseNumber()
	if err := in.Decode(&kept); err != nil {
		return nil, p, err
	}
	switch {
	case kept.Refusal != nil:
		return &Answer{Replay: true}, p, kept.Refusal.problem()
	case status != 0:
		return &Answer{Status: status, Body: kept.Body, Replay: true}, p, nil
	case running:
		return nil, p, problem.New(problem.InProgress, "This request is still being worked on.")
	}
	if kept.Plan != nil {
		p = *kept.Plan
	}
	_, err = tx.Exec(ctx, sql["reclaim"], saleID, who.Account, who.Key, lease)
	return nil, p, err
}

// finish stores the answer or refusal of a claimed key and gives it back as it
// will be given again.
func finish(ctx context.Context, q store.Querier, saleID int64, who Caller, status int, body any, refused *problem.Error) (Answer, error) {
	var keep stored
	if refused != nil {
		status = refused.Code.Status()
		keep.Refusal = &refusal{Code: refused.Code, Format: refused.Format, Args: refused.Args, Fields: refused.Fields}
	} else {
		b, err := json.Marshal(body)
		if err != nil {
			return Answer{}, err
		}
		keep.Body = b
	}
	b, err := json.Marshal(keep)
	if err != nil {
		return Answer{}, err
	}
	var back []byte
	if err := q.QueryRow(ctx, sql["answer"], saleID, who.Account, who.Key, status, b).Scan(&back); err != nil {
		return Answer{}, err
	}
	if refused != nil {
		return Answer{}, nil
	}
	keep = stored{}
	if err := json.Unmarshal(back, &keep); err != nil {
		return Answer{}, err
	}
	return Answer{Status: status, Body: keep.Body}, nil
}

// inSale does a change of one sale once, in one transaction with its key. A
// refusal undoes the change and is kept.
func (s *Service) inSale(ctx context.Context, saleID int64, who Caller, change func(ctx context.Context, tx pgx.Tx) (body any, err error)) (Answer, error) {
	var answer Answer
	var no error
	err := s.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		answer, no = Answer{}, nil
		done, _, err := claim(ctx, tx, saleID, who, 0)
		if done != nil {
			answer, no = *done, err
			return nil
		}
		if err != nil {
			return err
		}
		var body any
		err = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) (err error) {
			body, err = change(ctx, inner)
			return err
		})
		p, isRefusal := refused(err)
		if err != nil && !isRefusal {
			return err
		}
		if isRefusal {
			no = p
		}
		answer, err = finish(ctx, tx, saleID, who, http.StatusOK, body, p)
		return err
	})
	if err == nil {
		err = no
	}
	s.reader.Forget(saleID)
	return answer, err
}

// acrossTransactions does work that needs more than one transaction: the key is
// claimed for leaseTime, and work goes on from the plan that an earlier try
// left.
func (s *Service) acrossTransactions(ctx context.Context, who Caller, status int, work func(p plan, keep func(plan) error) (body any, err error)) (Answer, error) {
	var done *Answer
	var p plan
	var no error
	err := s.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		no = nil
		done, p, err = claim(ctx, tx, noSaleYet, who, leaseTime)
		if done != nil {
			no, err = err, nil
		}
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	if done != nil {
		return *done, no
	}
	body, err := work(p, func(p plan) error {
		b, err := json.Marshal(stored{Plan: &p})
		if err != nil {
			return err
		}
		return s.exec(ctx, "plan", noSaleYet, who.Account, who.Key, b)
	})
	refusal, isRefusal := refused(err)
	if err != nil && !isRefusal {
		// Not decided: the same request may be sent again at once.
		if free := s.exec(context.WithoutCancel(ctx), "forget", noSaleYet, who.Account, who.Key); free != nil {
			return Answer{}, errors.Join(err, free)
		}
		return Answer{}, err
	}
	var answer Answer
	if storing := s.db.Do(ctx, func(ctx context.Context, q store.Querier) (e error) {
		answer, e = finish(ctx, q, noSaleYet, who, status, body, refusal)
		return e
	}); storing != nil {
		return Answer{}, storing
	}
	return answer, err
}

// noSaleYet stands for the sale in keys of requests that make one.
const noSaleYet = 0

func (s *Service) exec(ctx context.Context, name string, args ...any) error {
	return s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, sql[name], args...)
		return err
	})
}
