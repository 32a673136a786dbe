// Package handlers_test calls the handlers of all functions in this process,
// with real services behind them, and checks every answer against the contract.
package handlers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"handler/function/cmd/holdfast/platform"
	"handler/function/shared/account"
	"handler/function/shared/fn"
	"handler/function/shared/key"
	"handler/function/shared/sandbox"
	"handler/function/tests/contract"
	"handler/function/tests/harness"

	handler "github.com/openfaas/templates-sdk/go-http"
)

type request struct {
	function, method string
	query            url.Values
	body             any
	header           http.Header
}

type world struct {
	t        *testing.T
	rng      *rand.Rand
	secrets  string
	handlers map[string]platform.Handle
	services *harness.Services
	codes    map[string]int // of the problems seen
	gateway  key.Key        // signs the sandbox gateway's webhooks
	keys     int
}

// newWorld starts services and makes them the ones of this process; sandboxURL is
// where the sandbox gateway would be. Tests that use it run one after another.
func newWorld(t *testing.T, sandboxURL string) *world {
	s := harness.New(t)
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: s.Secrets, Test: true, Audience: account.DefaultAudience, SandboxURL: sandboxURL}))
	w := &world{t: t, services: s, secrets: s.Secrets, handlers: platform.Functions, codes: map[string]int{}}
	w.gateway = w.ring("sandbox-key").Sign()
	return w
}

func (w *world) ring(secret string) key.Ring {
	file, err := os.ReadFile(filepath.Join(w.secrets, secret))
	if err != nil {
		w.t.Fatal(err)
	}
	ring, err := key.Parse(string(file))
	if err != nil {
		w.t.Fatal(err)
	}
	return ring
}

// send calls the handler and checks the answer.
func (w *world) send(r request) (int, string) {
	w.t.Helper()
	h := http.Header{}
	for name, values := range r.header {
		h[name] = values
	}
	if r.method == http.MethodPost && h.Get("Idempotency-Key") == "" {
		w.keys++
		h.Set("Idempotency-Key", fmt.Sprintf("key-%d", w.keys))
	}
	body := encode(r.body)
	if r.function == "confirm" && h.Get("Sandbox-Signature") == "" { // the gateway signs whatever it sends
		h.Set("Sandbox-Signature", sandbox.Sign(w.gateway, time.Now(), body))
	}
	res, err := w.handlers[r.function](rawRequest(r, h))
	if err != nil {
		w.t.Errorf("%s returned the Go error %v", r.function, err)
		return 500, ""
	}
	what := fmt.Sprintf("%s %s?%s %.2000s", r.method, r.function, r.query.Encode(), body)
	if res.StatusCode >= 500 && res.StatusCode != http.StatusServiceUnavailable {
		w.t.Errorf("%s\nanswered %d %s", what, res.StatusCode, res.Body)
	}
	if err := contract.Check(r.method, "/function/"+r.function, r.query.Encode(), res.StatusCode, res.Header, res.Body); err != nil {
		w.t.Errorf("%s\n%v", what, err)
	}
	var p struct {
		Code   string
		Errors []struct{ Field, Detail string }
	}
	if res.StatusCode >= 400 && json.Unmarshal(res.Body, &p) == nil {
		w.codes[p.Code]++
		if (p.Code == "bad-request" || p.Code == "invalid") && len(p.Errors) == 0 {
			w.t.Errorf("%s\nwas refused without naming a field: %s", what, res.Body)
		}
	}
	return res.StatusCode, string(res.Body)
}

func encode(body any) []byte {
	switch b := body.(type) {
	case nil:
		return nil
	case []byte:
		return b
	default:
		encoded, _ := json.Marshal(b)
		return encoded
	}
}

// rawRequest is what a handler gets, for calls whose answer is not checked.
func rawRequest(r request, h http.Header) handler.Request {
	return handler.Request{Method: r.method, QueryString: r.query.Encode(), Body: encode(r.body), Header: h}
}

func (w *world) token(name string, role account.Role) http.Header {
	token, _, err := platform.Token(w.secrets, "", name, role, "demo")
	if err != nil {
		w.t.Fatal(err)
	}
	return http.Header{"Authorization": {"Bearer " + token}}
}

// must sends a request that must succeed and reads one text of its answer.
func (w *world) must(r request, field string) string {
	w.t.Helper()
	status, body := w.send(r)
	var answer map[string]any
	if err := json.Unmarshal([]byte(body), &answer); status >= 300 || err != nil {
		w.t.Fatalf("%s %s answered %d %s", r.method, r.function, status, body)
	}
	s, _ := answer[field].(string)
	return s
}

type object = map[string]any

func saleDocument(room any) object {
	seats := []any{}
	for i := range 40 {
		seats = append(seats, object{"seat": fmt.Sprintf("%d%c", i/4+1, 'A'+i%4), "row": i/4 + 1, "column": string(rune('A' + i%4)), "attributes": []any{"window"}})
	}
	day := time.Now().Add(48 * time.Hour)
	at := func(h int) string { return day.Add(time.Duration(h) * time.Hour).UTC().Format(time.RFC3339) }
	d := object{
		"kind": "train", "title": "Fuzz Express", "number": "7", "service_date": day.UTC().Format(time.DateOnly), "timezone": "America/Toronto", "state": "open",
		"stops": []any{
			object{"id": "A", "name": "Aville", "timezone": "America/Toronto", "arrives": nil, "departs": at(0), "board": "yes", "alight": "no", "km": 0},
			object{"id": "B", "name": "Béville", "timezone": "America/Toronto", "arrives": at(1), "departs": at(1), "board": "yes", "alight": "yes", "km": 80.5},
			object{"id": "C", "name": "Cville", "timezone": "America/Toronto", "arrives": at(2), "departs": nil, "board": "no", "alight": "yes", "km": 200},
		},
		"classes":  []any{object{"class": "second", "title": "Second", "stock": "numbered", "fare": object{"kind": "per_leg", "amounts": []any{500, 700}}}},
		"coaches":  []any{object{"coach": "1", "class": "second", "seats": seats}},
		"currency": "CAD", "hold_seconds": 300, "extend_seconds": 300, "booking_limit": 6, "account_limit": 40, "gateways": []any{"sandbox"}, "test": true,
	}
	if room != nil {
		d["room"] = room
	}
	return d
}
