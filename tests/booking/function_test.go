package booking_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	hold "handler/function/functions/hold"
	seatmap "handler/function/functions/seat-map"
	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/fn"
	"handler/function/shared/key"
	"handler/function/shared/room"
	"handler/function/tests/contract"
	"handler/function/tests/harness"

	handler "github.com/openfaas/templates-sdk/go-http"
)

// functions are hold and seat-map as a replica serves them. The replica is the
// process's, so the tests that use it are parts of one.
type functions struct {
	*world
	app *fn.App
}

func (f *functions) token(a string, role account.Role, org string) string {
	f.Helper()
	ring, err := f.app.Keys("account-key")
	if err != nil {
		f.Fatal(err)
	}
	token, _, err := account.Issue(ring, "", account.Account{ID: a, Role: role, Org: org}, time.Now(), hour)
	if err != nil {
		f.Fatal(err)
	}
	return token
}

func (f *functions) admit(a room.Admit) string {
	f.Helper()
	tokens, err := f.app.Tokens()
	if err != nil {
		f.Fatal(err)
	}
	token, err := tokens.IssueAdmit(a)
	if err != nil {
		f.Fatal(err)
	}
	return token
}

// shown is a sale that the replica knows of at once.
func (f *functions) shown(legs, seats int) *catalog.Sale {
	f.Helper()
	sale := f.sale(legs, seats, "")
	sales, err := f.app.Sales()
	if err != nil {
		f.Fatal(err)
	}
	sales.Forget(sale.ID)
	return sale
}

type reply struct {
	status int
	header http.Header
	body   map[string]any
	raw    []byte
}

func call(t testing.TB, function string, method, query, body string, header http.Header) reply {
	t.Helper()
	req := handler.Request{Method: method, QueryString: query, Body: []byte(body), Header: header}
	if header == nil {
		req.Header = http.Header{}
	}
	res := contract.Call(t, function, map[string]func(handler.Request) (handler.Response, error){"hold": hold.Handle, "seat-map": seatmap.Handle}[function], req)
	r := reply{status: res.StatusCode, header: res.Header, raw: res.Body}
	if len(res.Body) > 0 && res.Header.Get("Content-Encoding") == "" {
		if err := json.Unmarshal(res.Body, &r.body); err != nil {
			t.Fatalf("%s: %v", res.Body, err)
		}
	}
	return r
}

func TestFunctions(t *testing.T) {
	services := harness.New(t)
	app := fn.NewApp(fn.Config{Secrets: services.Secrets, Test: true, Audience: account.DefaultAudience})
	fn.SetDefault(app)
	f := &functions{world: on(t, services.DB), app: app}
	t.Run("hold", f.testHold)
	t.Run("no admission", f.testNoAdmission)
	t.Run("map", f.testMap)
	t.Run("limit", f.testLimit)
}

func (f *functions) testHold(t *testing.T) {
	sale := f.shown(2, 4)
	header := func(key string) http.Header {
		return http.Header{"Authorization": {"Bearer " + f.token("anna", "", "")}, "Idempotency-Key": {key}}
	}
	body := fmt.Sprintf(`{"sale":"%d","class":"second","from":"0","to":"2","quantity":2,"prefer":{"together":true},"passengers":[{"name":"Anna"}]}`, sale.ID)
	first := call(t, "hold", "POST", "", body, header("k1"))
	if first.status != 201 || first.body["state"] != "held" || first.header.Get("Idempotent-Replay") != "" || len(first.body["seats"].([]any)) != 2 {
		t.Fatalf("%d %s", first.status, first.raw)
	}
	for _, field := range []string{"booking", "locator", "price", "ends_at", "may_extend_until", "server_time", "quantity"} {
		if first.body[field] == nil {
			t.Errorf("no %s in %s", field, first.raw)
		}
	}
	replay := call(t, "hold", "POST", "", body, header("k1"))
	if replay.status != 201 || replay.header.Get("Idempotent-Replay") != "true" || replay.body["server_time"] == first.body["server_time"] {
		t.Errorf("replay: %d %v %s", replay.status, replay.header, replay.raw)
	}
	delete(replay.body, "server_time")
	delete(first.body, "server_time")
	if fmt.Sprint(replay.body) != fmt.Sprint(first.body) {
		t.Errorf("another answer: %v, not %v", replay.body, first.body)
	}
	seats, _ := json.Marshal(first.body["seats"])
	again := call(t, "hold", "POST", "", fmt.Sprintf(`{"sale":"%d","class":"second","from":"0","to":"2","seats":%s}`, sale.ID, seats), header("k2"))
	if again.status != 200 || again.body["booking"] != first.body["booking"] {
		t.Errorf("the same seats: %d %s", again.status, again.raw)
	}
	id := first.body["booking"].(string)
	renamed := call(t, "hold", "POST", "", `{"booking":"`+id+`","passengers":[{"name":"Zoë"},{"name":"张伟"}]}`, header("k3"))
	if renamed.status != 200 || !strings.Contains(string(renamed.raw), "张伟") {
		t.Errorf("rename: %d %s", renamed.status, renamed.raw)
	}
	for query, want := range map[string]int{"booking=" + id: 200, "locator=" + first.body["locator"].(string): 200, "": 200, "booking=x": 404, "number=1": 400} {
		if got := call(t, "hold", "GET", query, "", header("")); got.status != want {
			t.Errorf("GET %s: %d %s", query, got.status, got.raw)
		}
	}
	for what, test := range map[string]struct {
		body   string
		header http.Header
		status int
		code   string
	}{
		"no token":             {body, http.Header{"Idempotency-Key": {"x"}}, 401, "unauthenticated"},
		"no key":               {body, http.Header{"Authorization": header("")["Authorization"]}, 422, "invalid"},
		"another body":         {strings.Replace(body, "2,", "1,", 1), header("k1"), 422, "idempotency-mismatch"},
		"an unknown field":     {`{"sale":"1","colour":"red"}`, header("x1"), 400, "bad-request"},
		"no sale":              {`{"sale":"999999","class":"second","from":"0","to":"2","quantity":1}`, header("x2"), 404, "not-found"},
		"both kinds":           {`{"booking":"` + id + `","quantity":1,"passengers":[{"name":"x"}]}`, header("x3"), 422, "invalid"},
		"a wrong kind of sale": {`{"sale":7}`, header("x4"), 400, "bad-request"},
	} {
		got := call(t, "hold", "POST", "", test.body, test.header)
		if got.status != test.status || got.body["code"] != test.code {
			t.Errorf("%s: %d %s", what, got.status, got.raw)
		}
	}
}

