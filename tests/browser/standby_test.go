package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"handler/function/tests/contract"
)

// scarce is a train with two seats in economy, 12A and 12B of coach 3, and four
// in business.
func scarce(title string, room object) object {
	sale := train(title, room)
	seat := func(row int, column string) object {
		return object{"seat": fmt.Sprint(row, column), "row": row, "column": column, "attributes": []string{"window"}}
	}
	sale["classes"] = []object{
		{"class": "economy", "title": "Economy", "stock": "numbered", "fare": object{"kind": "per_leg", "amounts": []int{1900, 2900, 8100}}},
		{"class": "business", "title": "Business", "stock": "numbered", "fare": object{"kind": "per_leg", "amounts": []int{3900, 5900, 15900}}},
	}
	sale["coaches"] = []object{
		{"coach": "1", "class": "business", "seats": []object{seat(1, "A"), seat(1, "D"), seat(2, "A"), seat(2, "D")}},
		{"coach": "3", "class": "economy", "seats": []object{seat(12, "A"), seat(12, "B")}},
	}
	return sale
}

// act tells the sandbox gateway what the payer does.
func (c *caller) act(reference, do string) {
	c.Helper()
	c.call(http.MethodPost, "/dev/gateway/api/payments/"+url.PathEscape(reference)+"/act", object{"do": do}, nil)
}

// buy holds and pays seats of a class from Halifax to Montréal; it returns the booking.
func (c *caller) buy(sale, class string, quantity int) string {
	c.Helper()
	return c.take(object{"sale": sale, "class": class, "from": "HLFX", "to": "MTRL", "quantity": quantity})
}

// take holds and pays what is wished; it returns the booking.
func (c *caller) take(wish object) string {
	c.Helper()
	var held struct {
		Booking string `json:"booking"`
	}
	c.call(http.MethodPost, "/function/hold", wish, &held)
	var paying struct {
		Gateway struct {
			Reference string `json:"reference"`
		} `json:"gateway"`
	}
	c.call(http.MethodPost, "/function/pay", object{"booking": held.Booking, "gateway": "sandbox"}, &paying)
	c.act(paying.Gateway.Reference, "succeed")
	c.state("/function/hold?booking="+url.QueryEscape(held.Booking), "booked")
	return held.Booking
}

// wait joins standby and authorises it; it returns the order.
func (c *caller) wait(sale, class string) string {
	c.Helper()
	var joined struct {
		Order     string `json:"order"`
		Authorise struct {
			Reference string `json:"reference"`
		} `json:"authorise"`
	}
	c.call(http.MethodPost, "/function/standby", object{"sale": sale, "classes": []string{class}, "from": "HLFX", "to": "MTRL", "quantity": 1, "gateway": "sandbox"}, &joined)
	c.act(joined.Authorise.Reference, "succeed")
	c.state("/function/standby?order="+url.QueryEscape(joined.Order), "queued")
	return joined.Order
}

// state waits until what stands at an address is in a state.
func (c *caller) state(address, want string) {
	c.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var now struct {
			State string `json:"state"`
		}
		c.call(http.MethodGet, address, nil, &now)
		if now.State == want {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("%s is %s, never %s", address, now.State, want)
		}
	}
}

// enter puts an account into the browser, as the sign-in page does.
func (b *tab) enter(c *caller) {
	b.Helper()
	b.visit("?page=missing")
	eval[bool](b, fmt.Sprintf(`(localStorage.setItem("hf.account", JSON.stringify({account_token: %q, expires_at: new Date(Date.now() + 3600e3).toISOString(), email: ""})), true)`, c.token))
}

// giveBack returns a booking with clicks, as its holder does.
func (b *tab) giveBack(booking string) {
	b.Helper()
	b.visit("?page=booking&booking=" + url.QueryEscape(booking))
	b.click("#does button.bad")
	b.until(`document.querySelector("#cancel").open`)
	b.click("#cancel-yes")
	b.until(`document.querySelector("#state").innerText === "Cancelled"`)
}

