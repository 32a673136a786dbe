// Package sandboxgw is a payment gateway for one machine: it takes no money and
// does on demand everything that real gateways were seen to do, late, twice, out
// of order or not at all. The workbench serves it under /dev/gateway; nothing of
// it exists in a deployed function.
//
// Paths below the mount:
//
//	GET  /                              the page with every payment and its buttons
//	GET  /pay/REF                       where a payer is sent (redirect_url)
//	POST /api/payments                  make one                  (Idempotency-Key)
//	GET  /api/payments                  all, newest first; ?key= the one of a key
//	GET  /api/payments/REF              look one up
//	POST /api/payments/REF/capture      {"amount"}                (Idempotency-Key)
//	POST /api/payments/REF/cancel       {}                        (Idempotency-Key)
//	POST /api/payments/REF/refunds      {"amount","currency"?}    (Idempotency-Key)
//	POST /api/payments/REF/act          Act: what the payer or the bank does
//	POST /api/webhooks                  {"payment","type"}: send one more webhook
//	GET, POST /api/faults               Faults: what goes wrong from now on
//	GET  /api/webhooks                  the last webhooks and what was answered
package sandboxgw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
)

const (
	maxBody   = 64 << 10
	listed    = 200              // payments of a list
	maxDelay  = 10 * time.Minute // of an act or a fault
	lateAfter = 10 * time.Second // "late" without a delay of its own
)

// Config of a sandbox gateway.
type Config struct {
	// URL is this gateway as payers and functions reach it, with the mount:
	// http://127.0.0.1:8080/dev/gateway. Its path is cut from requests.
	URL string
	// Platform is where functions are: webhooks go to
	// {Platform}/function/confirm?gateway=sandbox.
	Platform string
	// Keys sign webhooks (secret sandbox-key).
	Keys key.Ring
	// File keeps the payments over a restart; empty keeps nothing.
	File string
	// Clock is clock.System if nil.
	Clock clock.Clock
	// Faults to begin with.
	Faults Faults
}

// Faults are what goes wrong. Counts are used up; the others stay until changed.
type Faults struct {
	// Auto is what happens to each new payment by itself: "" (nothing, a payer
	// decides), "succeed", "fail" or "pend".
	Auto string `json:"auto"`
	// Early sends that webhook, and waits for its answer, before the answer to
	// the call that made the payment.
	Early bool `json:"early"`
	// DelayMS is waited before each webhook, AnswerDelayMS before each answer of
	// the API.
	DelayMS       int `json:"delay_ms"`
	AnswerDelayMS int `json:"answer_delay_ms"`
	// TimeOut is how many of the next calls that change something act and then
	// answer 504, as if the answer had been lost.
	TimeOut int `json:"time_out"`
	// LoseWebhooks is how many of the next webhooks are never sent.
	LoseWebhooks int `json:"lose_webhooks"`
	// TwiceWebhooks is how many of the next webhooks are sent a second time.
	TwiceWebhooks int `json:"twice_webhooks"`
	// RefuseCreate, RefuseCapture and RefuseRefund are how many of the next such
	// calls are refused with 402.
	RefuseCreate  int `json:"refuse_create"`
	RefuseCapture int `json:"refuse_capture"`
	RefuseRefund  int `json:"refuse_refund"`
	// WholeOnly refuses to capture less than was authorised.
	WholeOnly bool `json:"whole_only"`
	// Down: every call answers 503 and does nothing.
	Down bool `json:"down"`
	// NoMetadata leaves our own ids out of webhooks.
	NoMetadata bool `json:"no_metadata"`
}

