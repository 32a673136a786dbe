// Package function is hold: it holds seats for an admitted customer, shows their
// bookings, and changes the names on one.
package function

import (
	"context"
	"net/http"

	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/fn"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/problem"
	"handler/function/shared/room"
	"handler/function/shared/seat"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("hold", fn.Methods{http.MethodGet: get, http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

// body is a hold, or with Booking a change of names.
type body struct {
	Sale       string              `json:"sale"`
	Class      string              `json:"class"`
	From       string              `json:"from"`
	To         string              `json:"to"`
	Quantity   int                 `json:"quantity"`
	Seats      []string            `json:"seats"`
	Prefer     *prefer             `json:"prefer"`
	Passengers []booking.Passenger `json:"passengers"`
	Contact    booking.Contact     `json:"contact"`
	Group      string              `json:"group"`
	Booking    string              `json:"booking"`
}

type prefer struct {
	Together   bool `json:"together"`
	Window     bool `json:"window"`
	Accessible bool `json:"accessible"`
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
	if err := app.Limit(ctx, "hold", who.ID, r.Client); err != nil {
		return fn.Response{}, err
	}
	if b.Booking != "" {
		return rename(ctx, app, who, key, idempotency.Hash(r.Body), b)
	}
	return hold(ctx, app, r, who, key, b)
}

func hold(ctx context.Context, app *fn.App, r *fn.Request, who account.Account, key string, b body) (fn.Response, error) {
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
	admit, err := r.Admission(ctx, app, sale, who, room.ForHold)
	if err != nil {
		return fn.Response{}, err
	}
	bookings, err := app.Bookings()
	if err != nil {
		return fn.Response{}, err
	}
	w := booking.Wish{
		Account: who.ID, Origin: booking.ByCustomer, Admission: admit.Admission, AdmissionEnds: admit.Ends,
		Class: b.Class, From: b.From, To: b.To, Seats: b.Seats, Quantity: b.Quantity,
		Passengers: b.Passengers, Contact: b.Contact, Group: b.Group,
		Key: key, Hash: idempotency.Hash(r.Body), TraceID: r.TraceID,
	}
	if b.Prefer != nil {
		w.Prefer = seat.Prefer(*b.Prefer)
	}
	if who.Role == account.Seller {
		w.Origin = booking.BySeller
	}
	h, err := bookings.Hold(ctx, sale, w)
	if err != nil {
		return fn.Response{}, err
	}
	status := http.StatusCreated
	if h.Again {
		status = http.StatusOK
	}
	return answer(status, h.View(), h.Replay), nil
}

func rename(ctx context.Context, app *fn.App, who account.Account, key string, hash []byte, b body) (fn.Response, error) {
	if b.Sale != "" || b.Class != "" || b.From != "" || b.To != "" || b.Quantity != 0 || b.Seats != nil || b.Prefer != nil ||
		b.Group != "" || b.Contact != (booking.Contact{}) {
		return fn.Response{}, problem.Invalid("booking", "stands with passengers alone: names are all that can be changed")
	}
	bookings, err := app.Bookings()
	if err != nil {
		return fn.Response{}, err
	}
	v, replay, err := bookings.Rename(ctx, booking.Rename{
		Account: who.ID, Booking: b.Booking, Passengers: b.Passengers, Key: key, Hash: hash,
	})
	if err != nil {
		return fn.Response{}, err
	}
	return answer(http.StatusOK, v, replay), nil
}

func answer(status int, v booking.View, replay bool) fn.Response {
	res := fn.JSON(status, v).With("Cache-Control", "no-store")
	if replay {
		res = res.With("Idempotent-Replay", "true")
	}
	return res
}

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("booking", "locator"); err != nil {
		return fn.Response{}, err
	}
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	bookings, err := app.Bookings()
	if err != nil {
		return fn.Response{}, err
	}
	if !r.Query.Has("booking") && !r.Query.Has("locator") {
		list, err := bookings.List(ctx, who.ID)
		if err != nil {
			return fn.Response{}, err
		}
		views := make([]booking.View, len(list))
		for i, b := range list {
			views[i] = b.View()
		}
		return fn.JSON(http.StatusOK, map[string]any{"bookings": views}).With("Cache-Control", "no-store"), nil
	}
	if r.Query.Has("booking") && r.Query.Has("locator") {
		return fn.Response{}, problem.Malformed("locator", "must not be given with booking")
	}
	b, err := bookings.Find(ctx, who.ID, r.Query.Get("booking")+r.Query.Get("locator"))
	if err != nil {
		return fn.Response{}, err
	}
	return answer(http.StatusOK, b.View(), false), nil
}