// Sold out, so Anna joins standby and stands behind Carl. Ben gives a seat back:
// Carl has it, and Anna is told why. Ben gives the other back, and Anna's page
// shows her seat without a reload.
func TestStandby(t *testing.T) {
	base := start(t)
	sale := sell(t, base, scarce("15 Ocean", nil))
	ben := as(t, base, "ben@example.org", "")
	mine := []string{ben.buy(sale, "economy", 1), ben.buy(sale, "economy", 1)}
	other := open(t, base, "en-GB")
	other.enter(ben)

	b := open(t, base, "en-GB")
	b.visit("?page=sale&sale=" + sale)
	b.until(`document.querySelector("#classes input[value=business]")?.checked`) // what has seats is chosen beforehand
	b.click("#classes input[value=economy]")
	b.until(`document.querySelector("#wait a")`)
	b.look("sold-out")

	// The same on the page of seats, which prefers a class that has some, unless
	// the person has chosen another before.
	b.visit("?page=seats&sale=" + sale + "&from=HLFX&to=MTRL")
	b.until(`document.querySelector("#class").value === "business" && document.querySelectorAll("button.seat").length === 4`)
	if b.text("#wait") != "" {
		t.Error("standby is offered for a class with seats")
	}
	b.visit("?page=seats&sale=" + sale + "&from=HLFX&to=MTRL&class=economy")
	b.until(`document.querySelector("#wait a")`)
	if got := eval[string](b, `document.querySelector("#class").value`); got != "economy" {
		t.Errorf("the chosen class became %s", got)
	}
	b.look("seats-sold-out")
	b.click("#wait a")
	b.signIn("anna@example.org")

	b.at("standby")
	b.until(`document.querySelector("#classes input[value=business]")?.disabled`)
	b.until(`document.querySelector("#price").innerText.includes("129.00")`)
	b.write("#name-0", "Anna Lee")
	b.look("join")
	carl := as(t, base, "carl@example.org", "").wait(sale, "economy")
	b.click("#join")
	b.payAt("succeed")

	b.at("order")
	b.until(`document.querySelector("#big").innerText === "2"`)
	b.look("queued")
	eval[bool](b, `(window.sameDocument = true)`)
	other.giveBack(mine[0])
	b.until(`document.querySelector("#big").innerText === "1" && !document.querySelector("#why").hidden`)
	if got := b.text("#why-text"); !strings.Contains(got, "Somebody ahead of you") || !strings.Contains(got, "from Halifax to Montréal") || !strings.Contains(got, "returned") {
		t.Errorf("why: %s", got)
	}
	b.look("why")
	as(t, base, "carl@example.org", "").state("/function/standby?order="+url.QueryEscape(carl), "booked")

	other.giveBack(mine[1])
	b.until(`document.querySelector("#does a")?.innerText === "To booking and ticket"`)
	if !eval[bool](b, `Boolean(window.sameDocument)`) {
		t.Error("the page was loaded again")
	}
	if got := b.text("#text"); !strings.HasPrefix(got, "You have a seat: coach 3 seat 12") {
		t.Errorf("the page says %q", got)
	}
	if got := eval[string](b, `document.querySelector("#say").textContent`); !strings.Contains(got, "Standby successful. You have a seat: coach 3 seat 12") {
		t.Errorf("screen readers are told %q", got)
	}
	b.look("seat")
	b.click("#does a")
	b.at("booking")
	b.until(`document.querySelectorAll("#tickets svg").length === 1`)
	if got := b.text("#facts"); !strings.Contains(got, "Anna Lee") || !strings.Contains(got, "129.00") {
		t.Errorf("booked: %s", got)
	}
	b.mailTo("anna@example.org", b.text("#locator"), "Standby successful")
	b.visit("?page=bookings")
	b.until(`document.querySelector("#orders li") && document.querySelector("#list li")`)
	b.look("bookings")
}

