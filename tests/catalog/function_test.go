package catalog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"handler/function/tests/contract"
	"handler/function/tests/harness"
)

// client speaks to a platform; every answer is checked against the contract.
type client struct {
	*testing.T
	url   string
	http  *http.Client
	token map[string]string
	keys  int
}

func platform(t *testing.T) (*client, *harness.Platform) {
	t.Helper()
	p := harness.StartPlatform(t, harness.PlatformOptions{})
	c := &client{T: t, url: p.URL, token: map[string]string{}}
	c.http = &http.Client{Transport: &contract.Transport{Breach: func(err error) { t.Errorf("contract: %v", err) }}}
	for name, q := range map[string]string{
		"organiser": "account=olga&role=organiser&org=demo", "rival": "account=rita&role=organiser&org=rival", "customer": "account=carl",
	} {
		var a struct {
			Token string `json:"account_token"`
		}
		res, err := http.Get(p.URL + "/dev/token?" + q)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		c.token[name] = a.Token
	}
	return c, p
}

// ask sends a request and wants a status; body "" is a GET.
func (c *client) ask(who, query, body string, want int) (map[string]any, http.Header) {
	c.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, c.url+"/function/catalog?"+query, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+c.token[who])
	}
	if body != "" {
		c.keys++
		req.Header.Set("Idempotency-Key", fmt.Sprint("key-", c.keys))
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.Fatal(err)
	}
	if res.StatusCode != want {
		c.Fatalf("%s %s %.200s: %d %s; want %d", method, query, body, res.StatusCode, b, want)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		c.Fatalf("%s: %v", b, err)
	}
	return m, res.Header
}

// holdfast runs a command of the workbench.
func (c *client) holdfast(args ...string) (string, string, error) {
	cmd := exec.Command(harness.Binary(c.T), args...)
	cmd.Dir = harness.Root()
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+c.url)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return out.String(), errOut.String(), err
}

