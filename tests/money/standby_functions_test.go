package money

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	confirm "handler/function/functions/confirm"
	match "handler/function/functions/match"
	pay "handler/function/functions/pay"
	standbys "handler/function/functions/standby"
	"handler/function/shared/account"
	"handler/function/shared/fn"
	"handler/function/shared/key"
	"handler/function/tests/contract"
	"handler/function/tests/harness"

	handler "github.com/openfaas/templates-sdk/go-http"
)

// Joining, waiting, being matched and charged, and leaving, as OpenFaaS calls the
// functions; who waits costs Postgres nothing.
func TestStandbyFunctions(t *testing.T) {
	w := waiting(t, options{})
	redis := harness.Redis(t)
	secrets := harness.Secrets(t, w.db, redis, harness.NATS(t))
	for _, name := range []string{"id-key", "sandbox-key"} { // those of the test's world
		if err := os.WriteFile(filepath.Join(secrets, name), []byte("k1:"+strings.Repeat("ab", 32)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	gw, err := sandboxgw.New(sandboxgw.Config{URL: srv.URL + "/dev/gateway", Platform: srv.URL, Keys: w.ring})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gw.Close)
	w.gateway = gw
	mux.Handle("/dev/gateway/", gw)
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: secrets, Test: true, SandboxURL: srv.URL + "/dev/gateway", Audience: account.DefaultAudience}))
	file, err := os.ReadFile(filepath.Join(secrets, "account-key"))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := key.Parse(string(file))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]func(handler.Request) (handler.Response, error){
		"standby": standbys.Handle, "pay": pay.Handle, "confirm": confirm.Handle, "match": match.Handle}
	call := func(name, method, query string, h http.Header, body any) (int, http.Header, map[string]any) {
		t.Helper()
		var raw []byte
		if body != nil {
			raw, _ = json.Marshal(body)
		}
		res, err := names[name](handler.Request{Method: method, QueryString: query, Body: raw, Header: h})
		if err != nil {
			t.Fatal(err)
		}
		if err := contract.Check(method, "/function/"+name, query, res.StatusCode, res.Header, res.Body); err != nil {
			t.Errorf("%s %s %s: %v", method, name, res.Body, err)
		}
		var v map[string]any
		if err := json.Unmarshal(res.Body, &v); err != nil {
			t.Fatalf("%d %s: %v", res.StatusCode, res.Body, err)
		}
		return res.StatusCode, res.Header, v
	}
	mux.HandleFunc("POST /function/confirm", func(rw http.ResponseWriter, r *http.Request) {
		raw := make([]byte, r.ContentLength)
		if _, err := r.Body.Read(raw); err != nil && err.Error() != "EOF" {
			t.Error(err)
		}
		res, _ := confirm.Handle(handler.Request{Method: r.Method, QueryString: r.URL.RawQuery, Body: raw, Header: r.Header})
		rw.WriteHeader(res.StatusCode)
	})
	as := func(who string, more ...string) http.Header {
		token, _, err := account.Issue(ring, account.DefaultAudience, account.Account{ID: who}, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{"Authorization": {"Bearer " + token}, "Idempotency-Key": {w.key()}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	taken := w.sellOut()
	wish := func() map[string]any {
		return map[string]any{"sale": fmt.Sprint(w.sale), "classes": []string{"second", "first"}, "from": "0", "to": "3", "quantity": 1,
			"together": true, "gateway": "sandbox", "contact": map[string]any{"email": "a@example.org"}}
	}
	queue := func(who string) string {
		status, _, v := call("standby", "POST", "", as(who), wish())
		if status != http.StatusCreated || v["state"] != "authorising" || v["position"] != nil {
			t.Fatalf("%d %v", status, v)
		}
		at := v["authorise"].(map[string]any)
		if at["redirect_url"] == nil {
			t.Errorf("%v", at)
		}
		w.act(at["reference"].(string), sandboxgw.Act{Do: "authorise"})
		id := v["order"].(string)
		w.eventually("queued", func() bool {
			_, _, v := call("standby", "GET", "order="+id, as(who), nil)
			return v["state"] == "queued" && v["position"] != nil
		})
		return id
	}
	first, second := queue("a"), queue("b")
	_, _, v := call("standby", "GET", "order="+second, as("b", "Accept-Language", "zh"), nil)
	if p := v["position"].(map[string]any); p["exact"] != 2.0 || v["message"] != "您已在候补队列中，有合适的席位会自动为您兑现。" || len(v["queues"].([]any)) != 2 {
		t.Errorf("%v", v)
	}
	for who, order := range map[string]string{"a": second, "b": first, "c": "O0"} {
		if status, _, v := call("standby", "GET", "order="+order, as(who), nil); status != http.StatusNotFound {
			t.Errorf("%v", v)
		}
	}

	// Nobody who reads a table that is locked is answered: who waits reads none.
	tx, err := w.db.Owner.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(w.ctx, `LOCK TABLE standby_order, standby_queue, account_sale, payment IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 500 {
		if status, _, v := call("standby", "GET", "order="+first, as("a"), nil); status != http.StatusOK || v["position"].(map[string]any)["exact"] != 1.0 {
			t.Fatalf("%d %v", status, v)
		}
	}
	t.Logf("500 reads in %s", time.Since(begun))
	if err := tx.Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}

	// Leaving: another's order is not found, more than the order is refused.
	if status, _, _ := call("standby", "POST", "", as("b"), map[string]any{"order": first, "cancel": true}); status != http.StatusNotFound {
		t.Error("another's order was left")
	}
	if status, _, _ := call("standby", "POST", "", as("a"), map[string]any{"order": first, "cancel": true, "quantity": 2}); status != http.StatusUnprocessableEntity {
		t.Error("an order was left and changed")
	}
	if status, _, _ := call("standby", "POST", "", as("a"), map[string]any{"order": first}); status != http.StatusUnprocessableEntity {
		t.Error("an order was left without a word")
	}
	h := as("a")
	for i := range 2 {
		status, header, v := call("standby", "POST", "", h, map[string]any{"order": first, "cancel": true})
		if status != http.StatusOK || v["state"] != "cancelled" || (header.Get("Idempotent-Replay") == "true") != (i == 1) {
			t.Errorf("%d %v %v", status, header, v)
		}
	}

	// A seat comes free: b is next, and is told without asking anew.
	w.give(taken[7])
	call("match", "POST", "", nil, map[string]any{"sale": fmt.Sprint(w.sale)})
	nudge := http.Header{"X-Topic": {"order.matched.0"}}
	_, _, did := call("pay", "POST", "", nudge, map[string]any{"sale": fmt.Sprint(w.sale)})
	if did["did"].(map[string]any)["captured"] != 1.0 {
		t.Errorf("%v", did)
	}
	w.eventually("booked", func() bool {
		_, _, v = call("standby", "GET", "order="+second, as("b"), nil)
		return v["state"] == "booked"
	})
	if v["class"] != "first" || v["booking"] == nil || v["price"].(map[string]any)["amount"] != 2700.0 || v["message"] != "Standby successful" {
		t.Errorf("%v", v)
	}
	_, _, all := call("standby", "GET", "", as("b"), nil)
	if list := all["orders"].([]any); len(list) != 1 || list[0].(map[string]any)["order"] != second {
		t.Errorf("%v", all)
	}
	// A nudge that says nothing, or nonsense, is a look at all and no error.
	for _, body := range []any{nil, "x", map[string]any{"sale": "no"}, map[string]any{"sale": "999"}} {
		if status, _, v := call("pay", "POST", "", nudge, body); status != http.StatusOK {
			t.Errorf("%v: %d %v", body, status, v)
		}
	}
	if status, _, v := call("standby", "POST", "", as("c"), map[string]any{"sale": fmt.Sprint(w.sale), "colour": "red"}); status != http.StatusBadRequest {
		t.Errorf("%d %v", status, v)
	}
	w.settled()

	// Redis is away: the order waits all the same, its position is known later.
	redis.Kill()
	status, _, v := call("standby", "POST", "", as("d"), wish())
	if status != http.StatusCreated {
		t.Fatalf("%d %v", status, v)
	}
	w.act(v["authorise"].(map[string]any)["reference"].(string), sandboxgw.Act{Do: "authorise"})
	order := v["order"].(string)
	w.eventually("pending", func() bool {
		_, _, v = call("standby", "GET", "order="+order, as("d"), nil)
		return v["state"] == "pending"
	})
	if v["position"] != nil || v["message"] != "Queued. System busy, position available later" {
		t.Errorf("%v", v)
	}
}