// Behind a waiting room that has sold out, the line goes on to standby. Dora
// likes business better, waits for two together, and leaves again.
func TestStandbyBehindARoom(t *testing.T) {
	base := start(t)
	sale := sell(t, base, scarce("16 Evening", object{"mode": "on", "draw_seconds": 1}))
	counter := as(t, base, "counter", "seller") // who sells at a counter stands in no line
	counter.buy(sale, "economy", 2)
	counter.buy(sale, "business", 4)

	b := open(t, base, "zh-CN")
	b.visit("?page=sale&sale=" + sale)
	b.until(`document.querySelector("#wait a")`)
	b.look("sold-out-zh")
	b.click("#wait a")
	b.signIn("dora@example.org")
	b.at("room")
	b.look("room-zh")
	b.at("standby")
	b.until(`document.querySelectorAll("#classes input").length === 2`)
	b.click("#classes input[value=business]")
	b.click("#classes .up")
	b.until(`document.querySelector("#classes input").value === "business" && document.querySelectorAll("#classes input:checked").length === 2`)
	b.do(chromedp.SetValue("#quantity", "2"))
	eval[bool](b, `document.querySelector("#quantity").dispatchEvent(new Event("change", {bubbles: true}))`)
	b.write("#name-0", "张伟")
	b.write("#name-1", "李娜")
	b.look("join-zh")
	if got := b.text("#price"); !strings.Contains(got, "514.00") {
		t.Errorf("reserved at most: %s", got)
	}
	b.click("#join")
	b.payAt("succeed")
	b.at("order")
	b.until(`document.querySelector("#big").innerText === "1"`)
	b.look("queued-zh")
	b.click("#does button.bad")
	b.until(`document.querySelector("#cancel").open`)
	b.look("leave-zh")
	b.click("#cancel-yes")
	b.until(`document.querySelector("#state").innerText === "已取消"`)
	b.look("left-zh")
}