// From files to sales and back, over HTTP.
func TestFunction(t *testing.T) {
	t.Parallel()
	c, _ := platform(t)

	out, errOut, err := c.holdfast("--json", "import", "gtfs", "demo/feed", "--trip", "night", "--date", "next", "--layout", "demo/train.yaml", "--open")
	if err != nil {
		t.Fatal(err, errOut)
	}
	var made struct{ Sale, State string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Sale == "" || made.State != "open" {
		t.Fatalf("%s: %v", out, err)
	}
	again, errOut, err := c.holdfast("--json", "import", "gtfs", "demo/feed", "--trip", "night", "--date", "next", "--layout", "demo/train.yaml", "--open")
	if err != nil || again != out || !strings.Contains(errOut, "imported before") {
		t.Errorf("imported again: %s %s %v", again, errOut, err)
	}
	starts := time.Now().Add(50 * time.Hour).UTC().Format(time.RFC3339)
	out, errOut, err = c.holdfast("--json", "import", "hall", "demo/hall.yaml", "--starts", starts)
	var hall struct{ Sale, State string }
	if err != nil || json.Unmarshal([]byte(out), &hall) != nil || hall.State != "draft" {
		t.Fatalf("%s %s %v", out, errOut, err)
	}

	// The public sees what is open, its organisation the draft too.
	list, header := c.ask("", "", "", 200)
	if n := len(list["sales"].([]any)); n != 1 || header.Get("Cache-Control") != "public, max-age=2" {
		t.Errorf("%d listed, %s", n, header.Get("Cache-Control"))
	}
	list, header = c.ask("organiser", "mine=true", "", 200)
	if n := len(list["sales"].([]any)); n != 2 || header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("%d of the organiser's, %s", n, header.Get("Cache-Control"))
	}
	list, _ = c.ask("rival", "mine=true", "", 200)
	if n := len(list["sales"].([]any)); n != 0 {
		t.Errorf("%d of the rival's", n)
	}
	c.ask("", "mine=true", "", 401)
	c.ask("customer", "mine=true", "", 403)
	c.ask("", "sale="+hall.Sale, "", 404)
	c.ask("rival", "sale="+hall.Sale, "", 404)
	_, header = c.ask("organiser", "sale="+hall.Sale, "", 200)
	if header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("a draft: %s", header.Get("Cache-Control"))
	}

	// One sale: prices and seats left of the interval asked for, in its zones.
	sale, header := c.ask("", "sale="+made.Sale+"&from=BDOR&to=CAPE", "", 200)
	class := sale["classes"].([]any)[1].(map[string]any)
	price := class["prices"].([]any)[0].(map[string]any)
	if class["left"] != 178.0 || price["from"] != "BDOR" || price["to"] != "CAPE" || sale["number"] != "21" {
		t.Errorf("%v", class)
	}
	departs := sale["stops"].([]any)[2].(map[string]any)["departs"].(string)
	day, err := time.Parse(time.DateOnly, sale["service_date"].(string))
	if err != nil || !strings.HasPrefix(departs, day.AddDate(0, 0, 1).Format(time.DateOnly)+"T01:20:00") {
		t.Errorf("the night train of %s leaves Baie-Dorée at %s", sale["service_date"], departs)
	}
	req, _ := http.NewRequest(http.MethodGet, c.url+"/function/catalog?sale="+made.Sale+"&from=BDOR&to=CAPE", nil)
	req.Header.Set("If-None-Match", header.Get("ETag"))
	res, err := c.http.Do(req)
	if err != nil || res.StatusCode != 304 {
		t.Errorf("the same again: %v %v", res, err)
	}
	res.Body.Close()
	list, _ = c.ask("", "date="+sale["service_date"].(string)+"&from=BDOR&to=CAPE&kind=train&q=21", "", 200)
	if n := len(list["sales"].([]any)); n != 1 {
		t.Errorf("%d found", n)
	}

	// What GET says, POSTed, changes nothing; and each change of api/openapi.yaml.
	whole, _ := c.ask("organiser", "sale="+made.Sale, "", 200)
	back, _ := json.Marshal(whole)
	c.ask("organiser", "", string(back), 200)
	c.ask("organiser", "", `{"sale":`+string(back)+`}`, 200)
	after, _ := c.ask("organiser", "sale="+made.Sale, "", 200)
	if now, _ := json.Marshal(after); !bytes.Equal(now, back) {
		t.Errorf("changed:\n%s\n%s", back, now)
	}
	id := fmt.Sprintf(`{"sale":%q,`, made.Sale)
	c.ask("organiser", "", id+`"add_seats":{"class":"economy","coach":"5","seats":[{"seat":"1A","row":1,"column":"A"}]}}`, 200)
	c.ask("organiser", "", id+`"block":{"seats":["1-1A"],"from":"SAUB","to":"MONT","reason":"crew"}}`, 200)
	c.ask("organiser", "", id+`"unblock":{"seats":["1-1A"],"from":"SAUB","to":"MONT"}}`, 200)
	c.ask("organiser", "", id+`"patch":{"state":"paused"}}`, 200)
	c.ask("organiser", "", fmt.Sprintf(`{"sale":%q,"cancel":true}`, hall.Sale), 200)
	c.ask("rival", "", id+`"patch":{"state":"open"}}`, 404)
	c.ask("customer", "", id+`"patch":{"state":"open"}}`, 403)
	c.ask("", "", id+`"patch":{"state":"open"}}`, 401)
	c.ask("organiser", "", id+`"colour":"red"}`, 400)
	c.ask("organiser", "", `{"sale":{"kind":"train","colour":"red"}}`, 400)
	c.ask("organiser", "", `{"sale":{"kind":"train"}}`, 422)
	for _, query := range []string{"colour=red", "date=tomorrow", "kind=bus", "cursor=x", "sale=" + made.Sale + "&q=x", "mine=no"} {
		c.ask("", query, "", 400)
	}
	c.ask("", "sale=x", "", 404)
	c.ask("", "sale="+made.Sale+"&from=BDOR&to=BDOR", "", 422)
}