// Act is what the payer or the bank does with a payment.
type Act struct {
	// Do is succeed, authorise, fail, pend, cancel, or one of the stories: late
	// (succeed after a delay), twice (succeed, the webhook comes two times),
	// disorder (succeed, then an older "pending" arrives), fail-succeed (failed,
	// then paid all the same).
	Do string `json:"do"`
	// DelayMS is waited before it happens.
	DelayMS int `json:"delay_ms,omitempty"`
	// Amount other than the payment's, in minor units.
	Amount int64 `json:"amount,omitempty"`
	// Silent sends no webhook.
	Silent bool `json:"silent,omitempty"`
	// Force does what a sane gateway would not, such as paying a cancelled one.
	Force bool `json:"force,omitempty"`
}

// Server is a sandbox gateway; it is an http.Handler.
type Server struct {
	conf  Config
	path  string
	mux   *http.ServeMux
	hooks *hooks
	stop  context.CancelFunc
	ctx   context.Context
	later sync.WaitGroup

	mu     sync.Mutex
	state  *state
	faults Faults
}

// New makes a sandbox gateway. Close it at the end.
func New(c Config) (*Server, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("sandbox gateway: URL %q must be an http address", c.URL)
	}
	if c.Clock == nil {
		c.Clock = clock.System
	}
	c.URL = strings.TrimRight(c.URL, "/")
	st, err := openState(c.File)
	if err != nil {
		return nil, err
	}
	s := &Server{conf: c, path: strings.TrimRight(base.Path, "/"), mux: http.NewServeMux(), state: st, faults: c.Faults}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.hooks = newHooks(s.ctx, strings.TrimRight(c.Platform, "/")+"/function/confirm?gateway="+sandbox.Name, c.Keys, c.Clock)
	s.routes()
	return s, nil
}

// Close stops what is still to happen, webhooks too, and waits for it to end.
func (s *Server) Close() {
	s.stop()
	s.later.Wait()
	s.hooks.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.file != nil {
		_ = s.state.file.Close()
	}
}

// SetFaults changes what goes wrong from now on; for tests in this process.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *Server) routes() {
	api := func(pattern string, f func(r *http.Request) (int, any, error)) {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			status, v, err := f(r)
			answer(w, status, v, err)
		})
	}
	changing := func(pattern string, f func(r *http.Request) (int, any, error)) {
		api(pattern, func(r *http.Request) (int, any, error) {
			if s.wait(s.answerDelay()); s.isDown() {
				return 0, nil, refuse(http.StatusServiceUnavailable, "down by a fault")
			}
			status, v, err := f(r)
			if err == nil && s.use(&s.faults.TimeOut) {
				return 0, nil, refuse(http.StatusGatewayTimeout, "it acted, and the answer is lost by a fault")
			}
			return status, v, err
		})
	}
	changing("POST /api/payments", s.create)
	changing("POST /api/payments/{ref}/capture", s.capture)
	changing("POST /api/payments/{ref}/cancel", s.cancel)
	changing("POST /api/payments/{ref}/refunds", s.refund)
	api("GET /api/payments", s.list)
	api("GET /api/payments/{ref}", s.lookUp)
	api("POST /api/payments/{ref}/act", s.act)
	api("GET /api/faults", func(*http.Request) (int, any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return http.StatusOK, s.faults, nil
	})
	api("POST /api/faults", s.setFaults)
	api("GET /api/webhooks", func(*http.Request) (int, any, error) { return http.StatusOK, s.hooks.sent(), nil })
	api("POST /api/webhooks", s.sendOne)
	s.pages()
}

// ServeHTTP answers with or without the mount's path in front.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.path != "" && (r.URL.Path == s.path || strings.HasPrefix(r.URL.Path, s.path+"/")) {
		http.StripPrefix(s.path, s.mux).ServeHTTP(w, slashed(r, s.path))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// slashed makes the bare mount path end in a slash, as the page's own path.
