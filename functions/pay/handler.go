// Package function is pay: it begins a payment for a hold, says how one stands,
// and on a nudge from NATS charges the standby orders that have seats.
package function

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"handler/function/shared/fn"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/shared/text"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("pay", fn.Methods{http.MethodGet: get, http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if isNudge(r) {
		return charge(ctx, app, r)
	}
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	key, err := r.IdempotencyKey()
	if err != nil {
		return fn.Response{}, err
	}
	var body struct {
		Booking   string `json:"booking"`
		Gateway   string `json:"gateway"`
		ReturnURL string `json:"return_url"`
	}
	if err := r.Decode(&body); err != nil {
		return fn.Response{}, err
	}
	if body.Booking == "" {
		return fn.Response{}, problem.Invalid("booking", "must be the id of a booking")
	}
	if err := app.Limit(ctx, "pay", who.ID, r.Client); err != nil {
		return fn.Response{}, err
	}
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	started, replay, err := payments.Pay(ctx, payment.Request{
		Account: who.ID, Booking: body.Booking, Gateway: body.Gateway, ReturnURL: body.ReturnURL,
		Key: key, Hash: idempotency.Hash(r.Body), TraceID: r.TraceID,
	})
	if err != nil {
		return fn.Response{}, err
	}
	res := fn.JSON(http.StatusCreated, started).With("Cache-Control", "no-store")
	if replay {
		res = res.With("Idempotent-Replay", "true")
	}
	return res, nil
}

// charge works at what is due. The event is only looked into: it may say for which
// sale, and one that says nothing is a look at all (law 6).
func charge(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	var event struct {
		Sale string `json:"sale"`
	}
	_ = json.Unmarshal(r.Body, &event)
	var did outbox.Did
	if sale, wrong := id.Sale("sale", event.Sale); wrong == nil {
		did, err = payments.Fulfil(ctx, sale)
	} else {
		did, err = payments.Sweep(ctx, payment.KindMatched)
	}
	if err != nil && !outbox.IsDown(err) {
		return fn.Response{}, err
	}
	if err != nil {
		slog.WarnContext(ctx, "orders left to reconcile", "error", err)
	}
	return fn.JSON(http.StatusOK, map[string]any{"did": map[string]int{"captured": did.Done, "failed": did.Failed, "later": did.Later}}), nil
}

// isNudge: an event of NATS comes without any header of a caller.
func isNudge(r *fn.Request) bool {
	return r.Header.Get("Authorization") == "" && r.Header.Get("Idempotency-Key") == "" && r.Header.Get("X-Topic") != ""
}

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("payment"); err != nil {
		return fn.Response{}, err
	}
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	if r.Query.Get("payment") == "" {
		return fn.Response{}, problem.Malformed("payment", "must name a payment")
	}
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	view, err := payments.Show(ctx, who.ID, r.Query.Get("payment"))
	if err != nil {
		return fn.Response{}, err
	}
	view.Message = text.Sprintf(r.Lang, view.Message)
	return fn.JSON(http.StatusOK, view).With("Cache-Control", "no-store"), nil
}
