// Package function is seat-map: which seats of a sale are free, held and booked
// between two stops, at most a second old.
package function

import (
	"context"
	"net/http"
	"strings"

	"handler/function/shared/catalog"
	"handler/function/shared/fn"
	"handler/function/shared/problem"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("seat-map", fn.Methods{http.MethodGet: get})

// Handle answers one request.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	if err := r.Params("sale", "from", "to", "class"); err != nil {
		return fn.Response{}, err
	}
	sale, ok := catalog.ParseID(r.Query.Get("sale"))
	if !ok {
		return fn.Response{}, problem.Invalid("sale", "must be an id as the catalogue gives it, a number")
	}
	maps, err := app.Maps()
	if err != nil {
		return fn.Response{}, err
	}
	sales, err := app.Sales()
	if err != nil {
		return fn.Response{}, err
	}
	a, err := maps.Show(ctx, sales, sale, r.Query.Get("from"), r.Query.Get("to"), r.Query.Get("class"))
	if err != nil {
		return fn.Response{}, err
	}
	res := fn.Response{Status: http.StatusOK, Body: a.Body, Header: http.Header{
		"Content-Type": {"application/json"}, "Cache-Control": {"public, max-age=1"}, "Etag": {a.ETag}, "Vary": {"Accept-Encoding"},
	}}
	switch {
	case fn.Matches(r.Header.Get("If-None-Match"), a.ETag):
		res.Status, res.Body = http.StatusNotModified, nil
		res.Header.Del("Content-Type")
	case strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		res.Body = a.Gzip
		res.Header.Set("Content-Encoding", "gzip")
	}
	return res, nil
}