func slashed(r *http.Request, mount string) *http.Request {
	if r.URL.Path != mount {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Path += "/"
	r.URL.RawPath = ""
	return r
}

func answer(w http.ResponseWriter, status int, v any, err error) {
	var no refusal
	switch {
	case errors.As(err, &no):
		status, v = no.status, map[string]string{"error": no.text}
	case err != nil:
		status, v = http.StatusBadRequest, map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func decode(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, "body: %v", err)
	}
	return nil
}

// shown is a copy of a payment as the API shows it, made under the lock.
func (s *Server) shown(r *record) sandbox.Payment {
	p := r.Payment
	p.RedirectURL = s.conf.URL + "/pay/" + p.Reference
	return p
}

func (s *Server) create(r *http.Request) (int, any, error) {
	var c sandbox.Create
	if err := decode(r, &c); err != nil {
		return 0, nil, err
	}
	if u, err := url.Parse(c.ReturnURL); c.ReturnURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https")) {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "return_url must be an http address")
	}
	s.mu.Lock()
	if s.faults.RefuseCreate > 0 && !s.state.knows(r.Header.Get(sandbox.KeyHeader)) { // who asks again gets what was made
		s.faults.RefuseCreate--
		s.mu.Unlock()
		return 0, nil, refuse(http.StatusPaymentRequired, "refused by a fault")
	}
	rec, made, err := s.state.create(c, r.Header.Get(sandbox.KeyHeader), s.conf.Clock.Now())
	if err != nil {
		s.mu.Unlock()
		return 0, nil, err
	}
	p, f := s.shown(rec), s.faults
	s.mu.Unlock()
	if !made {
		return http.StatusOK, p, nil
	}
	if f.Auto != "" {
		act := Act{Do: f.Auto}
		if f.Early {
			if err := s.now(p.Reference, act, true); err != nil {
				return 0, nil, err
			}
		} else {
			s.do(p.Reference, act)
		}
	}
	return http.StatusCreated, p, nil
}

func (s *Server) list(r *http.Request) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := r.URL.Query().Get("key"); k != "" {
		rec, ok := s.state.byRef[s.state.byKey[k]]
		if !ok {
			return 0, nil, refuse(http.StatusNotFound, "no payment of that key")
		}
		return http.StatusOK, s.shown(rec), nil
	}
	return http.StatusOK, map[string]any{"payments": s.newest()}, nil
}

func (s *Server) newest() []sandbox.Payment {
	all := []sandbox.Payment{}
	for i := len(s.state.order) - 1; i >= 0 && len(all) < listed; i-- {
		if rec, ok := s.state.byRef[s.state.order[i]]; ok {
			all = append(all, s.shown(rec))
		}
	}
	return all
}

