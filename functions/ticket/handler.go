// Package function is ticket: it shows a ticket, checks it in at the gate, and,
// when an event nudges it, sends what is due.
package function

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"strconv"
	"unicode/utf8"

	"handler/function/shared/fn"
	"handler/function/shared/problem"
	"handler/function/shared/ticket"

	handler "github.com/openfaas/templates-sdk/go-http"
)

//go:embed static/fonts/*.ttf
var static embed.FS

var serve = fn.Serve("ticket", fn.Methods{http.MethodGet: get, http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func tickets(app *fn.App) (*ticket.Service, error) {
	fonts, err := fs.Sub(static, "static/fonts")
	if err != nil {
		return nil, err
	}
	return app.Tickets(fonts)
}

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("booking", "keys"); err != nil {
		return fn.Response{}, err
	}
	service, err := tickets(app)
	if err != nil {
		return fn.Response{}, err
	}
	if r.Query.Has("keys") {
		return publicKeys(service, r.Query.Get("keys"))
	}
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	if r.Query.Get("booking") == "" {
		return fn.Response{}, problem.Malformed("booking", "must name a booking or its locator")
	}
	t, err := service.Show(ctx, who.ID, r.Query.Get("booking"))
	if err != nil {
		return fn.Response{}, err
	}
	res, err := as(ctx, service, t, fn.Preferred(r.Header.Get("Accept"), "application/json", "application/pdf", "text/calendar"))
	if err != nil {
		return fn.Response{}, err
	}
	return res.With("Cache-Control", "private, no-store").With("Vary", "Accept"), nil
}

// as writes the ticket in one of its forms.
func as(ctx context.Context, service *ticket.Service, t *ticket.Ticket, form string) (fn.Response, error) {
	switch form {
	case "application/pdf":
		paper, err := service.Paper(ctx, t)
		return fn.Bytes(http.StatusOK, form, paper).With("Content-Disposition", `inline; filename="ticket-`+t.Locator+`.pdf"`), err
	case "text/calendar":
		return fn.Bytes(http.StatusOK, "text/calendar; charset=utf-8", ticket.Calendar(t)).
			With("Content-Disposition", `attachment; filename="ticket-`+t.Locator+`.ics"`), nil
	}
	type seat struct {
		Seat      string `json:"seat"`
		Passenger string `json:"passenger"`
		QR        string `json:"qr"`
	}
	seats := make([]seat, len(t.Seats))
	for i, s := range t.Seats {
		seats[i] = seat{Seat: s.Name, Passenger: s.Passenger, QR: s.QR}
		if s.Name == "" {
			seats[i].Seat = strconv.Itoa(s.Serial)
		}
	}
	return fn.JSON(http.StatusOK, map[string]any{"locator": t.Locator, "seats": seats}), nil
}

// publicKeys are what a gate checks codes with while it is offline.
func publicKeys(service *ticket.Service, which string) (fn.Response, error) {
	if which != "public" {
		return fn.Response{}, problem.Malformed("keys", "must be public")
	}
	keys := map[string]string{}
	for kid, public := range service.Keys() {
		keys[kid] = base64.StdEncoding.EncodeToString(public)
	}
	return fn.JSON(http.StatusOK, map[string]any{"keys": keys}).With("Cache-Control", "public, max-age=300"), nil
}

// post is a scan where the body says so; anything else is a nudge, of which
// nothing is believed.
func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	service, err := tickets(app)
	if err != nil {
		return fn.Response{}, err
	}
	if isScan(r.Body) {
		return scan(ctx, app, service, r)
	}
	did, err := service.Drain(ctx)
	if err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, map[string]any{"did": did}), nil
}

func isScan(body []byte) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return false
	}
	_, code := fields["scan"]
	_, id := fields["scan_id"]
	return code || id
}

func scan(ctx context.Context, app *fn.App, service *ticket.Service, r *fn.Request) (fn.Response, error) {
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	var body struct {
		Scan   string `json:"scan"`
		ScanID string `json:"scan_id"`
	}
	if err := r.Decode(&body); err != nil {
		return fn.Response{}, err
	}
	if n := utf8.RuneCountInString(body.ScanID); n < 1 || n > ticket.MaxScanID {
		return fn.Response{}, problem.Invalid("scan_id", "must be 1 to %d characters", ticket.MaxScanID)
	}
	if body.Scan == "" {
		return fn.Response{}, problem.Invalid("scan", "must be the text of a ticket's code")
	}
	answer, err := service.CheckIn(ctx, who, body.Scan, body.ScanID)
	if err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, answer), nil
}
