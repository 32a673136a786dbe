package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// workersWrite is how many requests the writes have at a time: several times the
// pool, as a replica under a rush.
const workersWrite = 32

// holdContest: a hold of two seats by number, against the bare driver doing a
// conditional UPDATE and an INSERT in one batch on the same tables.
func (g Ground) holdContest(ctx context.Context) (*contest, error) {
	owner, err := g.owner(ctx)
	if err != nil {
		return nil, err
	}
	if err := safe(ctx, owner); err != nil {
		owner.Close()
		return nil, err
	}
	var number atomic.Int64
	number.Store(2_000_000) // beyond what the sequence gives in a run
	ours := func(anyTwo bool) func(ctx context.Context) (func(context.Context, int) error, int, error) {
		return func(ctx context.Context) (func(context.Context, int) error, int, error) {
			m, err := g.makeSale(ctx, seatsASale, 0)
			if err != nil {
				return nil, 0, err
			}
			list := pairs(seatsASale)
			accounts, tokens, err := g.tokens(len(list))
			if err != nil {
				return nil, 0, err
			}
			admits, err := g.admits(m, accounts)
			if err != nil {
				return nil, 0, err
			}
			bodies := make([][]byte, len(list))
			for i, p := range list {
				b := map[string]any{"sale": m.sale, "class": class, "from": "0", "to": "1"}
				if anyTwo {
					b["quantity"] = party
				} else {
					b["seats"] = []string{m.names[p[0]-1], m.names[p[1]-1]}
				}
				if bodies[i], err = json.Marshal(b); err != nil {
					return nil, 0, err
				}
			}
			if err := vacuum(ctx, owner); err != nil {
				return nil, 0, err
			}
			most := len(list)
			if anyTwo {
				most /= 2 // the last seats are a race of their own
			}
			return func(ctx context.Context, i int) error {
				_, err := call(ctx, "hold", http.MethodPost, "", bodies[i], headers("Authorization", "Bearer "+tokens[i],
					"Admit-Token", admits[i], "Idempotency-Key", "1"), http.StatusCreated)
				return err
			}, most, nil
		}
	}
	limit := func(ctx context.Context) (func(context.Context, int) error, int, error) {
		m, err := g.makeSale(ctx, seatsASale, 0)
		if err != nil {
			return nil, 0, err
		}
		list := pairs(seatsASale)
		if err := vacuum(ctx, owner); err != nil {
			return nil, 0, err
		}
		return func(ctx context.Context, i int) error {
			n, until := number.Add(1), time.Now().Add(5*time.Minute)
			return bare(ctx, owner, bareHold, []any{m.id, list[i], 1, 1, until, n},
				[]any{m.id, n, fmt.Sprintf("bench-%09d", n), i + 1, class, 1, 1, list[i], party, "held", 5000, until})
		}, len(list), nil
	}
	return &contest{
		workers: workersWrite, rounds: 5, each: 2 * time.Second, close: owner.Close,
		what: "the bare driver: BEGIN, conditional UPDATE of the seats, INSERT booking, COMMIT in one batch",
		sides: []side{
			{"ours", ours(false), tree},
			{"limit", limit, tree},
			{"ours, any two", ours(true), tree},
		},
	}, nil
}
