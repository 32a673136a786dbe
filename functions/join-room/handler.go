// Package function is the door of the waiting room: join it, or learn where one
// stands; its public status and the frozen list of its draw.
package function

import (
	"context"
	"net/http"
	"strconv"

	"handler/function/shared/fn"
	"handler/function/shared/problem"
	"handler/function/shared/room"
	"handler/function/shared/text"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("join-room", fn.Methods{http.MethodGet: get, http.MethodPost: post})

// Handle answers GET (status, list) and POST (join, ask for one's place).
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("room", "sale", "list", "page"); err != nil {
		return fn.Response{}, err
	}
	rooms, err := app.Room()
	if err != nil {
		return fn.Response{}, err
	}
	id, err := fn.SaleRoom(ctx, rooms, r.Query.Get("room"), r.Query.Get("sale"))
	if err != nil {
		return fn.Response{}, err
	}
	if r.Query.Has("list") || r.Query.Has("page") {
		return list(ctx, rooms, r, id)
	}
	status, err := rooms.Status(ctx, id)
	if err != nil {
		return fn.Response{}, err
	}
	return fn.Bytes(http.StatusOK, "application/json", status).With("Cache-Control", "public, max-age=1"), nil
}

// list is a page of the frozen list. It never changes: any cache may keep it.
func list(ctx context.Context, rooms *room.Service, r *fn.Request, id int64) (fn.Response, error) {
	generation, err := strconv.ParseInt(r.Query.Get("list"), 10, 64)
	if err != nil || generation < 1 {
		return fn.Response{}, problem.Invalid("list", "must be the room's generation, a number from 1")
	}
	page := 0
	if r.Query.Has("page") {
		if page, err = strconv.Atoi(r.Query.Get("page")); err != nil || page < 0 {
			return fn.Response{}, problem.Invalid("page", "must be a number from 0")
		}
	}
	scores, err := rooms.ListPage(ctx, id, generation, page)
	if err != nil {
		return fn.Response{}, err
	}
	return fn.Bytes(http.StatusOK, "application/octet-stream", scores).
		With("Cache-Control", "public, max-age=31536000, immutable"), nil
}

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	var body struct {
		Room   string `json:"room"`
		Sale   string `json:"sale"`
		Rejoin bool   `json:"rejoin"`
	}
	who, err := r.Account(app)
	if err != nil {
		return fn.Response{}, err
	}
	if err := r.Decode(&body); err != nil {
		return fn.Response{}, err
	}
	rooms, err := app.Room()
	if err != nil {
		return fn.Response{}, err
	}
	id, err := fn.SaleRoom(ctx, rooms, body.Room, body.Sale)
	if err != nil {
		return fn.Response{}, err
	}
	answer, err := rooms.Join(ctx, room.Ask{
		Room: id, Account: who.ID, PlaceToken: r.Header.Get("Place-Token"), Rejoin: body.Rejoin, Client: r.Client,
	})
	if err != nil {
		return fn.Response{}, err
	}
	if answer.Notice != "" {
		answer.Notice = text.Sprintf(r.Lang, answer.Notice)
	}
	status := http.StatusOK
	if answer.Joined {
		status = http.StatusCreated
	}
	return fn.Bytes(status, "application/json", answer.JSON()).With("Cache-Control", "no-store"), nil
}
