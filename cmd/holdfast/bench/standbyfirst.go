package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// waitingOrders is how many wait in the sale of standby-first, over all intervals
// of its route.
const waitingOrders = 10_000

// standbyFirst is the least ratio of what a hold costs in a sale where nobody waits
// to what it costs where many do: at most 15 % more processor time (issue 3).
const standbyFirst = 1 / 1.15

// waitedSeats is the size of both sales: enough for a turn of two seats each.
const waitedSeats = 4_000

// standbyFirstContest: holds in a sale in which 10,000 orders wait over all
// intervals, against the same holds in a sale in which nobody does.
func (g Ground) standbyFirstContest(ctx context.Context) (*contest, error) {
	owner, err := g.owner(ctx)
	if err != nil {
		return nil, err
	}
	if err := safe(ctx, owner); err != nil {
		owner.Close()
		return nil, err
	}
	var all []interval
	for from := 1; from <= routeLegs; from++ {
		for to := from; to <= routeLegs; to++ {
			all = append(all, interval{from, to})
		}
	}
	holds := func(waiting int, anyTwo bool) func(ctx context.Context) (func(context.Context, int) error, int, error) {
		return func(ctx context.Context) (func(context.Context, int) error, int, error) {
			m, err := g.makeRoute(ctx, waitedSeats, routeLegs, party, 0)
			if err != nil {
				return nil, 0, err
			}
			if waiting > 0 {
				each := waiting / len(all)
				if err := queueUp(ctx, owner, m.id, all, waiting-each*(len(all)-1), each); err != nil {
					return nil, 0, err
				}
			}
			list := pairs(waitedSeats)
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
				iv := all[i%len(all)]
				b := map[string]any{"sale": m.sale, "class": class, "from": strconv.Itoa(iv.from - 1), "to": strconv.Itoa(iv.to)}
				if anyTwo {
					b["quantity"] = party
				} else {
					b["seats"] = []string{m.names[p[0]-1], m.names[p[1]-1]}
				}
				if bodies[i], err = json.Marshal(b); err != nil {
					return nil, 0, err
				}
			}
			for _, table := range []string{"standby_queue", "standby_order", "account_sale"} {
				if _, err := owner.Exec(ctx, "VACUUM ANALYZE "+table); err != nil {
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
	return &contest{
		workers: workersWrite, rounds: 7, each: 2 * time.Second, byCost: true, close: owner.Close,
		what: "the same holds in a sale in which nobody waits",
		sides: []side{
			{"ours", holds(waitingOrders, false), tree},
			{"limit", holds(0, false), tree},
			{"any two", holds(waitingOrders, true), tree},
			{"any two, nobody waits", holds(0, true), tree},
		},
	}, nil
}
