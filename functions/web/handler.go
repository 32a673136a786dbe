// Package function is the function web: the pages of Holdfast. No path reaches
// a function, so a page is chosen by ?page= and a file by ?asset=.
package function

import (
	"context"
	"net/http"
	"strings"
	"sync"

	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/shared/fn"
)

var serve = fn.Serve("web", fn.Methods{http.MethodGet: get, http.MethodHead: get})

// Handle answers with a page or an asset.
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

// pages are read and rendered once a process; they come from the binary.
var pages = sync.OnceValues(func() (*site, error) { return newSite(files) })

func get(_ context.Context, _ *fn.App, r *fn.Request) (fn.Response, error) {
	s, err := pages()
	if err != nil {
		return fn.Response{}, err
	}
	var d document
	if name := r.Query.Get("asset"); name != "" {
		if err := r.Params("asset", "v"); err != nil {
			return fn.Response{}, err
		}
		if d, err = s.asset(name, r.Query.Get("v")); err != nil {
			return fn.Response{}, err
		}
	} else {
		if err := r.Params(parameters...); err != nil {
			return fn.Response{}, err
		}
		lang, err := language(r)
		if err != nil {
			return fn.Response{}, err
		}
		d = s.page(r.Query.Get("page"), lang)
	}
	return d.answer(r.Header.Get("If-None-Match"), strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")), nil
}
