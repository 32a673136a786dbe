// Package function is standby: it lets people wait for seats the open sale cannot
// give (候补), shows them where they stand and why, and lets them leave.
package function

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/fn"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/shared/room"
	"handler/function/shared/standby"
	"handler/function/shared/text"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("standby", fn.Methods{http.MethodGet: get, http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

// body is an order, or with Cancel the leaving of one.
type body struct {
	Sale       string              `json:"sale"`
	Classes    []string            `json:"classes"`
	From       string              `json:"from"`
	To         string              `json:"to"`
	Quantity   int                 `json:"quantity"`
	Together   bool                `json:"together"`
	Until      *time.Time          `json:"until"`
	Gateway    string              `json:"gateway"`
	ReturnURL  string              `json:"return_url"`
	Passengers []booking.Passenger `json:"passengers"`
	Contact    booking.Contact     `json:"contact"`
	Order      string              `json:"order"`
	Cancel     bool                `json:"cancel"`
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
	if err := app.Limit(ctx, "standby", who.ID, r.Client); err != nil {
		return fn.Response{}, err
	}
	if b.Order != "" || b.Cancel {
		return leave(ctx, app, r, who, key, b)
	}
	return join(ctx, app, r, who, key, b)
}

// joined is the answer to who joins.
type joined struct {
	payment.Joined
	Position *standby.Position `json:"position"`
	Message  string            `json:"message"`
}

func join(ctx context.Context, app *fn.App, r *fn.Request, who account.Account, key string, b body) (fn.Response, error) {
	saleID, err := id.Sale("sale", b.Sale)
	if err != nil {
		return fn.Response{}, err
	}
	sales, err := app.Sales()
	if err != nil {
		return fn.Response{}, err
	}
	sale, err := sales.Sale(ctx, saleID)
	if err != nil {
		return fn.Response{}, err
	}
	admit, err := r.Admission(ctx, app, sale, who, room.ForStandby)
	if err != nil {
		return fn.Response{}, err
	}
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	w := standby.Wish{
		Account: who.ID, Admission: admit.Admission, AdmissionEnds: admit.Ends,
		Classes: b.Classes, From: b.From, To: b.To, Quantity: b.Quantity, Together: b.Together, Gateway: b.Gateway,
		Passengers: b.Passengers, Contact: b.Contact, Key: key, TraceID: r.TraceID,
	}
	if b.Until != nil {
		w.Until = *b.Until
	}
	j, replay, err := payments.JoinStandby(ctx, sale, payment.Joining{Wish: w, ReturnURL: b.ReturnURL, Hash: idempotency.Hash(r.Body)})
	if err != nil {
		return fn.Response{}, err
	}
	orders, err := app.Orders()
	if err != nil {
		return fn.Response{}, err
	}
	out := joined{Joined: j}
	out.Position, out.Message = orders.Placed(ctx, who.ID, j.Order, j.State)
	out.Message = text.Sprintf(r.Lang, out.Message)
	return answer(http.StatusCreated, out, replay), nil
}

func leave(ctx context.Context, app *fn.App, r *fn.Request, who account.Account, key string, b body) (fn.Response, error) {
	if !b.Cancel || b.Order == "" || !reflect.DeepEqual(b, body{Order: b.Order, Cancel: true}) {
		return fn.Response{}, problem.Invalid("order", "stands with cancel: true alone: an order is left, not changed")
	}
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	left, replay, err := payments.LeaveStandby(ctx, payment.Leaving{
		Account: who.ID, Order: b.Order, Key: key, Hash: idempotency.Hash(r.Body), TraceID: r.TraceID,
	})
	if err != nil {
		return fn.Response{}, err
	}
	return answer(http.StatusOK, left, replay), nil
}

func answer(status int, v any, replay bool) fn.Response {
	res := fn.JSON(status, v).With("Cache-Control", "no-store")
	if replay {
		res = res.With("Idempotent-Replay", "true")
	}
	return res
}

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("order"); err != nil {
		return fn.Response{}, err
	}
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	orders, err := app.Orders()
	if err != nil {
		return fn.Response{}, err
	}
	if r.Query.Has("order") {
		v, err := orders.Show(ctx, who.ID, r.Query.Get("order"))
		if err != nil {
			return fn.Response{}, err
		}
		return answer(http.StatusOK, translated(r.Lang, v), false), nil
	}
	mine, err := orders.Mine(ctx, who.ID)
	if err != nil {
		return fn.Response{}, err
	}
	for i := range mine {
		mine[i] = translated(r.Lang, mine[i])
	}
	return answer(http.StatusOK, map[string]any{"orders": mine}, false), nil
}

// translated writes the sentences of an order in the caller's language.
func translated(lang text.Lang, v standby.View) standby.View {
	for _, s := range []*string{&v.Ahead, &v.Message} {
		if *s != "" {
			*s = text.Sprintf(lang, *s)
		}
	}
	return v
}
