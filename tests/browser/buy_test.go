package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"handler/function/tests/contract"
	"handler/function/tests/harness"
)

// start is the address of a platform of the test's own.
func start(t testing.TB) string {
	t.Helper()
	return harness.StartPlatform(t, harness.PlatformOptions{}).URL
}

// caller is somebody who calls the functions directly.
type caller struct {
	testing.TB
	base, token string
	keys        int
}

// as is an account of the local platform.
func as(t testing.TB, base, account, role string) *caller {
	t.Helper()
	c := &caller{TB: t, base: base}
	var answer struct {
		Token string `json:"account_token"`
	}
	c.call(http.MethodGet, "/dev/token?"+url.Values{"account": {account}, "role": {role}, "org": {"demo"}}.Encode(), nil, &answer)
	c.token = answer.Token
	return c
}

// call calls and expects a 2xx.
func (c *caller) call(method, path string, body, into any) {
	c.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		c.Fatal(err)
	}
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, c.base+path, r)
	if err != nil {
		c.Fatal(err)
	}
	c.keys++
	req.Header.Set("Idempotency-Key", fmt.Sprintf("browser-%p-%d", c, c.keys))
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := (&http.Client{Transport: &contract.Transport{Breach: func(err error) { c.Errorf("contract: %v", err) }}}).Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode/100 != 2 {
		c.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			c.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
}

type object = map[string]any

// train is a sale document: four stops in three zones, two coaches of 32 seats.
func train(title string, room object) object {
	day := time.Now().AddDate(0, 0, 30)
	zone := func(name string) *time.Location {
		l, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		return l
	}
	start := time.Date(day.Year(), day.Month(), day.Day(), 13, 0, 0, 0, zone("America/Halifax"))
	stop := func(id, name, tz string, hours float64) object {
		at := start.Add(time.Duration(hours * float64(time.Hour))).In(zone(tz))
		return object{"id": id, "name": name, "timezone": tz, "arrives": at.Format(time.RFC3339),
			"departs": at.Add(5 * time.Minute).Format(time.RFC3339), "board": "yes", "alight": "yes", "km": hours * 60}
	}
	var coaches []object
	for _, coach := range []string{"3", "4"} {
		var seats []object
		for row := 1; row <= 8; row++ {
			for _, column := range []string{"A", "B", "C", "D"} {
				attributes := []string{"window"}
				if column == "B" || column == "C" {
					attributes = []string{"aisle"}
				}
				if row == 8 && column == "A" {
					attributes = append(attributes, "accessible")
				}
				seats = append(seats, object{"seat": fmt.Sprint(row, column), "row": row, "column": column, "attributes": attributes})
			}
		}
		coaches = append(coaches, object{"coach": coach, "class": "economy", "seats": seats})
	}
	sale := object{
		"kind": "train", "title": title, "number": "15", "service_date": start.Format(time.DateOnly), "timezone": "America/Halifax", "state": "open",
		"stops": []object{stop("HLFX", "Halifax", "America/Halifax", 0), stop("TRUR", "Truro", "America/Halifax", 1.5),
			stop("MCTN", "Moncton", "America/Moncton", 4), stop("MTRL", "Montréal", "America/Toronto", 18.5)},
		"classes": []object{{"class": "economy", "title": "Economy", "stock": "numbered",
			"fare": object{"kind": "per_leg", "amounts": []int{1900, 2900, 8100}}}},
		"coaches": coaches, "currency": "CAD", "opens_at": time.Now().UTC().Format(time.RFC3339),
		"gateways": []string{"sandbox"}, "test": true,
	}
	if room != nil {
		sale["room"] = room
	}
	return sale
}

// sell puts a sale on offer.
func sell(t testing.TB, base string, document object) string {
	t.Helper()
	var answer struct {
		Sale string `json:"sale"`
	}
	as(t, base, "organiser", "organiser").call(http.MethodPost, "/function/catalog", object{"sale": document}, &answer)
	return answer.Sale
}

// signIn goes through the sign-in page with a code from the mail.
func (b *tab) signIn(address string) {
	b.Helper()
	b.at("signin")
	b.look("sign-in")
	b.write("#email", address)
	b.click("#mail button")
	b.until(`document.querySelector("#code")?.checkVisibility()`)
	b.until(`!document.querySelector("#dev").hidden`)
	b.look("code")
	code := regexp.MustCompile(`\b\d{6}\b`).FindString(b.mailTo(address))
	wrong := "000000"
	if code == wrong {
		wrong = "111111"
	}
	b.write("#code", wrong)
	b.click("#code-form button")
	b.until(`document.querySelector("#notice").innerText !== ""`)
	b.write("#code", code)
	b.click("#code-form button")
}