// A hold without an admission never reaches Postgres: all it may cost is the look
// at the sale and its room that the replica takes about twice a second anyway.
func (f *functions) testNoAdmission(t *testing.T) {
	f.owner(`CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	sale := f.sale(1, 50, "")
	roomID, err := room.Create(f.ctx, f.store, mustKeys(t, f.app, "draw-secret"), room.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	f.owner(`UPDATE sale SET room_id = $2 WHERE sale_id = $1`, sale.ID, roomID)
	sales, err := f.app.Sales()
	if err != nil {
		t.Fatal(err)
	}
	sales.Forget(sale.ID)
	good := room.Admit{Room: roomID, Generation: 1, Account: "p1", Admission: 1, For: room.ForHold, Issued: time.Now(), Ends: time.Now().Add(hour)}
	as := func(change func(a *room.Admit)) string { a := good; change(&a); return f.admit(a) }
	forged := f.admit(good)
	forged = forged[:len(forged)-4] + "AAAA"
	tokens := map[string]string{
		"":                                   "admit-required",
		as(func(a *room.Admit) { a.Room++ }): "admit-other",
		as(func(a *room.Admit) { a.Account = "p2" }):                          "admit-other",
		as(func(a *room.Admit) { a.For = room.ForStandby }):                   "admit-other",
		as(func(a *room.Admit) { a.Ends = time.Now().Add(-2 * time.Second) }): "admit-expired",
		forged:                "bad-token",
		f.token("p1", "", ""): "bad-token",
	}
	body := fmt.Sprintf(`{"sale":"%d","class":"second","from":"0","to":"1","quantity":1}`, sale.ID)
	bearer := "Bearer " + f.token("p1", "", "")
	post := func(token string) reply {
		h := http.Header{"Authorization": {bearer}, "Idempotency-Key": {fmt.Sprint("k", f.keys.Add(1))}}
		if token != "" {
			h.Set("Admit-Token", token)
		}
		return call(t, "hold", "POST", "", body, h)
	}
	for token, code := range tokens {
		got := post(token)
		if got.body["code"] != code {
			t.Errorf("%s, not %s", got.raw, code)
		}
	}
	bearers := make([]string, 200)
	for i := range bearers {
		bearers[i] = "Bearer " + f.token(fmt.Sprint("crowd", i), "", "")
	}
	calls := func() int64 {
		return scan[int64](f.world, `SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
			WHERE d.datname = current_database() AND s.query NOT LIKE '%pg_stat%'`)
	}
	before, from := calls(), time.Now()
	got := together(2000, func(i int) string {
		h := http.Header{"Authorization": {bearers[i%200]}, "Idempotency-Key": {fmt.Sprint("k", i)}, "Admit-Token": {f.admitOf(i, good)}}
		return fmt.Sprint(call(t, "hold", "POST", "", body, h).body["code"])
	})
	took := time.Since(from).Seconds()
	if got["admit-other"]+got["admit-required"] != 2000 {
		t.Errorf("%v", got)
	}
	if n := calls() - before; float64(n) > 4*took+6 {
		t.Errorf("2,000 holds without an admission made %d statements in %.1f s", n, took)
	}
	if n := scan[int64](f.world, `SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s WHERE query LIKE '%hold_seats($1%' AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 1 {
		t.Logf("hold_seats ran %d times so far", n)
	}
	if n := scan[int](f.world, `SELECT count(*) FROM idempotency WHERE sale_id = $1`, sale.ID); n != 0 {
		t.Errorf("%d keys of refused holds in Postgres", n)
	}
	if ok := post(f.admit(good)); ok.status != 201 {
		t.Errorf("admitted: %d %s", ok.status, ok.raw)
	}
	// A seller of the organisation, and everyone where the room is off, need none.
	seller := http.Header{"Authorization": {"Bearer " + f.token("desk", account.Seller, "o")}, "Idempotency-Key": {"s1"}}
	if got := call(t, "hold", "POST", "", body, seller); got.status != 201 {
		t.Errorf("a seller: %d %s", got.status, got.raw)
	}
	seller.Set("Authorization", "Bearer "+f.token("desk", account.Seller, "another"))
	if got := call(t, "hold", "POST", "", body, seller); got.body["code"] != "admit-required" {
		t.Errorf("another organisation's seller: %d %s", got.status, got.raw)
	}
	off := room.Off
	if err := room.Patch(f.ctx, f.store, roomID, room.Change{Mode: &off}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); ; {
		h := http.Header{"Authorization": {bearers[3]}, "Idempotency-Key": {fmt.Sprint("off", f.keys.Add(1))}}
		got := call(t, "hold", "POST", "", body, h)
		if got.status == 201 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the room is off: %d %s", got.status, got.raw)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// admitOf is a token for another's room, or none.
func (f *functions) admitOf(i int, a room.Admit) string {
	if i%2 == 0 {
		return ""
	}
	a.Room++
	return f.admit(a)
}

func mustKeys(t *testing.T, app *fn.App, name string) (ring key.Ring) {
	t.Helper()
	ring, err := app.Keys(name)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func (f *functions) testMap(t *testing.T) {
	sale := f.shown(2, 1000)
	query := fmt.Sprintf("sale=%d&from=0&to=2&class=second", sale.ID)
	plain := call(t, "seat-map", "GET", query, "", nil)
	if plain.status != 200 || plain.header.Get("Cache-Control") != "public, max-age=1" || plain.body["stale"] != false {
		t.Fatalf("%d %v %s", plain.status, plain.header, plain.raw)
	}
	zipped := call(t, "seat-map", "GET", query, "", http.Header{"Accept-Encoding": {"gzip, br"}})
	r, err := gzip.NewReader(bytes.NewReader(zipped.raw))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(r); err != nil || len(back) < 300 || len(zipped.raw) > 400 {
		t.Errorf("%d bytes as sent, %d unpacked, %v", len(zipped.raw), len(back), err)
	}
	tag := http.Header{"If-None-Match": {`"x", ` + strings.TrimPrefix(plain.header.Get("ETag"), "W/")}}
	if same := call(t, "seat-map", "GET", query, "", tag); same.status != 304 || len(same.raw) != 0 || same.header.Get("ETag") == "" {
		t.Errorf("%d %v", same.status, same.header)
	}
	h := f.holdOne(sale)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got := call(t, "seat-map", "GET", query, "", tag); got.status == 200 {
			if left := got.body["classes"].([]any)[0].(map[string]any)["left"]; left != 999.0 {
				t.Errorf("%v left beside %v", left, h.Seats)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("a hold never changed the map")
		}
	}
	for query, want := range map[string]int{
		"sale=0":                  422,
		"sale=999999&from=0&to=2": 404,
		fmt.Sprintf("sale=%d&from=2&to=0", sale.ID):         422,
		fmt.Sprintf("sale=%d&from=0&to=2&class=x", sale.ID): 422,
		query + "&x=1": 400,
	} {
		if got := call(t, "seat-map", "GET", query, "", nil); got.status != want {
			t.Errorf("%s: %d %s", query, got.status, got.raw)
		}
	}
}

func (f *functions) holdOne(sale *catalog.Sale) *booking.Hold {
	f.Helper()
	return f.must(sale, f.wish(sale, "one", 1))
}

// One account's flood of holds is turned away, and does not count against others.
func (f *functions) testLimit(t *testing.T) {
	sale := f.shown(1, 10)
	body := fmt.Sprintf(`{"sale":"%d","class":"second","from":"0","to":"1","quantity":1}`, sale.ID)
	post := func(who string, i int) reply {
		return call(t, "hold", "POST", "", body, http.Header{"Authorization": {"Bearer " + f.token(who, "", "")}, "Idempotency-Key": {fmt.Sprint(i)}})
	}
	refused := 0
	for i := range 200 {
		if got := post("hasty", i); got.status == 429 {
			refused++
			if got.header.Get("Retry-After") == "" {
				t.Error("429 without Retry-After")
			}
		}
	}
	if refused == 0 {
		t.Error("two hundred holds in a row, none turned away")
	}
	if got := post("calm", 0); got.status != 201 {
		t.Errorf("another account: %d %s", got.status, got.raw)
	}
}
