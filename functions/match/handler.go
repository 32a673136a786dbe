// Package function is match: it gives what came free to who waits for it. Called
// on seat.released.*, it believes nothing of the event but where to look first.
package function

import (
	"context"
	"encoding/json"
	"net/http"

	"handler/function/shared/catalog"
	"handler/function/shared/fn"
	"handler/function/shared/standby"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("match", fn.Methods{http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	matcher, err := app.Matcher()
	if err != nil {
		return fn.Response{}, err
	}
	var did standby.Did
	if sale, ok := named(r.Body); ok {
		did, err = matcher.Match(ctx, sale)
	} else {
		did, err = matcher.MatchDue(ctx)
	}
	if err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, map[string]any{"did": did}), nil
}

// named is the sale that an event is about. A call without one looks everywhere.
func named(body []byte) (int64, bool) {
	var event struct {
		Sale string `json:"sale"`
	}
	if json.Unmarshal(body, &event) != nil {
		return 0, false
	}
	return catalog.ParseID(event.Sale)
}