// payAt presses a button on the sandbox gateway's page, which leads back.
func (b *tab) payAt(do string) {
	b.Helper()
	b.until(`location.pathname.startsWith("/dev/gateway") && document.readyState === "complete"`)
	b.click(fmt.Sprintf(`button[value=%q]`, do))
}

// drawn waits until the list of a room's draw is stored.
func (b *tab) drawn(room string) {
	b.Helper()
	c := &caller{TB: b, base: b.base}
	for end := time.Now().Add(2 * patience); ; time.Sleep(200 * time.Millisecond) {
		var status struct {
			State string `json:"state"`
		}
		c.call(http.MethodGet, "/function/join-room?room="+room, nil, &status)
		if status.State != "before" && status.State != "drawing" {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("the room is still %s", status.State)
		}
	}
}

// A customer finds a train, waits in line, holds two seats, pays and has two
// tickets; then lets them go.
func TestBuyForTwo(t *testing.T) {
	base := start(t)
	sale := sell(t, base, train("15 Ocean", object{"mode": "on", "draw_seconds": 25, "admit_per_second": 1}))
	organiser := as(t, base, "organiser", "organiser")
	var about struct {
		Room string `json:"room"`
	}
	organiser.call(http.MethodGet, "/function/catalog?sale="+sale, nil, &about)
	rate := func(perSecond float64) {
		organiser.call(http.MethodPost, "/function/catalog", object{"room": about.Room, "patch": object{"admit_per_second": perSecond}}, nil)
	}
	rate(0.02) // nobody goes in before the page was looked at
	b := open(t, base, "en-GB")
	b.visit("")
	b.until(`document.querySelector("#sales li")`)
	b.look("home")
	b.click(fmt.Sprintf(`a.button[href*="sale=%s"]`, sale))
	b.at("sale")
	b.until(`document.querySelector("#classes label")`)
	b.look("sale")
	b.click("#on")
	b.signIn("anna@example.org")

	// The room: others join too, so that there is a line.
	b.at("room")
	b.until(`document.querySelector("#big").innerText !== ""`)
	b.look("room-draw")
	for i := range 30 {
		as(t, base, fmt.Sprint("crowd", i), "").call(http.MethodPost, "/function/join-room", object{"sale": sale}, nil)
	}
	b.until(`Object.keys(localStorage).some((key) => key.startsWith("hf.room:"))`)
	// The phone sleeps over the end of the draw, wakes, and the place is still there.
	room := eval[string](b, `location.href`)
	b.do(chromedp.Navigate("about:blank"))
	b.drawn(about.Room)
	b.do(chromedp.Navigate(room))
	b.at("room")
	b.until(`document.querySelector("#label").innerText === "Your place"`)
	b.look("room-waiting")
	place := b.text("#big")

	// Who waits asks for the public status alone, and keeps the place over a reload.
	eval[bool](b, `(window.asked = [], window.ask = fetch, window.fetch = (to, how) => (asked.push(how?.method ?? "GET"), ask(to, how)), true)`)
	b.until(`asked.length >= 2`)
	if got := eval[[]string](b, `asked`); slices.Contains(got, "POST") {
		t.Errorf("while waiting the page asked %v", got)
	}
	b.do(chromedp.Reload())
	b.at("room")
	b.until(`document.querySelector("#label")?.innerText === "Your place"`)
	if got := b.text("#big"); got != place {
		t.Errorf("the place was %s and is %s after a reload", place, got)
	}
	rate(50)
	b.at("seats")
	b.until(`document.querySelector("button.seat")`)
	b.look("seats")

	// Two seats side by side, by keyboard alone.
	b.do(chromedp.Focus(`button.seat[tabindex="0"]`), chromedp.KeyEvent(" "), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(" "))
	b.until(`document.querySelectorAll("button.seat[aria-pressed=true]").length === 2`)
	b.look("seats-chosen")
	chosen := b.text("#chosen b")
	b.click("#take")

	b.at("pay")
	b.until(`document.querySelector("#clock").innerText.includes(":")`)
	b.write("#name-0", "张伟")
	b.write("#name-1", "Zoë Müller")
	b.look("pay")
	b.click("#pay")
	b.payAt("succeed")
	b.at("booking")
	b.until(`document.querySelectorAll("#tickets svg").length === 2`)
	b.look("booking")
	if got := b.text("#facts"); !strings.Contains(got, chosen) || !strings.Contains(got, "张伟, Zoë Müller") || !strings.Contains(got, "258.00") {
		t.Errorf("chosen %s, booked %s", chosen, got)
	}
	booking := eval[string](b, `new URLSearchParams(location.search).get("booking")`)
	pdf := b.download("ticket?booking="+url.QueryEscape(booking), "application/pdf")
	if !bytes.HasPrefix(pdf, []byte("%PDF-")) {
		t.Errorf("the ticket is no PDF: %.80q", pdf)
	}
	if err := os.WriteFile(filepath.Join(b.folder, "ticket.pdf"), pdf, 0o600); err != nil {
		t.Fatal(err)
	}
	if cal := b.download("ticket?booking="+url.QueryEscape(booking), "text/calendar"); !bytes.HasPrefix(cal, []byte("BEGIN:VCALENDAR")) {
		t.Errorf("no calendar: %.80q", cal)
	}
	b.mailTo("anna@example.org", b.text("#locator"))

	b.visit("?page=bookings")
	b.until(`document.querySelector("#list li")`)
	b.look("bookings")

	// The same in Chinese.
	b.click("#lang")
	b.until(`document.documentElement.lang === "zh" && document.readyState === "complete"`)
	b.ready()
	b.look("bookings-zh")
	b.click("#list a.button")
	b.at("booking")
	b.until(`document.querySelectorAll("#tickets svg").length === 2`)
	b.look("booking-zh")

	// Given back: first what it would bring, then the deed.
	b.click("#does button.bad")
	b.until(`document.querySelector("#cancel").open`)
	b.look("cancel-zh")
	b.click("#cancel-yes")
	b.until(`document.querySelector("#state").innerText === "已退票"`)
	b.look("cancelled-zh")
}

