// Package function is the catalog: what is on sale, for everybody to read and
// for its organiser to change.
package function

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"handler/function/shared/account"
	"handler/function/shared/catalog"
	"handler/function/shared/fn"

	handler "github.com/openfaas/templates-sdk/go-http"
)

var serve = fn.Serve("catalog", fn.Methods{http.MethodGet: get, http.MethodPost: post})

// Handle answers GET (read) and POST (change).
func Handle(req handler.Request) (handler.Response, error) { return serve(req) }

// page is the answer of a list.
type page struct {
	Sales []catalog.View `json:"sales"`
	Next  *string        `json:"next"` // null on the last page
}

func get(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	sales, err := app.Sales()
	if err != nil {
		return fn.Response{}, err
	}
	left, err := app.Left()
	if err != nil {
		return fn.Response{}, err
	}
	if r.Query.Has("sale") {
		return one(ctx, app, r, sales, left)
	}
	if err := r.Params("kind", "date", "from", "to", "q", "cursor", "mine"); err != nil {
		return fn.Response{}, err
	}
	filter, err := catalog.ParseFilter(r.Query.Get)
	if err != nil {
		return fn.Response{}, err
	}
	if filter.Mine {
		who, err := organiser(app, r)
		if err != nil {
			return fn.Response{}, err
		}
		filter.Org = who.Org
	}
	found, next, err := sales.List(ctx, filter)
	if err != nil {
		return fn.Response{}, err
	}
	answer := page{Sales: make([]catalog.View, 0, len(found))}
	for _, s := range found {
		answer.Sales = append(answer.Sales, s.Summary(ctx, s.F, s.T, left))
	}
	if next != "" {
		answer.Next = &next
	}
	return cached(r, answer, filter.Mine), nil
}

// one shows a sale; a draft to its own organisation's organisers alone.
func one(ctx context.Context, app *fn.App, r *fn.Request, sales *catalog.Reader, left catalog.Counter) (fn.Response, error) {
	if err := r.Params("sale", "from", "to"); err != nil {
		return fn.Response{}, err
	}
	who, notOne := account.Account{}, error(nil)
	if r.Header.Get("Authorization") != "" {
		who, notOne = organiser(app, r)
	}
	sale, err := sales.Shown(ctx, r.Query.Get("sale"), notOne == nil && who.Role == account.Organiser, who.Org)
	if err != nil {
		return fn.Response{}, err
	}
	f, t := 1, sale.Legs
	if r.Query.Has("from") || r.Query.Has("to") {
		if f, t, err = sale.Interval(r.Query.Get("from"), r.Query.Get("to")); err != nil {
			return fn.Response{}, err
		}
	}
	return cached(r, sale.View(ctx, f, t, left), sale.State == catalog.Draft), nil
}

// organiser is who asks, if it is an organiser.
func organiser(app *fn.App, r *fn.Request) (account.Account, error) {
	who, err := r.Account(app)
	if err == nil {
		err = who.Require(account.Organiser)
	}
	return who, err
}

// cached is an answer that a CDN may keep for two seconds; what only an
// organiser sees nobody may.
func cached(r *fn.Request, v any, private bool) fn.Response {
	control := "public, max-age=2"
	if private {
		control = "private, no-store"
	}
	res := fn.JSON(http.StatusOK, v)
	sum := sha256.Sum256(res.Body)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		res.Status, res.Body = http.StatusNotModified, nil
		res.Header.Del("Content-Type")
	}
	return res.With("ETag", tag).With("Cache-Control", control).With("Vary", "Authorization")
}

func post(ctx context.Context, app *fn.App, r *fn.Request) (fn.Response, error) {
	who, err := organiser(app, r)
	if err != nil {
		return fn.Response{}, err
	}
	key, err := r.IdempotencyKey()
	if err != nil {
		return fn.Response{}, err
	}
	var body catalog.Request
	if err := r.DecodeMax(&body, fn.MaxImportBody); err != nil {
		return fn.Response{}, err
	}
	changes, err := app.Catalog()
	if err != nil {
		return fn.Response{}, err
	}
	plain, err := json.Marshal(body) // spaces and order of fields do not make another body
	if err != nil {
		return fn.Response{}, err
	}
	hash := sha256.Sum256(plain)
	answer, err := changes.Do(ctx, catalog.Caller{Account: who.ID, Org: who.Org, Key: key, Hash: hash[:]}, body, r.TraceID)
	if err != nil {
		return fn.Response{}, err
	}
	res := fn.Bytes(answer.Status, "application/json", answer.Body)
	if answer.Replay {
		res = res.With("Idempotent-Replay", "true")
	}
	return res, nil
}
