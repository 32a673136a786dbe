// Package rush is a simulated crowd: thousands of people who join a sale's
// line over HTTP, wait, hold, pay and get their tickets as browsers would. It
// trusts nothing the platform says about itself: what was sold is counted from
// the customers' tickets, and every place ever told to anyone is remembered.
package rush

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"handler/function/cmd/holdfast/wire"
	"handler/function/shared/ticket"
)

// target is the sale the crowd is after.
type target struct {
	sale, room, class string
	stops             []string
	opens             time.Time // when the line opens (draw_opens_at)
	hold              time.Duration
	names             []string // seat names of the class in layout order
}

// crowd is everyone, and what they share: the connections and the counters.
type crowd struct {
	w       *wire.Client
	m       *measure
	judge   *judge
	line    *lineJudge
	story   *story
	target  target
	gateway *gateway
	token   func(account string) (string, error)
	party   int
	prefix  string            // of account names; empty: rush
	tickets ticket.PublicKeys // verify the codes on tickets; nil: the holds' intervals count
	cdn     *cdn              // nil: every poll goes to the platform

	people   []*person
	over     chan struct{} // closed when there is nothing more to wait for
	inFault  atomic.Int64  // disturbances going on at this moment
	seats    int           // of the sale
	overOnce sync.Once

	lastStatus atomic.Pointer[parsedStatus]
}

// status is the room's public document (api/openapi.yaml, join-room GET).
type status struct {
	Room         string     `json:"room"`
	State        string     `json:"state"`
	DrawOpensAt  *time.Time `json:"draw_opens_at"`
	DrawEndsAt   *time.Time `json:"draw_ends_at"`
	Joined       int64      `json:"joined"`
	Serving      int64      `json:"serving"`
	Lapsed       int64      `json:"lapsed"`
	AdmitPerSec  float64    `json:"admit_per_second"`
	Sales        []saleLeft `json:"sales"`
	SoldOut      bool       `json:"sold_out"`
	Stale        bool       `json:"stale"`
	AsOf         time.Time  `json:"as_of"`
	PollAfterMS  int        `json:"poll_after_ms"`
	Generation   int64      `json:"generation"`
	DrawListHash string     `json:"draw_list_hash"`
}

type saleLeft struct {
	Sale    string `json:"sale"`
	Left    int    `json:"left"`
	SoldOut bool   `json:"sold_out"`
}

// left is how many seats of the sale are left; -1 when the document says nothing.
func (s *status) left(sale string) int {
	for _, l := range s.Sales {
		if l.Sale == sale {
			return l.Left
		}
	}
	return -1
}

// joinAnswer is the answer of join-room's POST.
type joinAnswer struct {
	PlaceToken     string     `json:"place_token"`
	Place          *int64     `json:"place"`
	State          string     `json:"state"`
	Status         *status    `json:"status"`
	PollAfterMS    int        `json:"poll_after_ms"`
	AdmitToken     string     `json:"admit_token"`
	AdmitFor       string     `json:"admit_for"`
	AdmitExpiresAt *time.Time `json:"admit_expires_at"`
}

// trouble is an error answer (RFC 9457).
type trouble struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// reason names an answer that is not 2xx: its status and code.
func reason(a wire.Answer, err error) string {
	if err != nil {
		return "no answer"
	}
	var p trouble
	if json.Unmarshal(a.Body, &p) == nil && p.Code != "" {
		return strconv.Itoa(a.Status) + " " + p.Code
	}
	return strconv.Itoa(a.Status)
}

func code(a wire.Answer) string {
	var p trouble
	if json.Unmarshal(a.Body, &p) != nil {
		return ""
	}
	return p.Code
}

// parsedStatus keeps the last document: during a second thousands of people
// are given the same bytes, and reading them once is enough.
type parsedStatus struct {
	raw []byte
	doc *status
}

func (c *crowd) parseStatus(raw []byte) (*status, error) {
	if last := c.lastStatus.Load(); last != nil && bytes.Equal(last.raw, raw) {
		return last.doc, nil
	}
	doc := new(status)
	if err := json.Unmarshal(raw, doc); err != nil {
		return nil, fmt.Errorf("rush: status document: %w", err)
	}
	c.lastStatus.Store(&parsedStatus{append([]byte(nil), raw...), doc})
	c.story.sawStatus(doc, doc.left(c.target.sale))
	return doc, nil
}