// A sale with a waiting room of its own, changed through the sale and by itself.
func TestRoomOfSale(t *testing.T) {
	t.Parallel()
	c, _ := platform(t)
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "demo", "hall.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "hall.yaml")
	if err := os.WriteFile(file, append(text, "room: {draw_seconds: 5, admit_per_second: 20}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut, err := c.holdfast("--json", "import", "hall", file, "--open")
	var made struct{ Sale, Room string }
	if err != nil || json.Unmarshal([]byte(out), &made) != nil || made.Room == "" {
		t.Fatalf("%s %s %v", out, errOut, err)
	}
	status := func() map[string]any {
		res, err := http.Get(c.url + "/function/join-room?room=" + made.Room)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var m map[string]any
		if err := json.NewDecoder(res.Body).Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	until := func(what string, ok func(map[string]any) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if s := status(); ok(s) {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, s)
			}
		}
	}
	c.ask("organiser", "", fmt.Sprintf(`{"sale":%q,"patch":{"admit_per_second":7}}`, made.Sale), 200)
	until("rate", func(s map[string]any) bool { return s["admit_per_second"] == 7.0 })
	c.ask("organiser", "", fmt.Sprintf(`{"room":%q,"patch":{"paused":true}}`, made.Room), 200)
	until("paused", func(s map[string]any) bool { return s["state"] == "paused" })
	before := status()["generation"]
	c.ask("organiser", "", fmt.Sprintf(`{"room":%q,"reset":true}`, made.Room), 200)
	until("reset", func(s map[string]any) bool { return s["generation"] != before })
	c.ask("rival", "", fmt.Sprintf(`{"room":%q,"reset":true}`, made.Room), 404)
	c.ask("organiser", "", `{"room":"999999","reset":true}`, 404)
	c.ask("organiser", "", fmt.Sprintf(`{"room":%q,"patch":{"colour":"red"}}`, made.Room), 400)
}

// Bad feeds and wrong dates are refused by the command, and no sale is made.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	c, _ := platform(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(harness.Root(), "demo", "feed"))); err != nil {
		t.Fatal(err)
	}
	times, err := os.ReadFile(filepath.Join(dir, "stop_times.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stop_times.txt"), bytes.Replace(times, []byte("10:40:00"), []byte("10:4:00"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c2 := range []struct{ feed, trip, date, want string }{
		{dir, "day", "next", "stop_times.txt:5: departure_time: must be a time like 25:10:00"},
		{"demo/feed", "day", "2026-12-25", "trips.txt:2: service_id: trip \"day\" does not run on 2026-12-25; it runs next on 2026-12-26"},
		{"demo/feed", "dawn", "next", "trips.txt: trip_id: has no trip \"dawn\""},
		{"demo/feed", "day", "soon", "date: must be a date"},
		{"demo/none", "day", "next", "no such file"},
	} {
		_, errOut, err := c.holdfast("import", "gtfs", c2.feed, "--trip", c2.trip, "--date", c2.date, "--layout", "demo/train.yaml")
		if err == nil || !strings.Contains(errOut, c2.want) {
			t.Errorf("%+v: %v %s", c2, err, errOut)
		}
	}
	list, _ := c.ask("organiser", "mine=true", "", 200)
	if n := len(list["sales"].([]any)); n != 0 {
		t.Errorf("%d sales of refused imports", n)
	}
	out, _, err := c.holdfast("import", "gtfs", "demo/feed", "--trip", "day", "--date", "2026-12-24", "--layout", "demo/train.yaml", "--print")
	var doc map[string]any
	if err != nil || json.Unmarshal([]byte(out), &doc) != nil || doc["sale"] == nil {
		t.Errorf("--print: %.300s %v", out, err)
	}
}
