package sandboxgw

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"handler/function/shared/key"
	"handler/function/shared/money"
	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
)

type world struct {
	*testing.T
	ctx    context.Context
	server *Server
	client *sandbox.Client
	url    string
	got    chan payment.Event // webhooks whose signature was right
	answer chan int           // what the next webhooks are answered; else 200
}

func setup(t *testing.T, file string) *world {
	t.Helper()
	w := &world{T: t, ctx: context.Background(), got: make(chan payment.Event, 100), answer: make(chan int, 100)}
	ring, err := key.Parse("k1:" + strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	w.url = srv.URL + "/dev/gateway"
	if w.client, err = sandbox.New(w.url, ring); err != nil {
		t.Fatal(err)
	}
	if w.server, err = New(Config{URL: w.url, Platform: srv.URL, Keys: ring, File: file}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.server.Close)
	mux.Handle("/dev/gateway", w.server)
	mux.Handle("/dev/gateway/", w.server)
	mux.HandleFunc("POST /function/confirm", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e, err := w.client.Verify(r.Header, body, time.Now())
		if err != nil || r.URL.RawQuery != "gateway=sandbox" {
			t.Errorf("webhook %s: %v", r.URL, err)
		}
		select {
		case s := <-w.answer:
			rw.WriteHeader(s)
		default:
		}
		w.got <- e
	})
	return w
}

func (w *world) order(k string) payment.Order {
	return payment.Order{Key: k, Payment: "P" + k, Amount: money.Amount{Amount: 1935, Currency: "JPY"}, ReturnURL: "https://tickets.example/back?x=1"}
}