// call sends one request of a person. planned is the moment the person wanted
// to send it: what passes until it is really sent is the load's own lateness.
func (c *crowd) call(ctx context.Context, op, method, path string, planned time.Time, headers []wire.Header, body []byte) (wire.Answer, error) {
	var start time.Time
	a, err := c.w.Do(ctx, method, path, headers, body, func(t time.Time) { start = t })
	if ctx.Err() != nil && err != nil {
		return a, ctx.Err() // the rush ended: not an answer of the platform
	}
	c.m.late.record(start.Sub(planned))
	c.m.answered(op, time.Since(start), a, err)
	return a, err
}

// getStatus asks for the room's document as the page does.
func (c *crowd) getStatus(ctx context.Context, planned time.Time) (*status, error) {
	if c.cdn != nil {
		return c.cdn.status(ctx, c, planned)
	}
	return c.fetchStatus(ctx, planned)
}

func (c *crowd) fetchStatus(ctx context.Context, planned time.Time) (*status, error) {
	a, err := c.call(ctx, opStatus, "GET", "/function/join-room?room="+c.target.room, planned, nil, nil)
	if err != nil {
		return nil, err
	}
	if !a.OK() {
		return nil, fmt.Errorf("rush: status %s", reason(a, nil))
	}
	return c.parseStatus(a.Body)
}

// gather makes the people.
func (c *crowd) gather(people []character, r *rand.Rand) {
	for i, ch := range people {
		p := &person{c: c, character: ch, account: c.accountName(i), rand: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))}
		c.people = append(c.people, p)
	}
}

// run lets everybody go and returns when all have gone home.
func (c *crowd) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range c.people {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p.live(ctx)
			c.m.done.Add(1)
		}()
	}
	wg.Wait()
}

func (c *crowd) accountName(i int) string {
	prefix := c.prefix
	if prefix == "" {
		prefix = "rush"
	}
	return fmt.Sprintf("%s-%06d", prefix, i+1)
}

// cdn models a cache in front of the platform that honours max-age=1: one
// fetch a second serves everybody.
type cdn struct {
	mu   sync.Mutex
	at   time.Time
	doc  *status
	busy bool
}

func (d *cdn) status(ctx context.Context, c *crowd, planned time.Time) (*status, error) {
	d.mu.Lock()
	fresh := d.doc != nil && (time.Since(d.at) < time.Second || d.busy)
	doc := d.doc
	if fresh {
		d.mu.Unlock()
		return doc, nil
	}
	d.busy = true
	d.mu.Unlock()
	doc, err := c.fetchStatus(ctx, planned)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	if err != nil {
		return nil, err
	}
	d.doc, d.at = doc, time.Now()
	return doc, nil
}

// countFirst counts a person's first attempt to join. One that met a process
// we had just killed is counted apart: nobody's request survives that.
func (c *crowd) countFirst(ok bool, account string, a wire.Answer, err error) {
	switch {
	case ok:
		c.m.firstOK.Add(1)
		return
	case c.inFault.Load() > 0:
		c.m.firstBadInFault.Add(1)
	default:
		c.m.firstBad.Add(1)
	}
	c.m.mu.Lock()
	if len(c.m.firstFailures) < maxProblems {
		c.m.firstFailures = append(c.m.firstFailures, fmt.Sprintf("%s after %.1f s: %s", account, time.Since(c.target.opens).Seconds(), reason(a, err)))
	}
	c.m.mu.Unlock()
}

// sold is told how many seats have tickets. With the last one the rush is over
// soon: those in line see it at their next poll and go.
func (c *crowd) sold(seats int) {
	if c.seats > 0 && seats/c.party == c.seats/c.party {
		c.story.mark(&c.story.allSold)
		c.finish()
	}
}

// finish sends home everybody who still waits.
func (c *crowd) finish() { c.overOnce.Do(func() { close(c.over) }) }
