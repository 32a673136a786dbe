package sandboxgw

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/sandbox"
)

// Limits of the sending of webhooks.
const (
	hookTries   = 12               // then given up, as real gateways do after days
	hookAtOnce  = 32               // sent at the same time
	hookTimeout = 15 * time.Second // of one try
	hooksKept   = 200              // for the page and the API
)

// Sent is a webhook and what became of it.
type Sent struct {
	Webhook sandbox.Webhook `json:"webhook"`
	At      time.Time       `json:"at"`
	Tries   int             `json:"tries"`
	Status  int             `json:"status"` // last answer; 0 for none
	Lost    bool            `json:"lost"`
	Done    bool            `json:"done"`
}

// hooks sends webhooks and sends them again until they are answered 2xx.
type hooks struct {
	ctx    context.Context
	url    string
	keys   key.Ring
	clock  clock.Clock
	client *http.Client
	slots  chan struct{}
	all    sync.WaitGroup

	mu   sync.Mutex
	kept []*Sent // newest last
}

func newHooks(ctx context.Context, url string, keys key.Ring, c clock.Clock) *hooks {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = hookAtOnce
	return &hooks{ctx: ctx, url: url, keys: keys, clock: c, slots: make(chan struct{}, hookAtOnce),
		client: &http.Client{Timeout: hookTimeout, Transport: transport}}
}

func (h *hooks) keep(w sandbox.Webhook) *Sent {
	s := &Sent{Webhook: w, At: h.clock.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, s)
	if len(h.kept) > hooksKept {
		h.kept = slices.Delete(h.kept, 0, len(h.kept)-hooksKept)
	}
	return s
}

func (h *hooks) sent() []Sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]Sent, 0, len(h.kept))
	for _, s := range slices.Backward(h.kept) {
		all = append(all, *s)
	}
	return all
}

func (h *hooks) lose(w sandbox.Webhook) <-chan struct{} {
	s := h.keep(w)
	h.mu.Lock()
	s.Lost = true
	h.mu.Unlock()
	done := make(chan struct{})
	close(done)
	return done
}

// send sends a webhook after a delay: again after 1 s, 2 s, 4 s … at most 60 s.
func (h *hooks) send(w sandbox.Webhook, delay time.Duration) <-chan struct{} {
	s, done := h.keep(w), make(chan struct{})
	body, err := json.Marshal(w)
	if err != nil {
		panic("sandbox gateway: " + err.Error())
	}
	h.all.Go(func() {
		defer close(done)
		pause := time.Second
		for try := 1; try <= hookTries; try++ {
			if !h.sleep(delay) {
				return
			}
			status := h.post(body)
			h.mu.Lock()
			s.Tries, s.Status, s.Done = try, status, status >= 200 && status <= 299
			ok := s.Done
			h.mu.Unlock()
			if ok {
				return
			}
			delay, pause = pause, min(2*pause, time.Minute)
		}
	})
	return done
}

func (h *hooks) post(body []byte) int {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-h.ctx.Done():
		return 0
	}
	req, err := http.NewRequestWithContext(h.ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(sandbox.SignatureHeader, sandbox.Sign(h.keys.Sign(), h.clock.Now(), body))
	resp, err := h.client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode
}

func (h *hooks) sleep(d time.Duration) bool {
	if d <= 0 {
		return h.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-h.ctx.Done():
		return false
	}
}

func (h *hooks) wait() { h.all.Wait() }