// The page of an order says each state and each kind of position in words. The
// answers are made up, and kept to the contract.
func TestOrderInWords(t *testing.T) {
	base := start(t)
	sale := sell(t, base, scarce("17 Night", nil))
	b := open(t, base, "en-GB")
	b.enter(as(t, base, "emil@example.org", ""))
	at := time.Now().UTC().Truncate(time.Second)
	order := func(change object) object {
		o := object{
			"order": "O1", "state": "queued", "sale": sale, "classes": []string{"economy", "business"}, "from": "TRUR", "to": "MTRL",
			"quantity": 3, "together": true, "price": object{"amount": 65400, "currency": "CAD"}, "gateway": "sandbox", "position": nil, "why": nil,
			"ahead_explained": "", "message": "", "until": at.Add(48 * time.Hour), "joined_at": at, "server_time": at,
			"history": []object{{"at": at, "what": "authorising", "why": ""}, {"at": at, "what": "queued", "why": "until the end of the authorisation"}},
		}
		for k, v := range change {
			o[k] = v
		}
		return o
	}
	passed := func(reason string) object {
		return order(object{"position": object{"exact": 7}, "why": object{"at": at, "event": "TIMEOUT", "class": "business", "from": "TRUR", "to": "MTRL", "reason": reason,
			"served": []object{{"from": "TRUR", "to": "MCTN", "quantity": 1, "exact": true}}}})
	}
	for _, c := range []struct {
		name   string
		answer object
		want   []string
	}{
		{"exact", order(object{"position": object{"exact": 7}}), []string{"You are number 7 in the queue."}},
		{"within", order(object{"position": object{"within": 1000}}), []string{"within the first 1,000"}},
		{"hours", order(object{"position": object{"wait_seconds": 7100}}), []string{"About 2 hours"}},
		{"no-estimate", order(object{"position": object{}}), []string{"cannot say how long"}},
		{"unknown", order(nil), []string{"System busy, please ask again later"}},
		{"pending", order(object{"state": "pending"}), []string{"Queued. System busy, position available later"}},
		{"authorising", order(object{"state": "authorising"}), []string{"not reserved yet"}},
		{"matched", order(object{"state": "matched"}), []string{"Standby successful", "being charged"}},
		{"cancelling", order(object{"state": "cancelling"}), []string{"being let go"}},
		{"cancelled", order(object{"state": "cancelled", "reason": "the payment was refused"}), []string{"the payment was refused"}},
		{"expired", order(object{"state": "expired", "reason": "no seat came free in time"}), []string{"nothing was charged"}},
		{"why-exact", passed("exact"), []string{"from Truro to Montréal", "Another journey's queue", "1 seat, from Truro to Moncton"}},
		{"why-fuller", passed("fuller"), []string{"filled more of the way"}},
		{"why-group", passed("group"), []string{"group of 3"}},
		{"why-part", passed("part"), []string{"Only a part"}},
		{"why-kept", passed("kept"), []string{"kept for a larger group"}},
		{"why-yours", passed("yours"), []string{"kept for your group"}},
		{"why-sale", passed("sale"), []string{"open sale"}},
	} {
		body, err := json.Marshal(c.answer)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{"Content-Type": {"application/json"}, "X-Trace-Id": {"made-up"}}
		if err := contract.Check(http.MethodGet, "/function/standby", "order=O1", http.StatusOK, header, body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		b.answering("standby", string(body))
		b.visit("?page=order&order=O1")
		for _, want := range c.want {
			b.until(fmt.Sprintf(`document.querySelector("#main").innerText.includes(%q)`, want))
		}
		if c.name == "why-group" || c.name == "hours" {
			b.look(c.name)
		}
	}
}

// Fay exchanges her seat for another stretch of the same train at the same price:
// the page says what would be, and then has the new ticket.
func TestExchange(t *testing.T) {
	base := start(t)
	document := scarce("18 Morning", nil)
	document["classes"].([]object)[0]["fare"] = object{"kind": "per_leg", "amounts": []int{2900, 2900, 8100}}
	sale := sell(t, base, document)
	fay := as(t, base, "fay@example.org", "")
	booking := fay.take(object{"sale": sale, "class": "economy", "from": "HLFX", "to": "TRUR", "seats": []string{"3-12A"}, "passengers": []object{{"name": "Fay"}}})

	b := open(t, base, "en-GB")
	b.enter(fay)
	b.visit("?page=booking&booking=" + url.QueryEscape(booking))
	b.until(`document.querySelectorAll("#tickets svg").length === 1`)
	before := eval[string](b, `document.querySelector("#tickets path").getAttribute("d")`)
	b.click("#does button.second:nth-of-type(3)")
	b.until(`document.querySelector("#exchange").open`)

	// At another price there is none.
	choose := func(selector, value string) {
		b.do(chromedp.SetValue(selector, value))
		eval[bool](b, fmt.Sprintf(`document.querySelector(%q).dispatchEvent(new Event("change", {bubbles: true}))`, selector))
	}
	choose("#to", "MTRL")
	b.until(`document.querySelector("#other-price").innerText.includes("only an exchange at the same price") && document.querySelector("#exchange-look").disabled`)

	choose("#from", "TRUR")
	choose("#to", "MCTN")
	b.until(`document.querySelector("#other-price").innerText === "CA$29.00" && !document.querySelector("#exchange-look").disabled`)
	b.click("#pick summary")
	b.until(`document.querySelectorAll("#pick-0 option").length === 3`)
	choose("#pick-0", "3-12B")
	b.look("choose-other")
	b.click("#exchange-look")
	b.until(`!document.querySelector("#exchange-sure").hidden`)
	if got := b.text("#exchange-sure dl"); !strings.Contains(got, "Halifax – Truro, Economy, coach 3 seat 12A") || !strings.Contains(got, "Truro – Moncton, Economy, coach 3 seat 12B") {
		t.Errorf("the page says %s", got)
	}
	b.look("exchange")
	b.click("#exchange-yes")
	b.until(`!document.querySelector("#exchange").open && document.querySelector("#head").innerText.includes("Truro – Moncton")`)
	b.until(fmt.Sprintf(`document.querySelectorAll("#tickets svg").length === 1 && document.querySelector("#tickets path").getAttribute("d") !== %q`, before))
	if got := b.text("#facts"); !strings.Contains(got, "3-12B") || !strings.Contains(got, "29.00") || !strings.Contains(got, "Fay") {
		t.Errorf("after the exchange: %s", got)
	}
	b.look("exchanged")
}

// answering lets every page that is loaded from now on have this answer of a function.
func (b *tab) answering(function, body string) {
	b.Helper()
	script := fmt.Sprintf(`{
		const ask = window.fetch;
		window.fetch = (to, how) => new URL(to, location.href).pathname === "/function/%s" ? Promise.resolve(new Response(%q, {headers: {"Content-Type": "application/json"}})) : ask(to, how);
	}`, function, body)
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	}))
}