func (s *Server) lookUp(r *http.Request) (int, any, error) {
	s.wait(s.answerDelay())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Down {
		return 0, nil, refuse(http.StatusServiceUnavailable, "down by a fault")
	}
	rec, err := s.state.find(r.PathValue("ref"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.shown(rec), nil
}

func (s *Server) capture(r *http.Request) (int, any, error) {
	var m sandbox.Move
	if err := decode(r, &m); err != nil {
		return 0, nil, err
	}
	if s.use(&s.faults.RefuseCapture) {
		return 0, nil, refuse(http.StatusPaymentRequired, "refused by a fault")
	}
	return s.change(r, payment.PaymentSucceeded, func(rec *record) error {
		return s.state.capture(rec, m.Amount, r.Header.Get(sandbox.KeyHeader), s.conf.Clock.Now(), s.faults.WholeOnly)
	})
}

func (s *Server) cancel(r *http.Request) (int, any, error) {
	return s.change(r, "", func(rec *record) error {
		return s.state.cancel(rec, r.Header.Get(sandbox.KeyHeader))
	})
}

// change makes a change under the lock and, where something changed, sends a
// webhook of the type (none for "": who cancels a payment knows it).
func (s *Server) change(r *http.Request, typ payment.EventType, f func(rec *record) error) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.state.find(r.PathValue("ref"))
	if err != nil {
		return 0, nil, err
	}
	before := rec.Status
	if err := f(rec); err != nil {
		return 0, nil, err
	}
	if rec.Status != before && typ != "" {
		amount := rec.Amount
		if rec.Captured > 0 {
			amount = rec.Captured
		}
		s.sendLocked(webhook(rec, typ, amount), false)
	}
	return http.StatusOK, s.shown(rec), nil
}

func (s *Server) refund(r *http.Request) (int, any, error) {
	var m sandbox.Move
	if err := decode(r, &m); err != nil {
		return 0, nil, err
	}
	if s.use(&s.faults.RefuseRefund) {
		return 0, nil, refuse(http.StatusPaymentRequired, "refused by a fault")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.state.find(r.PathValue("ref"))
	if err != nil {
		return 0, nil, err
	}
	f, made, err := s.state.refund(rec, m, r.Header.Get(sandbox.KeyHeader))
	if err != nil {
		return 0, nil, err
	}
	if !made {
		return http.StatusOK, f, nil
	}
	h := webhook(rec, payment.RefundSucceeded, f.Amount)
	h.Refund = &sandbox.WebhookRefund{Reference: f.Reference, Key: f.Key}
	s.sendLocked(h, false)
	return http.StatusCreated, f, nil
}

func (s *Server) setFaults(r *http.Request) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.faults // what is not named stays
	if err := decode(r, &f); err != nil {
		return 0, nil, err
	}
	switch f.Auto {
	case "", "succeed", "fail", "pend":
	default:
		return 0, nil, refuse(http.StatusUnprocessableEntity, `auto must be "", succeed, fail or pend`)
	}
	s.faults = f
	return http.StatusOK, f, nil
}

// sendOne sends a webhook of any type for a payment, which stays as it is. A
// reference the sandbox does not know is fine: gateways send those too.
func (s *Server) sendOne(r *http.Request) (int, any, error) {
	var b struct {
		ID      string            `json:"id"`
		Payment string            `json:"payment"` // the reference
		Type    payment.EventType `json:"type"`
		Amount  int64             `json:"amount"`
	}
	if err := decode(r, &b); err != nil {
		return 0, nil, err
	}
	if b.Payment == "" || b.Type == "" {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "payment and type are required")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, ok := s.state.byRef[b.Payment]
	if !ok {
		rec = &record{Payment: sandbox.Payment{Reference: b.Payment, Amount: b.Amount, Currency: "CAD"}}
	}
	if b.Amount == 0 {
		b.Amount = rec.Amount
	}
	h := webhook(rec, b.Type, b.Amount)
	if b.ID != "" {
		h.ID = b.ID
	}
	s.sendLocked(h, false)
	return http.StatusAccepted, h, nil
}

func (s *Server) act(r *http.Request) (int, any, error) {
	var a Act
	if err := decode(r, &a); err != nil {
		return 0, nil, err
	}
	ref := r.PathValue("ref")
	s.mu.Lock()
	_, err := s.state.find(ref)
	s.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	if d := time.Duration(a.DelayMS) * time.Millisecond; d < 0 || d > maxDelay {
		return 0, nil, refuse(http.StatusUnprocessableEntity, "delay_ms must be 0 to %d", maxDelay.Milliseconds())
	}
	if a.DelayMS == 0 && a.Do != "late" {
		if err := s.now(ref, a, false); err != nil {
			return 0, nil, err
		}
	} else {
		if a.Do == "late" {
			a.Do = "succeed"
			if a.DelayMS == 0 {
				a.DelayMS = int(lateAfter.Milliseconds())
			}
		}
		s.do(ref, a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.state.find(ref)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.shown(rec), nil
}

// do lets an act happen after its delay.
func (s *Server) do(ref string, a Act) {
	s.later.Go(func() {
		if s.wait(time.Duration(a.DelayMS) * time.Millisecond) {
			_ = s.now(ref, a, false)
		}
	})
}

// now lets an act happen. With wait the webhook is sent, and answered or given
// up, before now returns.
func (s *Server) now(ref string, a Act, wait bool) error {
	s.mu.Lock()
	rec, err := s.state.find(ref)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	hooks, err := s.play(rec, a)
	if err != nil || a.Silent {
		s.mu.Unlock()
		return err
	}
	var sent []<-chan struct{}
	for _, h := range hooks {
		sent = append(sent, s.sendLocked(h, wait))
	}
	s.mu.Unlock()
	if wait {
		for _, c := range sent {
			select {
			case <-c:
			case <-s.ctx.Done():
			}
		}
	}
	return nil
}

// play changes the payment and says which webhooks follow, in order.
func (s *Server) play(rec *record, a Act) ([]sandbox.Webhook, error) {
	amount := rec.Amount
	if a.Amount > 0 {
		amount = a.Amount
	}
	to := func(st payment.Status) error { return s.state.set(rec, st, amount, a.Force, s.conf.Clock.Now()) }
	hook := func(t payment.EventType) sandbox.Webhook { return webhook(rec, t, amount) }
	paid := payment.Succeeded
	if rec.Manual {
		paid = payment.Authorised
	}
	paidType := map[payment.Status]payment.EventType{payment.Succeeded: payment.PaymentSucceeded, payment.Authorised: payment.PaymentAuthorised}[paid]
	switch a.Do {
	case "succeed":
		return []sandbox.Webhook{hook(paidType)}, to(paid)
	case "authorise":
		return []sandbox.Webhook{hook(payment.PaymentAuthorised)}, to(payment.Authorised)
	case "pend":
		return []sandbox.Webhook{hook(payment.PaymentPending)}, to(payment.Pending)
	case "fail":
		return []sandbox.Webhook{hook(payment.PaymentFailed)}, to(payment.Failed)
	case "cancel":
		return []sandbox.Webhook{hook(payment.PaymentFailed)}, to(payment.Cancelled)
	case "twice":
		h := hook(paidType)
		return []sandbox.Webhook{h, h}, to(paid)
	case "disorder":
		early := hook(payment.PaymentPending)
		return []sandbox.Webhook{hook(paidType), early}, to(paid)
	case "fail-succeed":
		return []sandbox.Webhook{hook(payment.PaymentFailed), hook(paidType)}, to(paid)
	}
	return nil, refuse(http.StatusUnprocessableEntity, "do must be succeed, authorise, fail, pend, cancel, late, twice, disorder or fail-succeed")
}

func webhook(rec *record, t payment.EventType, amount int64) sandbox.Webhook {
	return sandbox.Webhook{ID: "sbe_" + random(), Type: t, Payment: sandbox.WebhookPayment{
		Reference: rec.Reference, Amount: amount, Currency: rec.Currency, Metadata: rec.Metadata,
	}}
}

// sendLocked hands a webhook to be sent, with the faults in force. The channel
// is closed when it was answered 2xx, lost or given up.
func (s *Server) sendLocked(h sandbox.Webhook, atOnce bool) <-chan struct{} {
	if s.faults.NoMetadata {
		h.Payment.Metadata = nil
		h.Refund = nil
	}
	delay := time.Duration(s.faults.DelayMS) * time.Millisecond
	if atOnce {
		delay = 0
	}
	if s.faults.LoseWebhooks > 0 {
		s.faults.LoseWebhooks--
		return s.hooks.lose(h)
	}
	if s.faults.TwiceWebhooks > 0 {
		s.faults.TwiceWebhooks--
		s.hooks.send(h, delay)
	}
	return s.hooks.send(h, delay)
}

// use takes one of a count of faults.
func (s *Server) use(n *int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *n <= 0 {
		return false
	}
	*n--
	return true
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.Down
}

func (s *Server) answerDelay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(time.Duration(s.faults.AnswerDelayMS)*time.Millisecond, maxDelay)
}

// wait says whether the time passed before the server was closed.
func (s *Server) wait(d time.Duration) bool {
	if d <= 0 {
		return s.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}
