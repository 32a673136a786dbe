// Package function is release-event: it lets a hold go (ABANDON) and takes a
// booking back (REFUND), with a preview.
package function

import (
	"context"
	"encoding/json"
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

// body is a release as the contract has it; seats and to belong to parts of it
// that are refused below.
type body struct {
	Type    string          `json:"type"`
	Booking string          `json:"booking"`
	Seats   []string        `json:"seats"`
	To      json.RawMessage `json:"to"`
	Preview bool            `json:"preview"`
}

func (b body) validate() error {
	switch {
	case b.Type == "RESCHEDULE":
		return problem.Invalid("type", "must be ABANDON or REFUND; exchanging a booking is not possible yet")
	case b.Type != "ABANDON" && b.Type != "REFUND":
		return problem.Invalid("type", "must be ABANDON or REFUND")
	case b.Booking == "":
		return problem.Invalid("booking", "must be the id of a booking")
	case b.Seats != nil:
		return problem.Invalid("seats", "must be left out: a booking is returned as a whole")
	case b.To != nil:
		return problem.Invalid("to", "must be left out with %s", b.Type)
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
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	wish := payment.Release{Account: who.ID, Booking: b.Booking, Preview: b.Preview, Key: key, Hash: idempotency.Hash(r.Body), TraceID: r.TraceID}
	release := payments.Return
	if b.Type == "ABANDON" {
		release = payments.Abandon
	}
	done, replay, err := release(ctx, wish)
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
	res := fn.JSON(http.StatusOK, out)
	if replay {
		res = res.With("Idempotent-Replay", "true")
	}
	return res, nil
}
