package money

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	confirm "handler/function/functions/confirm"
	pay "handler/function/functions/pay"
	reconciler "handler/function/functions/reconcile"
	release "handler/function/functions/release-event"
	"handler/function/shared/account"
	"handler/function/shared/fn"
	"handler/function/shared/key"
	"handler/function/shared/sandbox"
	"handler/function/tests/contract"
	"handler/function/tests/harness"

	handler "github.com/openfaas/templates-sdk/go-http"
)

// The four functions as OpenFaaS calls them.
func TestFunctions(t *testing.T) {
	w := setup(t, options{})
	secrets := harness.Secrets(t, w.db, harness.Redis(t), harness.NATS(t))
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
	mux.Handle("/dev/gateway/", gw)
	app := fn.NewApp(fn.Config{Secrets: secrets, Test: true, SandboxURL: srv.URL + "/dev/gateway", Audience: account.DefaultAudience})
	fn.SetDefault(app)

	file, err := os.ReadFile(filepath.Join(secrets, "account-key"))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := key.Parse(string(file))
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := account.Issue(ring, account.DefaultAudience, account.Account{ID: "a"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]func(handler.Request) (handler.Response, error){
		"pay": pay.Handle, "confirm": confirm.Handle, "release-event": release.Handle, "reconcile": reconciler.Handle}
	call := func(name, method, query, body string, h http.Header) (handler.Response, map[string]any) {
		t.Helper()
		res, err := names[name](handler.Request{Method: method, QueryString: query, Body: []byte(body), Header: h})
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
		return res, v
	}
	mine := func(k string) http.Header {
		return http.Header{"Authorization": {"Bearer " + token}, "Idempotency-Key": {k}}
	}
	expect := func(what string, res handler.Response, v map[string]any, status int, code string) {
		t.Helper()
		if res.StatusCode != status || (code != "" && v["code"] != code) {
			t.Errorf("%s: %d %v, want %d %s", what, res.StatusCode, v, status, code)
		}
	}

	b := w.hold("a", 1)
	booking := w.ids.Booking(w.sale, b)
	body := `{"booking":"` + booking + `","gateway":"sandbox","return_url":"https://tickets.example/"}`

	res, v := call("pay", "POST", "", body, http.Header{"Idempotency-Key": {"1"}})
	expect("no token", res, v, 401, "unauthenticated")
	res, v = call("pay", "POST", "", body, http.Header{"Authorization": {"Bearer " + token}})
	expect("no key", res, v, 422, "invalid")
	res, v = call("pay", "POST", "", `{"booking":"B0","gateway":"sandbox"}`, mine("2"))
	expect("a made-up booking", res, v, 404, "not-found")
	res, v = call("pay", "POST", "", `{"booking":"`+booking+`","gateway":"sandbox","tip":1}`, mine("3"))
	expect("an unknown field", res, v, 400, "bad-request")
	res, v = call("pay", "POST", "", `{"booking":"`+booking+`","gateway":"stripe"}`, mine("4"))
	expect("another gateway", res, v, 422, "invalid")
	res, v = call("pay", "POST", "", `{"booking":"`+booking+`","gateway":"stripe"}`, mine("4"))
	expect("the same again", res, v, 422, "invalid")
	if res.Header.Get("Idempotent-Replay") != "true" {
		t.Error("a replayed refusal does not say so")
	}

	res, v = call("pay", "POST", "", body, mine("5"))
	expect("pay", res, v, 201, "")
	started := v
	gateway := v["gateway"].(map[string]any)
	res, v = call("pay", "POST", "", body, mine("5"))
	expect("pay again", res, v, 201, "")
	if res.Header.Get("Idempotent-Replay") != "true" || v["payment"] != started["payment"] || v["gateway"].(map[string]any)["client_secret"] != gateway["client_secret"] {
		t.Errorf("again: %v", v)
	}
	res, v = call("pay", "GET", "payment="+started["payment"].(string), "", http.Header{"Authorization": {"Bearer " + token}, "Accept-Language": {"zh"}})
	expect("GET", res, v, 200, "")
	if v["state"] != "pending" || v["checking"] != true || !strings.Contains(v["message"].(string), "核实") {
		t.Errorf("GET: %v", v)
	}

	event := `{"id":"e1","type":"payment.succeeded","payment":{"reference":"` + gateway["reference"].(string) + `","amount":12900,"currency":"CAD"}}`
	signed := func(at time.Time) http.Header {
		return http.Header{sandbox.SignatureHeader: {sandbox.Sign(w.ring.Sign(), at, []byte(event))}}
	}
	res, v = call("confirm", "POST", "gateway=sandbox", event, http.Header{sandbox.SignatureHeader: {"t=1,v1=00"}})
	expect("a forged event", res, v, 400, "bad-signature")
	res, v = call("confirm", "POST", "gateway=sandbox", event, signed(time.Now().Add(-6*time.Minute)))
	expect("an old event", res, v, 400, "bad-signature")
	res, v = call("confirm", "POST", "gateway=nowhere", event, signed(time.Now()))
	expect("another gateway", res, v, 422, "invalid")
	if w.state(b) != "held" {
		t.Error("a refused event had an effect")
	}
	for range 3 {
		res, v = call("confirm", "POST", "gateway=sandbox", event, signed(time.Now()))
		expect("the event", res, v, 200, "")
	}
	if v["received"] != true || w.state(b) != "booked" {
		t.Errorf("%v, %s", v, w.state(b))
	}

	give := `{"type":"REFUND","booking":"` + booking + `"}`
	res, v = call("release-event", "POST", "", `{"type":"REFUND","booking":"`+booking+`","preview":true}`, mine("6"))
	expect("preview", res, v, 200, "")
	res, v = call("release-event", "POST", "", give, mine("7"))
	expect("refund", res, v, 200, "")
	if v["state"] != "cancelled" || v["released"].([]any)[0] != "3-1A" || v["refund"].(map[string]any)["amount"] != 12900.0 || v["fee"].(map[string]any)["amount"] != 0.0 {
		t.Errorf("refund: %v", v)
	}
	res, v = call("release-event", "POST", "", `{"type":"ABANDON","booking":"`+booking+`"}`, mine("8"))
	expect("let a cancelled one go", res, v, 409, "wrong-state")

	res, v = call("reconcile", "POST", "", "anything", nil)
	expect("reconcile", res, v, 200, "")
	first, _ := json.Marshal(v)
	w.exec(`INSERT INTO outbox (sale_id, kind, subject, payload) VALUES ($1, 'refund', 'x', '{}')`, w.sale)
	_, v = call("reconcile", "POST", "", "", nil) // within the interval: from memory
	if again, _ := json.Marshal(v); string(again) != string(first) || w.outbox("refund", "subject = 'x' AND tries = 0") != 1 {
		t.Errorf("%s, then %s", first, again)
	}
}
