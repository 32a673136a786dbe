package handlers_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"handler/function/shared/account"
	"handler/function/shared/id"
)

// rounds is how many mutated requests each base request gets. A longer run:
// HOLDFAST_FUZZ_ROUNDS=5000 go test ./tests/handlers
const rounds = 150

// wantDecoded is the least share of mutated requests that must get past
// decoding, or the test would only try the decoder.
const wantDecoded = 0.30

// Whatever comes, the answer is in the contract, a refusal names the field, and
// nothing is a 500.
func TestHandlersWithMutatedRequests(t *testing.T) {
	w := newWorld(t, "http://127.0.0.1:1")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w.rng = rand.New(rand.NewPCG(seed, 1))
	n := rounds
	if v := os.Getenv("HOLDFAST_FUZZ_ROUNDS"); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil {
			t.Fatal(err)
		}
	}

	base := w.requests()
	tried := map[string]bool{}
	for i, r := range base {
		status, body := w.send(r)
		if status >= 500 && status != http.StatusServiceUnavailable || status == http.StatusBadRequest || status == http.StatusUnprocessableEntity {
			t.Errorf("the valid request %d (%s %s) answered %d %s", i, r.method, r.function, status, body)
		}
		tried[r.function] = true
	}
	for name := range w.handlers {
		if !tried[name] {
			t.Errorf("no request for the function %s", name)
		}
	}
	sent, decoded := 0, 0
	for range n {
		for _, r := range base {
			status, _ := w.send(w.mutate(r))
			sent++
			if status != http.StatusBadRequest {
				decoded++
			}
		}
	}
	share := float64(decoded) / float64(sent)
	t.Logf("%d mutated requests, %.0f %% got past decoding", sent, 100*share)
	if share < wantDecoded {
		t.Errorf("only %.0f %% got past decoding, want %.0f %%", 100*share, 100*wantDecoded)
	}
}

