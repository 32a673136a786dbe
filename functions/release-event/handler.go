// Package function is release-event: it lets a hold go (ABANDON), takes a booking
// back (REFUND) and exchanges one (RESCHEDULE), both with a preview.
package function

import (
	"context"
	"net/http"

	"handler/function/shared/fn"
	"handler/function/shared/idempotency"
	"handler/function/shared/payment"
	"handler/function/shared/problem"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("release-event", fn.Methods{http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

// body is a release as the contract has it; seats belong to returning a part,
// which is refused below.
type body struct {
	Type    string              `json:"type"`
	Booking string              `json:"booking"`
	Seats   []string            `json:"seats"`
	To      *payment.ExchangeTo `json:"to"`
	Preview bool                `json:"preview"`
}

func (b body) validate() error {
	switch {
	case b.Type != "ABANDON" && b.Type != "REFUND" && b.Type != "RESCHEDULE":
		return problem.Invalid("type", "must be ABANDON, REFUND or RESCHEDULE")
	case b.Booking == "":
		return problem.Invalid("booking", "must be the id of a booking")
	case b.Seats != nil:
		return problem.Invalid("seats", "must be left out with %s: a booking is taken as a whole", b.Type)
	case b.To != nil && b.Type != "RESCHEDULE":
		return problem.Invalid("to", "must be left out with %s", b.Type)
	case b.To == nil && b.Type == "RESCHEDULE":
		return problem.Invalid("to", "must say what is wanted instead: sale, class, from, to and quantity or seats")
	case b.Preview && b.Type == "ABANDON":
		return problem.Invalid("preview", "must be left out with ABANDON: letting go costs nothing")
	}
	return nil
}

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	key, err := r.IdempotencyKey()
	if err != nil {
		return fn.Response{}, err
	}
	var b body
	if err := r.Decode(&b); err != nil {
		return fn.Response{}, err
	}
	if err := b.validate(); err != nil {
		return fn.Response{}, err
	}
	if err := app.Limit(ctx, "release-event", who.ID, r.Client); err != nil {
		return fn.Response{}, err
	}
	if b.Type == "RESCHEDULE" {
		return exchange(ctx, app, payment.Exchange{Account: who.ID, Booking: b.Booking, To: *b.To, Preview: b.Preview,
			Key: key, Hash: idempotency.Hash(r.Body), TraceID: r.TraceID})
	}
	return release(ctx, app, b, payment.Release{Account: who.ID, Booking: b.Booking, Preview: b.Preview,
		Key: key, Hash: idempotency.Hash(r.Body), TraceID: r.TraceID})
}

func exchange(ctx context.Context, app *fn.App, wish payment.Exchange) (fn.Response, error) {
	exchanges, err := app.Exchanges()
	if err != nil {
		return fn.Response{}, err
	}
	done, replay, err := exchanges.Exchange(ctx, wish)
	if err != nil {
		return fn.Response{}, err
	}
	return again(fn.JSON(http.StatusOK, done), replay), nil
}

func release(ctx context.Context, app *fn.App, b body, wish payment.Release) (fn.Response, error) {
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	do := payments.Return
	if b.Type == "ABANDON" {
		do = payments.Abandon
	}
	done, replay, err := do(ctx, wish)
	if err != nil {
		return fn.Response{}, err
	}
	return answer(ctx, app, b, done, replay)
}

func answer(ctx context.Context, app *fn.App, b body, done payment.Released, replay bool) (fn.Response, error) {
	sales, err := app.Sales()
	if err != nil {
		return fn.Response{}, err
	}
	sale, err := sales.Sale(ctx, done.Sale)
	if err != nil {
		return fn.Response{}, err
	}
	seats := make([]string, len(done.Seats))
	for i, n := range done.Seats {
		seats[i] = sale.SeatName(n)
	}
	out := map[string]any{"booking": done.Booking, "state": done.State, "released": seats}
	if b.Type == "REFUND" {
		out["refund"], out["fee"] = done.Refund, done.Fee
	}
	return again(fn.JSON(http.StatusOK, out), replay), nil
}

// again marks an answer that was given before.
func again(res fn.Response, replay bool) fn.Response {
	if replay {
		return res.With("Idempotent-Replay", "true")
	}
	return res
}
