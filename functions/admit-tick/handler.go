// Package function is the clock of the waiting rooms, called every second by
// cron: it freezes draws, counts what is left, moves each line on, publishes its
// status, and ends holds.
package function

import (
	"context"
	"net/http"

	"handler/function/shared/fn"
	"handler/function/shared/room"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("admit-tick", fn.Methods{http.MethodPost: post})

// Handle answers any call by looking at what is due; nothing in it is believed.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func post(ctx context.Context, app *fn.App, _ *fn.Request) (fn.Response, error) {
	rooms, err := app.Room()
	if err != nil {
		return fn.Response{}, err
	}
	did, err := rooms.Tick(ctx)
	if err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, struct {
		Did room.Did `json:"did"`
	}{did}), nil
}
