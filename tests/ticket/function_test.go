package ticket

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	handler "github.com/openfaas/templates-sdk/go-http"

	function "handler/function/functions/ticket"
	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/fn"
	"handler/function/shared/id"
	"handler/function/shared/key"
	"handler/function/shared/ticket"
	"handler/function/tests/contract"
	"handler/function/tests/harness"
)

// The function as it is called. One test: the process has one App.
func TestFunction(t *testing.T) {
	w := setup(t)
	secrets := harness.Secrets(t, w.db, nil, nil)
	for name, value := range map[string]string{"smtp-url": w.smtp.URL, "sms-url": w.sms.url} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: secrets, Test: true, Audience: account.DefaultAudience}))
	keys := func(name string) key.Ring {
		b, err := os.ReadFile(filepath.Join(secrets, name))
		if err != nil {
			t.Fatal(err)
		}
		r, err := key.Parse(string(b))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	token := func(name string, role account.Role) string {
		s, _, err := account.Issue(keys("account-key"), "", account.Account{ID: name, Role: role, Org: "via"}, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + s
	}
	call := func(method, query, body, auth, accept string) handler.Response {
		h := http.Header{}
		if auth != "" {
			h.Set("Authorization", auth)
		}
		if accept != "" {
			h.Set("Accept", accept)
		}
		return contract.Call(t, "ticket", function.Handle, handler.Request{Method: method, QueryString: query, Body: []byte(body), Header: h})
	}
	code := func(res handler.Response) string {
		var p struct{ Code string }
		_ = json.Unmarshal(res.Body, &p)
		return p.Code
	}
	ids := id.New(keys("id-key"))
	number := w.book(two, booking.Contact{Email: "zoe@example.org"}, 1, 2)
	name, locator := ids.Booking(w.sale, number), ids.Locator(w.sale, number)
	ana := token("ana", account.Customer)

	// JSON, by id and by locator.
	var seen struct {
		Locator string
		Seats   []struct{ Seat, Passenger, QR string }
	}
	for _, which := range []string{name, locator, strings.ToLower(locator)} {
		res := call("GET", "booking="+which, "", ana, "")
		if err := json.Unmarshal(res.Body, &seen); err != nil || res.StatusCode != 200 || seen.Locator != locator || len(seen.Seats) != 2 ||
			seen.Seats[0].Seat != "3-1A" || seen.Seats[0].Passenger != "张伟" {
			t.Errorf("%s: %d %s", which, res.StatusCode, res.Body)
		}
	}
	// field case 65: names of other scripts come back as they were written.
	people := []booking.Passenger{{Name: "विजय"}, {Name: "عبد الله דוד"}, {Name: "Ana 🎷"}}
	var other struct{ Seats []struct{ Passenger string } }
	third := w.book(people, booking.Contact{}, 4, 5, 6)
	if err := json.Unmarshal(call("GET", "booking="+ids.Booking(w.sale, third), "", ana, "").Body, &other); err != nil || len(other.Seats) != 3 {
		t.Fatalf("%+v, %v", other, err)
	}
	for i, p := range people {
		if other.Seats[i].Passenger != p.Name {
			t.Errorf("%q came back as %q", p.Name, other.Seats[i].Passenger)
		}
	}
	// The code is good with the public keys alone.
	var public struct{ Keys map[string]string }
	if err := json.Unmarshal(call("GET", "keys=public", "", "", "").Body, &public); err != nil {
		t.Fatal(err)
	}
	known := ticket.PublicKeys{}
	for kid, k := range public.Keys {
		b, err := base64.StdEncoding.DecodeString(k)
		if err != nil || len(b) != ed25519.PublicKeySize {
			t.Fatalf("%s %v", k, err)
		}
		known[kid] = b
	}
	if p, err := ticket.Verify(known, seen.Seats[1].QR); err != nil || p.Booking != number || p.SeatName != "3-2A" {
		t.Errorf("%+v, %v", p, err)
	}
	// Paper and calendar.
	if res := call("GET", "booking="+name, "", ana, "application/pdf"); !bytes.HasPrefix(res.Body, []byte("%PDF-")) || res.Header.Get("Content-Type") != "application/pdf" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	if res := call("GET", "booking="+name, "", ana, "text/html, text/calendar;q=0.9, */*;q=0.1"); !bytes.HasPrefix(res.Body, []byte("BEGIN:VCALENDAR")) {
		t.Errorf("%d %s", res.StatusCode, res.Body)
	}
	if res := call("GET", "booking="+name, "", ana, "text/html, */*"); !json.Valid(res.Body) {
		t.Errorf("%d %s", res.StatusCode, res.Body)
	}

	// What is refused.
	held := w.book(two[:1], booking.Contact{}, 3)
	w.exec(`UPDATE booking SET state = 'cancelled', ended_at = now() WHERE sale_id = $1 AND number = $2`, w.sale, held)
	for what, c := range map[string]struct{ method, query, body, auth, code string }{
		"another's":         {"GET", "booking=" + name, "", token("bob", account.Customer), "not-found"},
		"made up":           {"GET", "booking=B123", "", ana, "not-found"},
		"not booked":        {"GET", "booking=" + ids.Booking(w.sale, held), "", ana, "wrong-state"},
		"nobody":            {"GET", "booking=" + name, "", "", "unauthenticated"},
		"no booking":        {"GET", "", "", ana, "bad-request"},
		"unknown parameter": {"GET", "booking=" + name + "&x=1", "", ana, "bad-request"},
		"other keys":        {"GET", "keys=private", "", "", "bad-request"},
		"scan by nobody":    {"POST", "", `{"scan":"x","scan_id":"1"}`, "", "unauthenticated"},
		"scan by holder":    {"POST", "", `{"scan":"x","scan_id":"1"}`, ana, "forbidden"},
		"no scan_id":        {"POST", "", `{"scan":"x"}`, token("g", account.Gate), "invalid"},
		"no scan":           {"POST", "", `{"scan_id":"1"}`, token("g", account.Gate), "invalid"},
		"long scan_id":      {"POST", "", `{"scan":"x","scan_id":"` + strings.Repeat("x", 129) + `"}`, token("g", account.Gate), "invalid"},
		"unknown field":     {"POST", "", `{"scan":"x","scan_id":"1","force":true}`, token("g", account.Gate), "bad-request"},
		"other type":        {"POST", "", `{"scan":7,"scan_id":"1"}`, token("g", account.Gate), "bad-request"},
		"DELETE":            {"DELETE", "", "", ana, "bad-request"},
	} {
		if res := call(c.method, c.query, c.body, c.auth, ""); code(res) != c.code {
			t.Errorf("%s: %d %s", what, res.StatusCode, res.Body)
		}
	}

	// A scan.
	body, _ := json.Marshal(map[string]string{"scan": seen.Seats[0].QR, "scan_id": "s1"})
	for range 2 {
		var a ticket.Scan
		res := call("POST", "", string(body), token("g", account.Gate), "")
		if err := json.Unmarshal(res.Body, &a); err != nil || res.StatusCode != 200 || a.Result != ticket.Valid || a.Passenger != "张伟" {
			t.Errorf("%d %s", res.StatusCode, res.Body)
		}
	}

	// Nudges with any body; nothing in them is believed.
	for _, nudge := range []string{`{"event_id":"1","sale":"999"}`, `[]`, `"x"`, `7`, ``, `not JSON`} {
		res := call("POST", "", nudge, "", "")
		var did struct{ Did map[string]int }
		if err := json.Unmarshal(res.Body, &did); err != nil || res.StatusCode != 200 {
			t.Errorf("%q: %d %s", nudge, res.StatusCode, res.Body)
		}
	}
	if n := len(w.smtp.Mails("")); n != 1 {
		t.Errorf("%d mails", n)
	}
}