func (w *world) create(k string) payment.Charge {
	w.Helper()
	c, err := w.client.Create(w.ctx, w.order(k))
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) act(ref, body string) int {
	w.Helper()
	resp, err := http.Post(w.url+"/api/payments/"+ref+"/act", "application/json", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func (w *world) event() payment.Event {
	w.Helper()
	select {
	case e := <-w.got:
		return e
	case <-time.After(10 * time.Second):
		w.Fatal("no webhook")
		return payment.Event{}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	w := setup(t, "")
	c := w.create("k1")
	again := w.create("k1")
	if again != c || c.Payment != "Pk1" || c.Status != payment.Pending || c.Amount.Amount != 1935 {
		t.Errorf("%+v, then %+v", c, again)
	}
	other := w.order("k1")
	other.Amount.Amount = 1
	if _, err := w.client.Create(w.ctx, other); !errors.Is(err, payment.ErrRefused) {
		t.Errorf("the key for another amount: %v", err)
	}
	w.act(c.Reference, `{"do":"succeed"}`)
	if e := w.event(); e.Type != payment.PaymentSucceeded || e.Payment != "Pk1" || e.Amount.Amount != 1935 {
		t.Errorf("%+v", e)
	}
	for range 3 {
		if r, err := w.client.Refund(w.ctx, c.Reference, money.Amount{Amount: 1000, Currency: "JPY"}, "r1"); err != nil || r.Status != payment.Succeeded {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if e := w.event(); e.Type != payment.RefundSucceeded || e.Amount.Amount != 1000 || e.RefundKey != "r1" {
		t.Errorf("%+v", e)
	}
	if _, err := w.client.Refund(w.ctx, c.Reference, money.Amount{Amount: 936, Currency: "JPY"}, "r2"); !errors.Is(err, payment.ErrRefused) {
		t.Errorf("more than is left: %v", err)
	}
	if r, err := w.client.Cancel(w.ctx, c.Reference, "c1"); err != nil || r.Status != payment.Succeeded {
		t.Errorf("cancel after payment: %+v, %v", r, err)
	}
	if _, err := w.client.LookUp(w.ctx, "sb_no"); !errors.Is(err, payment.ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
}

func TestAuthoriseAndCapture(t *testing.T) {
	t.Parallel()
	w := setup(t, "")
	c, err := w.client.Authorise(w.ctx, w.order("k1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Capture(w.ctx, c.Reference, 100, "c0"); !errors.Is(err, payment.ErrRefused) {
		t.Errorf("captured before it was authorised: %v", err)
	}
	w.act(c.Reference, `{"do":"succeed"}`)
	if e := w.event(); e.Type != payment.PaymentAuthorised {
		t.Errorf("%+v", e)
	}
	for range 2 {
		if got, err := w.client.Capture(w.ctx, c.Reference, 1000, "c1"); err != nil || got.Captured != 1000 || got.Status != payment.Succeeded {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if e := w.event(); e.Type != payment.PaymentSucceeded || e.Amount.Amount != 1000 {
		t.Errorf("%+v", e)
	}
}

func TestWebhookIsSentAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, "")
	c := w.create("k1")
	w.answer <- http.StatusServiceUnavailable
	w.act(c.Reference, `{"do":"succeed"}`)
	if first, second := w.event(), w.event(); first.ID != second.ID {
		t.Errorf("%s, then %s", first.ID, second.ID)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	w := setup(t, "")
	w.server.SetFaults(Faults{TimeOut: 1, Auto: "succeed", TwiceWebhooks: 1})
	if _, err := w.client.Create(w.ctx, w.order("k1")); err == nil || errors.Is(err, payment.ErrRefused) {
		t.Errorf("timed out: %v", err)
	}
	if first, second := w.event(), w.event(); first.ID != second.ID {
		t.Errorf("twice: %s, then %s", first.ID, second.ID)
	}
	if c := w.create("k1"); c.Status != payment.Succeeded {
		t.Errorf("it was to act: %+v", c)
	}
	w.server.SetFaults(Faults{Down: true})
	if _, err := w.client.Create(w.ctx, w.order("k2")); err == nil || errors.Is(err, payment.ErrRefused) {
		t.Errorf("down: %v", err)
	}
	w.server.SetFaults(Faults{LoseWebhooks: 1})
	c := w.create("k3")
	w.act(c.Reference, `{"do":"fail"}`)
	w.act(c.Reference, `{"do":"succeed","delay_ms":20}`)
	if e := w.event(); e.Type != payment.PaymentSucceeded {
		t.Errorf("the lost webhook came: %+v", e)
	}
	if s := w.act(c.Reference, `{"do":"fail"}`); s != http.StatusConflict {
		t.Errorf("failing what is paid: %d", s)
	}
	if s := w.act(c.Reference, `{"do":"dance"}`); s != http.StatusUnprocessableEntity {
		t.Errorf("an unknown act: %d", s)
	}
}

// The payments are found again after a restart, also behind a line cut short.
func TestFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "gateway.json")
	w := setup(t, file)
	c := w.create("k1")
	w.act(c.Reference, `{"do":"succeed","silent":true}`)
	w.server.Close()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"reference":"sb_cut`)
	_ = f.Close()
	again := setup(t, file)
	got, err := again.client.LookUp(w.ctx, c.Reference)
	if err != nil || got.Status != payment.Succeeded || got.Captured != 1935 {
		t.Errorf("%+v, %v", got, err)
	}
	if same := again.create("k1"); same.Reference != c.Reference {
		t.Errorf("the key is forgotten: %+v", same)
	}
	again.create("k2")
	third := setup(t, file)
	if same := third.create("k2"); same.Status != payment.Pending {
		t.Errorf("%+v", same)
	}
}

// The pages: what a payer presses leads back to the shop.
func TestPages(t *testing.T) {
	t.Parallel()
	w := setup(t, "")
	c := w.create("k1")
	for _, page := range []string{c.RedirectURL, w.url, w.url + "/"} {
		resp, err := http.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "JPY 1935") {
			t.Errorf("%s: %d %s", page, resp.StatusCode, body)
		}
	}
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := stay.PostForm(c.RedirectURL, url.Values{"do": {"succeed"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if to := resp.Header.Get("Location"); to != "https://tickets.example/back?payment=Pk1&x=1" {
		t.Errorf("led to %q", to)
	}
	if e := w.event(); e.Type != payment.PaymentSucceeded {
		t.Errorf("%+v", e)
	}
	resp, err = stay.PostForm(w.url+"/faults", url.Values{"auto": {"fail"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	w.create("k2")
	if e := w.event(); e.Type != payment.PaymentFailed {
		t.Errorf("%+v", e)
	}
}

func TestCaptureRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, "")
	authorise := func(k string) payment.Charge {
		c, err := w.client.Authorise(w.ctx, w.order(k))
		if err != nil || w.act(c.Reference, `{"do":"authorise"}`) != http.StatusOK {
			t.Fatalf("%+v, %v", c, err)
		}
		w.event()
		return c
	}
	refused := func(what string, c payment.Charge, amount int64, k string) {
		t.Helper()
		if got, err := w.client.Capture(w.ctx, c.Reference, amount, k); !errors.Is(err, payment.ErrRefused) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	voided := authorise("k1")
	if got, err := w.client.Cancel(w.ctx, voided.Reference, "v1"); err != nil || got.Status != payment.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	refused("voided", voided, 100, "c1")

	old := authorise("k2")
	w.server.mu.Lock()
	long := time.Now().Add(-sandbox.AuthorisationLife)
	w.server.state.byRef[old.Reference].AuthorisedAt = &long
	w.server.mu.Unlock()
	refused("past its life", old, 100, "c2")

	whole := authorise("k3")
	w.server.SetFaults(Faults{WholeOnly: true, RefuseCapture: 1})
	refused("by a fault", whole, 1935, "c3")
	refused("a part", whole, 1934, "c3")
	if got, err := w.client.Capture(w.ctx, whole.Reference, 1935, "c3"); err != nil || got.Captured != 1935 {
		t.Errorf("%+v, %v", got, err)
	}
	refused("again with another key", whole, 1935, "c4")

	// One that acted and whose answer was lost is the same again by its key.
	lost := authorise("k4")
	w.server.SetFaults(Faults{TimeOut: 1})
	if _, err := w.client.Capture(w.ctx, lost.Reference, 900, "c5"); err == nil || errors.Is(err, payment.ErrRefused) {
		t.Errorf("a lost answer: %v", err)
	}
	if got, err := w.client.Capture(w.ctx, lost.Reference, 900, "c5"); err != nil || got.Captured != 900 {
		t.Errorf("%+v, %v", got, err)
	}
	if w.client.WholeOnly().Traits().CapturePart || !w.client.Traits().CapturePart {
		t.Error("the trait is wrong")
	}
}
