// Package function is sign-in: a one-time code by mail, then an account token.
package function

import (
	"context"
	"net/http"
	"time"

	"handler/function/shared/fn"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("sign-in", fn.Methods{http.MethodPost: post})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	var body struct {
		Email string  `json:"email"`
		Code  *string `json:"code"`
	}
	if err := r.Decode(&body); err != nil {
		return fn.Response{}, err
	}
	signIn, err := app.SignIn()
	if err != nil {
		return fn.Response{}, err
	}
	if body.Code == nil {
		if err := signIn.Ask(ctx, body.Email, r.Client, r.Lang); err != nil {
			return fn.Response{}, err
		}
		return fn.JSON(http.StatusAccepted, map[string]bool{"sent": true}), nil
	}
	token, expires, err := signIn.Redeem(ctx, body.Email, *body.Code, r.Client)
	if err != nil {
		return fn.Response{}, err
	}
	return fn.JSON(http.StatusOK, map[string]any{
		"account_token": token, "expires_at": expires.UTC().Format(time.RFC3339),
	}).With("Cache-Control", "no-store"), nil
}
