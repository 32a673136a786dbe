// Package function is reconcile: the safety net, called by cron every ten
// seconds. Nothing in the call is believed.
package function

import (
	"context"
	"net/http"

	"handler/function/shared/fn"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("reconcile", fn.Methods{http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func post(ctx context.Context, app *fn.App, _ *fn.Request) (fn.Response, error) {
	net, err := app.Reconcile()
	if err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, map[string]any{"did": net.Tick(ctx)}), nil
}
