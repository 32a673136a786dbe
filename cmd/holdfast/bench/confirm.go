package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"handler/function/cmd/holdfast/wire"
	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
)

// confirms is how many payments a turn of confirm has; each is made by hold and
// pay before the turn, which takes longer than the turn.
const confirms = 2000

// confirmContest: a gateway's webhook that books two held seats, against the
// bare driver moving them from held to booked.
func (g Ground) confirmContest(ctx context.Context) (*contest, error) {
	owner, err := g.owner(ctx)
	if err != nil {
		return nil, err
	}
	if err := safe(ctx, owner); err != nil {
		owner.Close()
		return nil, err
	}
	ring, err := g.ring("sandbox-key")
	if err != nil {
		owner.Close()
		return nil, err
	}
	gateway, err := wire.New(g.Platform.URL, workersWrite)
	if err != nil {
		owner.Close()
		return nil, err
	}
	var number atomic.Int64
	number.Store(3_000_000)
	ours := func(ctx context.Context) (func(context.Context, int) error, int, error) {
		hooks, err := g.payments(ctx, gateway)
		if err != nil {
			return nil, 0, err
		}
		if err := vacuum(ctx, owner); err != nil {
			return nil, 0, err
		}
		return func(ctx context.Context, i int) error {
			_, err := call(ctx, "confirm", http.MethodPost, "gateway=sandbox", hooks[i],
				headers(sandbox.SignatureHeader, sandbox.Sign(ring.Sign(), time.Now(), hooks[i])), http.StatusOK)
			return err
		}, len(hooks), nil
	}
	limit := func(ctx context.Context) (func(context.Context, int) error, int, error) {
		m, err := g.makeSale(ctx, party*confirms, 0)
		if err != nil {
			return nil, 0, err
		}
		list := pairs(party * confirms)
		until := time.Now().Add(10 * time.Minute)
		first := number.Add(confirms) - confirms
		for i, p := range list {
			if _, err := owner.Exec(ctx, bareHold, m.id, p, 1, 1, until, first+int64(i)); err != nil {
				return nil, 0, err
			}
		}
		if err := vacuum(ctx, owner); err != nil {
			return nil, 0, err
		}
		return func(ctx context.Context, i int) error {
			n := first + int64(i)
			return bare(ctx, owner, bareBook, []any{m.id, list[i], 1, 1, n},
				[]any{m.id, n, fmt.Sprintf("bench-%09d", n), i + 1, class, 1, 1, list[i], party, "booked", 5000, until})
		}, len(list), nil
	}
	return &contest{
		workers: workersWrite, rounds: 5, each: 2 * time.Second, close: func() { gateway.Close(); owner.Close() },
		what:  "the bare driver: BEGIN, conditional UPDATE of the seats, INSERT booking, COMMIT in one batch",
		sides: []side{{"ours", ours, tree}, {"limit", limit, tree}},
	}, nil
}

// payments holds seats, starts a payment for each hold, lets it succeed at the
// sandbox gateway without a webhook, and returns the webhooks to be sent.
func (g Ground) payments(ctx context.Context, gateway *wire.Client) ([][]byte, error) {
	m, err := g.makeSale(ctx, party*confirms, 0)
	if err != nil {
		return nil, err
	}
	accounts, tokens, err := g.tokens(confirms)
	if err != nil {
		return nil, err
	}
	admits, err := g.admits(m, accounts)
	if err != nil {
		return nil, err
	}
	list := pairs(party * confirms)
	hooks := make([][]byte, confirms)
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(workersWrite)
	for i := range confirms {
		work.Go(func() error {
			auth := "Bearer " + tokens[i]
			body, err := json.Marshal(map[string]any{"sale": m.sale, "class": class, "from": "0", "to": "1",
				"seats": []string{m.names[list[i][0]-1], m.names[list[i][1]-1]}})
			if err != nil {
				return err
			}
			held, err := call(ctx, "hold", http.MethodPost, "", body,
				headers("Authorization", auth, "Admit-Token", admits[i], "Idempotency-Key", "1"), http.StatusCreated)
			if err != nil {
				return err
			}
			var b struct {
				Booking string `json:"booking"`
			}
			if err := json.Unmarshal(held, &b); err != nil {
				return err
			}
			if body, err = json.Marshal(map[string]any{"booking": b.Booking, "gateway": sandbox.Name}); err != nil {
				return err
			}
			started, err := call(ctx, "pay", http.MethodPost, "", body, headers("Authorization", auth, "Idempotency-Key", "2"), http.StatusCreated)
			if err != nil {
				return err
			}
			var p struct {
				Payment string `json:"payment"`
				Price   struct {
					Amount   int64  `json:"amount"`
					Currency string `json:"currency"`
				} `json:"price"`
				Gateway struct {
					Reference string `json:"reference"`
				} `json:"gateway"`
			}
			if err := json.Unmarshal(started, &p); err != nil {
				return err
			}
			a, err := gateway.Do(ctx, http.MethodPost, "/dev/gateway/api/payments/"+p.Gateway.Reference+"/act", nil,
				[]byte(`{"do":"succeed","silent":true}`), nil)
			if err != nil {
				return err
			}
			if !a.OK() {
				return fmt.Errorf("the sandbox gateway answered %d: %.200s", a.Status, a.Body)
			}
			hooks[i], err = json.Marshal(sandbox.Webhook{
				ID: "evt-" + p.Payment, Type: payment.PaymentSucceeded,
				Payment: sandbox.WebhookPayment{
					Reference: p.Gateway.Reference, Amount: p.Price.Amount, Currency: p.Price.Currency,
					Metadata: map[string]string{sandbox.MetadataPayment: p.Payment},
				},
			})
			return err
		})
	}
	return hooks, work.Wait()
}