// requests makes a world and a valid request of each kind in it.
func (w *world) requests() []request {
	organiser, gate, customer := w.token("org", account.Organiser), w.token("gate", account.Gate), w.token("ann", account.Customer)
	post := func(function string, header http.Header, body any) request {
		return request{function: function, method: http.MethodPost, body: body, header: header, query: url.Values{}}
	}
	get := func(function string, header http.Header, query string) request {
		q, _ := url.ParseQuery(query)
		return request{function: function, method: http.MethodGet, header: header, query: q}
	}
	sale := w.must(post("catalog", organiser, object{"sale": saleDocument(nil)}), "sale")
	roomed := w.must(post("catalog", organiser, object{"sale": saleDocument(object{"mode": "on", "draw_opens_at": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "draw_seconds": 30})}), "sale")
	place := w.must(post("join-room", customer, object{"sale": roomed}), "place_token")
	hold := object{
		"sale": sale, "class": "second", "from": "A", "to": "C", "quantity": 1,
		"prefer":     object{"together": true, "window": false, "accessible": false},
		"passengers": []any{object{"name": "Zoë 张伟", "category": "adult", "document": "X1"}},
		"contact":    object{"email": "a@example.org", "phone": "+1 555 0100", "language": "en"}, "group": "g1",
	}
	booking := w.must(post("hold", customer, hold), "booking")
	// Sold out: its one seat is held.
	full := saleDocument(nil)
	coach := full["coaches"].([]any)[0].(object)
	coach["seats"] = coach["seats"].([]any)[:1]
	soldOut := w.must(post("catalog", organiser, object{"sale": full}), "sale")
	w.must(post("hold", w.token("bob", account.Customer), object{"sale": soldOut, "class": "second", "from": "A", "to": "C", "quantity": 1}), "booking")
	standby := object{
		"sale": soldOut, "classes": []any{"second"}, "from": "A", "to": "B", "quantity": 1, "together": true, "gateway": "sandbox",
		"until": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "return_url": "http://127.0.0.1/back",
		"passengers": hold["passengers"], "contact": hold["contact"],
	}
	number, err := strconv.ParseInt(soldOut, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	order := id.New(w.ring("id-key")).Order(id.OrderRef{Sale: number, Number: w.services.DB.QueueOrder(w.t, number, "ann", "second", 1, 2, 1),
		From: 1, To: 2, Classes: []int{0}, Account: id.TagOf("ann")})
	byNumber := object{"sale": sale, "class": "second", "from": "A", "to": "B", "seats": []any{"1-9A", "1-9B"}}
	return []request{
		get("catalog", nil, "kind=train&date="+time.Now().Add(48*time.Hour).UTC().Format(time.DateOnly)+"&from=A&to=C&q=Fuzz"),
		get("catalog", nil, "sale="+sale+"&from=A&to=B"),
		post("catalog", organiser, object{"sale": saleDocument(nil)}),
		post("catalog", organiser, object{"sale": sale, "patch": object{"title": "Other", "hold_seconds": 200}}),
		post("catalog", organiser, object{"sale": sale, "add_seats": object{"class": "second", "coach": "9", "seats": []any{object{"seat": "1A", "row": 1, "column": "A"}}}}),
		post("catalog", organiser, object{"sale": sale, "block": object{"seats": []any{"1-1A"}, "from": "A", "to": "B", "reason": "broken"}}),
		post("sign-in", nil, object{"email": "a@example.org"}),
		post("sign-in", nil, object{"email": "a@example.org", "code": "123456"}),
		get("join-room", nil, "sale="+roomed),
		post("join-room", customer, object{"sale": roomed}),
		post("join-room", http.Header{"Authorization": customer["Authorization"], "Place-Token": {place}}, object{"sale": roomed, "rejoin": false}),
		post("admit-tick", nil, object{}),
		get("seat-map", nil, "sale="+sale+"&from=A&to=C&class=second"),
		post("hold", customer, hold),
		post("hold", customer, byNumber),
		post("hold", customer, object{"booking": booking, "passengers": []any{object{"name": "Other Name"}}}),
		get("hold", customer, "booking="+booking),
		get("hold", customer, ""),
		post("pay", customer, object{"booking": booking, "gateway": "sandbox", "return_url": "http://127.0.0.1/back"}),
		get("pay", customer, "payment=P0"),
		{function: "confirm", method: http.MethodPost, query: url.Values{"gateway": {"sandbox"}}, body: object{"id": "e1", "type": "payment.succeeded", "payment": object{"reference": "r", "amount": 1, "currency": "CAD"}}},
		post("release-event", customer, object{"type": "RESCHEDULE", "booking": booking, "preview": true,
			"to": object{"sale": sale, "class": "second", "from": "A", "to": "C", "quantity": 1, "seats": []any{"1-9A"}}}),
		post("release-event", customer, object{"type": "REFUND", "booking": booking, "preview": true}),
		post("standby", customer, standby),
		get("standby", customer, "order="+order),
		get("standby", customer, ""),
		post("standby", customer, object{"order": order, "cancel": true}),
		post("match", nil, object{"sale": soldOut}),
		{function: "pay", method: http.MethodPost, header: http.Header{"X-Topic": {"order.matched.0"}}, body: object{"sale": soldOut}},
		get("ticket", customer, "booking="+booking),
		post("ticket", gate, object{"scan": "HF1.xyz", "scan_id": "s1"}),
		post("reconcile", nil, object{}),
		get("web", nil, "page=home"),
	}
}

// mutate changes a request in one to three places.
func (w *world) mutate(r request) request {
	q := url.Values{}
	for k, v := range r.query {
		q[k] = append([]string(nil), v...)
	}
	r.query = q
	body := clone(r.body)
	for range 1 + w.rng.IntN(3) {
		switch {
		case body != nil && w.rng.IntN(8) > 0:
			body = w.mutateJSON(body)
		case len(q) > 0 && w.rng.IntN(4) > 0:
			for k := range q {
				q[k] = []string{w.text(q[k][0])}
				break
			}
		case w.rng.IntN(6) == 0:
			q.Set("unknown"+w.text(""), "1")
		}
	}
	r.body = body
	if body != nil && w.rng.IntN(20) == 0 {
		raw, _ := json.Marshal(body)
		switch w.rng.IntN(4) {
		case 0:
			raw = raw[:w.rng.IntN(len(raw)+1)]
		case 1:
			raw = append(raw, raw...)
		case 2:
			raw[w.rng.IntN(len(raw))] ^= byte(1 << w.rng.IntN(8))
		default:
			raw = []byte(strings.Repeat("[", 5000))
		}
		r.body = raw
	}
	return r
}

func clone(v any) any {
	if v == nil {
		return nil
	}
	b, _ := json.Marshal(v)
	var c any
	_ = json.Unmarshal(b, &c)
	return c
}

// mutateJSON changes one value somewhere in v, mostly to another of its type.
func (w *world) mutateJSON(v any) any {
	switch x := v.(type) {
	case object:
		if len(x) == 0 || w.rng.IntN(12) == 0 {
			x[w.text("extra")] = w.any()
			return x
		}
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		k := keys[w.rng.IntN(len(keys))]
		if w.rng.IntN(10) == 0 {
			delete(x, k)
			return x
		}
		x[k] = w.mutateJSON(x[k])
		return x
	case []any:
		switch {
		case len(x) > 0 && w.rng.IntN(3) > 0:
			i := w.rng.IntN(len(x))
			x[i] = w.mutateJSON(x[i])
		case len(x) > 0 && w.rng.IntN(2) == 0:
			return x[:w.rng.IntN(len(x))]
		case len(x) > 0:
			for len(x) < 200 && w.rng.IntN(50) > 0 {
				x = append(x, clone(x[0]))
			}
		default:
			return []any{w.any()}
		}
		return x
	case string:
		if w.rng.IntN(15) == 0 {
			return w.any()
		}
		return w.text(x)
	case float64:
		if w.rng.IntN(15) == 0 {
			return w.any()
		}
		return w.number(x)
	case bool:
		if w.rng.IntN(8) == 0 {
			return w.any()
		}
		return !x
	default:
		return w.any()
	}
}

func (w *world) any() any {
	return []any{nil, true, -1, 1.5, "", "x", []any{}, object{}, []any{nil}, object{"a": nil}, math.MaxInt64, 1e300}[w.rng.IntN(12)]
}

func (w *world) number(x float64) any {
	return []any{0, -1, 1, x + 1, -x, x * 1e9, math.MaxInt32, math.MaxInt64, math.MinInt64, 0.5, 1e300, 65536, 2147483648}[w.rng.IntN(13)]
}

var texts = []string{"", " ", "0", "-1", "1", "2", "x", "A", "B", "C", "null", "2026-13-45", "2026-02-30T25:00:00Z", "0001-01-01T00:00:00Z",
	"9999-12-31T23:59:59Z", "294277-01-01T00:00:00Z", "\x00", "a\x00b", "\u202e", "\ufeff", "张伟", "🎫", "' OR 1=1 --", "%", "_", "../../etc/passwd",
	"<script>", "{{.}}", "1e9", "99999999999999999999", "BTC", "JPY", "Mars/Olympus", "UTC", "infinity", "\\u0000", "\"", "\\", "a@b", "@", "+", "1-1A", "1-9C"}

func (w *world) text(x string) string {
	switch w.rng.IntN(8) {
	case 0:
		return strings.Repeat("é", 1<<w.rng.IntN(15))
	case 1:
		return x + texts[w.rng.IntN(len(texts))]
	case 2:
		if len(x) > 0 {
			return x[:w.rng.IntN(len(x))]
		}
	case 3:
		return string([]byte{byte(w.rng.IntN(256)), byte(w.rng.IntN(256))})
	case 4:
		return strings.ToUpper(x)
	}
	return texts[w.rng.IntN(len(texts))]
}
