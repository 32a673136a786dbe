package function

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"handler/function/shared/fn"

	handler "github.com/openfaas/templates-sdk/go-http"
)

// app names services where nobody answers: what is refused here is refused
// before anything is asked of them.
func app(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"postgres-url": "postgres://holdfast_app:none@127.0.0.1:1/none?sslmode=disable&connect_timeout=1",
		"redis-url":    "redis://127.0.0.1:1/0",
		"nats-url":     "nats://127.0.0.1:1",
		"account-key":  "k1:" + strings.Repeat("01", 32),
		"draw-secret":  "k1:" + strings.Repeat("02", 32),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: dir, Test: true, Audience: "holdfast"}))
}

func TestRefusals(t *testing.T) {
	app(t)
	for _, c := range []struct {
		method, query, body string
		status              int
		field               string
	}{
		{http.MethodGet, "colour=red", "", 400, "colour"},
		{http.MethodGet, "kind=bus", "", 400, "kind"},
		{http.MethodGet, "date=2026-2-3", "", 400, "date"},
		{http.MethodGet, "date=1999-01-01", "", 400, "date"},
		{http.MethodGet, "cursor=%21", "", 400, "cursor"},
		{http.MethodGet, "mine=1", "", 400, "mine"},
		{http.MethodGet, "mine=true", "", 401, ""},
		{http.MethodGet, "from=" + strings.Repeat("x", 1000), "", 400, "from"},
		{http.MethodGet, "sale=1&q=x", "", 400, "q"},
		{http.MethodGet, "sale=x", "", 404, ""},
		{http.MethodGet, "sale=-1", "", 404, ""},
		{http.MethodGet, "", "", 503, ""},
		{http.MethodGet, "sale=1", "", 503, ""},
		{http.MethodPost, "", `{}`, 401, ""},
		{http.MethodPut, "", `{}`, 400, "method"},
	} {
		res, err := Handle(handler.Request{Method: c.method, QueryString: c.query, Body: []byte(c.body), Header: http.Header{}})
		if err != nil || res.StatusCode != c.status {
			t.Errorf("%s %s: %d %s %v; want %d", c.method, c.query, res.StatusCode, res.Body, err, c.status)
			continue
		}
		var p struct{ Errors []struct{ Field string } }
		if err := json.Unmarshal(res.Body, &p); err != nil {
			t.Errorf("%s: %v", res.Body, err)
		}
		if c.field != "" && !slices.Contains([]struct{ Field string }(p.Errors), struct{ Field string }{c.field}) {
			t.Errorf("%s %s names %v, not %s", c.method, c.query, p.Errors, c.field)
		}
		if c.status == 503 && res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", c.query)
		}
	}
}