// Field case 15: the gateway says failed, and seconds later paid. The page says
// that it is still checking, and ends with one booking.
func TestFailedThenPaid(t *testing.T) {
	base := start(t)
	sale := sell(t, base, train("16 Evening", nil))
	b := open(t, base, "en-GB")
	b.visit("?page=seats&sale=" + sale + "&from=TRUR&to=MTRL&quantity=2")
	b.until(`document.querySelector("#find")?.checkVisibility() && document.querySelector("#quantity").value === "2"`)
	b.click("#find")
	b.signIn("zoe@example.org")
	b.at("seats")
	b.until(`document.querySelector("#quantity").value === "2"`)
	b.click("#find")
	b.at("pay")
	b.write("#name-0", "Zoë")
	b.write("#name-1", "Ali")
	b.click("#pay")
	b.payAt("fail")
	b.at("pay")
	b.until(`document.querySelector("#status-text").innerText.includes("still checking")`)
	b.look("still-checking")
	reference := eval[string](b, `JSON.parse(Object.entries(localStorage).find(([key]) => key.startsWith("hf.payment:"))[1]).gateway.reference`)
	as(t, base, "zoe", "").call(http.MethodPost, "/dev/gateway/api/payments/"+url.PathEscape(reference)+"/act", object{"do": "succeed"}, nil)
	b.at("booking")
	b.until(`document.querySelectorAll("#tickets svg").length === 2`)
	if bookings := eval[int](b, `(async () => (await (await fetch("hold", {headers: {Authorization: "Bearer " + JSON.parse(localStorage.getItem("hf.account")).account_token}})).json()).bookings.length)()`); bookings != 1 {
		t.Errorf("%d bookings, want 1", bookings)
	}
}

// An organiser pauses a sale and changes the rate of its room.
func TestOrganiser(t *testing.T) {
	base := start(t)
	sale := sell(t, base, train("17 Night", object{"mode": "on", "draw_seconds": 1, "admit_per_second": 3}))
	token := as(t, base, "organiser", "organiser").token
	b := open(t, base, "en-GB")
	b.visit("?page=signin&next=" + url.QueryEscape("?page=organiser"))
	b.click("details summary")
	b.write("#token", token)
	b.click("#token-form button")
	b.at("organiser")
	card := fmt.Sprintf(`[...document.querySelectorAll("#sales > li")].find((li) => li.querySelector("a[href*='sale=%s']"))`, sale)
	b.until(card + `?.innerText.includes("Speed")`)
	b.look("organiser")
	eval[bool](b, `(`+card+`.querySelector("p button").click(), true)`)
	b.until(card + `?.querySelector(".badge").innerText.startsWith("Paused")`)
	eval[bool](b, `((input) => (input.value = "7", input.form.requestSubmit(), true))(`+card+`.querySelector("input"))`)
	b.until(card + `?.innerText.includes("7 a second")`)
	b.look("organiser-paused")
}
