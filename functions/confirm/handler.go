// Package function is confirm: it takes a gateway's webhook, records it, and
// runs the confirm step, which books, rescues or gives the money back.
package function

import (
	"context"
	"net/http"
	"time"

	"handler/function/shared/fn"
	"handler/function/shared/problem"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("confirm", fn.Methods{http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("gateway"); err != nil {
		return fn.Response{}, err
	}
	gateway := r.Query.Get("gateway")
	if gateway == "" {
		return fn.Response{}, problem.Malformed("gateway", "must name the gateway that sends this")
	}
	if len(r.Body) > fn.MaxImportBody {
		return fn.Response{}, problem.Malformed("body", "must be at most %d bytes", fn.MaxImportBody)
	}
	payments, err := app.Payments()
	if err != nil {
		return fn.Response{}, err
	}
	if _, err := payments.Receive(ctx, gateway, r.Header, r.Body, time.Now()); err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, map[string]bool{"received": true}), nil
}
