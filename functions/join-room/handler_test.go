package function

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/shared/account"
	"handler/function/shared/fn"
	"handler/function/shared/key"
)

// setup gives the process secrets whose services nobody answers at, and returns
// an account token.
func setup(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	line := "k1:" + strings.Repeat("11", 32)
	for name, text := range map[string]string{
		"account-key": line, "room-key": line, "draw-secret": line, "id-key": line,
		"postgres-url": "postgres://none:none@127.0.0.1:1/none?connect_timeout=1", "redis-url": "redis://127.0.0.1:1/0", "nats-url": "nats://127.0.0.1:1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: dir, Test: true}))
	ring, err := key.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := account.Issue(ring, "", account.Account{ID: "a"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestRefusals(t *testing.T) {
	bearer := http.Header{"Authorization": {"Bearer " + setup(t)}}
	for name, c := range map[string]struct {
		method, query, body string
		header              http.Header
		status              int
		code, field         string
	}{
		"no account":            {"POST", "", `{"room":"1"}`, nil, 401, "unauthenticated", ""},
		"a wrong token":         {"POST", "", `{"room":"1"}`, http.Header{"Authorization": {"Bearer x"}}, 401, "bad-token", ""},
		"an unknown field":      {"POST", "", `{"room":"1","place":1}`, bearer, 400, "bad-request", "place"},
		"no JSON":               {"POST", "", `room=1`, bearer, 400, "bad-request", "body"},
		"neither room nor sale": {"POST", "", `{}`, bearer, 422, "invalid", "room"},
		"both":                  {"POST", "", `{"room":"1","sale":"1"}`, bearer, 422, "invalid", "room"},
		"a room that is no id":  {"POST", "", `{"room":"07"}`, bearer, 422, "invalid", "room"},
		"an unknown parameter":  {"GET", "room=1&x=1", "", nil, 400, "bad-request", "x"},
		"a page without list":   {"GET", "room=1&page=0", "", nil, 422, "invalid", "list"},
		"a page that is none":   {"GET", "room=1&list=1&page=-1", "", nil, 422, "invalid", "page"},
		"nothing answers":       {"GET", "room=1", "", nil, 503, "unavailable", ""},
		"a method":              {"DELETE", "", "", nil, 400, "bad-request", "method"},
	} {
		res, err := Handle(handler.Request{Method: c.method, QueryString: c.query, Body: []byte(c.body), Header: c.header.Clone()})
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Code   string
			Errors []struct{ Field string }
		}
		if err := json.Unmarshal(res.Body, &p); err != nil {
			t.Fatalf("%s: %s", name, res.Body)
		}
		if res.StatusCode != c.status || p.Code != c.code || (c.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != c.field)) {
			t.Errorf("%s: %d %s", name, res.StatusCode, res.Body)
		}
	}
}
