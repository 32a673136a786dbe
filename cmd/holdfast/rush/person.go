package rush

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"handler/function/cmd/holdfast/wire"
)

// How a browser behaves when something does not work.
const (
	retryFirst = time.Second      // first pause after a failed request
	retryMost  = 10 * time.Second // pauses double up to this
	// scriptTaps is how often a script joins again, and scriptPause how fast.
	scriptTaps  = 20
	scriptPause = 100 * time.Millisecond
	// holdTries bounds how often one asks for seats that somebody was faster at
	// before looking at the room's document again.
	holdTries = 4
	// settleEvery is how often the page asks whether the payment has arrived.
	settleEvery = time.Second
)

// person is one customer, from the first tap to the ticket.
type person struct {
	c *crowd
	character
	account string
	auth    wire.Header
	rand    *rand.Rand

	mu         sync.Mutex // the checks of places ask on the person's behalf
	placeToken string

	inLine  bool
	left    time.Time     // when the page is closed; zero: never
	poll    time.Duration // what the last answer asked for
	posted  time.Time     // when it came
	holdOff time.Time     // no POST before
	place   int64         // 0: not told yet
	state   string
	admit   wire.Header
	admitBy time.Time
	keys    int // idempotency keys used
}

func (p *person) live(ctx context.Context) {
	token, err := p.c.token(p.account)
	if err != nil {
		p.c.story.problem("account token: " + err.Error())
		return
	}
	p.auth = wire.Header{Name: "Authorization", Value: "Bearer " + token}
	if !p.enter(ctx) {
		return
	}
	for p.wait(ctx) {
		if done := p.shop(ctx); done || ctx.Err() != nil {
			return
		}
		if !p.rejoin(ctx) {
			return
		}
	}
}

// enter joins the line: the first attempt is counted, then it is tried again
// as a browser would. It returns false when the rush is over before.
func (p *person) enter(ctx context.Context) bool {
	planned := p.c.target.opens.Add(p.arrives)
	if !sleepUntil(ctx, planned) {
		return false
	}
	pause := retryFirst
	for try := 1; ; try++ {
		a, err := p.post(ctx, opJoin, map[string]any{"sale": p.c.target.sale}, planned)
		if ctx.Err() != nil {
			return false
		}
		ok := err == nil && a.OK()
		// A script that taps before the opening and is told so has not failed to
		// join: it has not been able to yet.
		early := err == nil && a.Status == 425
		if try == 1 && !early {
			p.c.countFirst(ok, p.account, a, err)
		}
		if ok {
			p.c.m.joined.Add(1)
			p.c.m.at().joined.Add(1)
			p.inLine = true
			break
		}
		if early {
			try, pause = 0, scriptPause
		}
		planned = time.Now().Add(max(pause, a.RetryAfter))
		if !sleepUntil(ctx, planned) {
			return false
		}
		pause = min(2*pause, retryMost)
	}
	if p.leaves > 0 {
		p.left = time.Now().Add(p.leaves)
	}
	if p.script {
		p.tapAgain(ctx)
	}
	return ctx.Err() == nil
}

// tapAgain joins over and over without a token, as a script that hopes for a
// better place does.
func (p *person) tapAgain(ctx context.Context) {
	for range scriptTaps {
		planned := time.Now().Add(scriptPause)
		if !sleepUntil(ctx, planned) {
			return
		}
		_, _ = p.post(ctx, opJoin, map[string]any{"sale": p.c.target.sale}, planned)
	}
}

// post is join-room's POST; what the answer says is taken in. With op opPlace
// the Place-Token is sent.
func (p *person) post(ctx context.Context, op string, body map[string]any, planned time.Time) (wire.Answer, error) {
	headers := []wire.Header{p.auth}
	if op == opPlace {
		p.mu.Lock()
		headers = append(headers, wire.Header{Name: "Place-Token", Value: p.placeToken})
		p.mu.Unlock()
	}
	a, err := p.send(ctx, op, "/function/join-room", headers, body, planned)
	if err != nil || !a.OK() {
		return a, err
	}
	var j joinAnswer
	if err := json.Unmarshal(a.Body, &j); err != nil {
		return a, fmt.Errorf("rush: join-room: %w", err)
	}
	p.took(j)
	return a, nil
}

func (p *person) took(j joinAnswer) {
	p.mu.Lock()
	if j.PlaceToken != "" {
		p.placeToken = j.PlaceToken
	}
	p.mu.Unlock()
	if j.Place != nil {
		p.place = *j.Place
		p.c.line.told(p.account, *j.Place)
	}
	p.state = j.State
	if j.PollAfterMS > 0 {
		p.poll, p.posted = time.Duration(j.PollAfterMS)*time.Millisecond, time.Now()
	}
	if j.AdmitToken != "" && j.AdmitFor != "standby" {
		if p.admit.Value == "" {
			p.c.m.admitted.Add(1)
			p.c.m.at().admitted.Add(1)
			p.c.story.mark(&p.c.story.firstAdmitted)
		}
		p.admit = wire.Header{Name: "Admit-Token", Value: j.AdmitToken}
		if j.AdmitExpiresAt != nil {
			p.admitBy = *j.AdmitExpiresAt
		}
	}
}

// wait stands in line until one is admitted. It does what the page does
// (functions/web, room.js and line.js): look at the public document, and post
// the Place-Token only to learn the place after the draw and when it is one's
// turn. It returns false when the person has gone: the page was closed, or it
// is all over.
func (p *person) wait(ctx context.Context) bool {
	pause := retryFirst
	slept := p.sleeps == 0
	wake := time.Now().Add(p.nextPoll(nil))
	for {
		if p.admit.Value != "" {
			return true
		}
		if !slept {
			slept = true
			wake = time.Now().Add(p.sleeps)
		}
		if !p.left.IsZero() && wake.After(p.left) {
			if sleepUntil(ctx, p.left) {
				p.c.m.left.Add(1)
			}
			return false
		}
		if !p.sleepOrOver(ctx, wake) {
			if ctx.Err() == nil {
				p.c.m.refused.Add(1)
			}
			return false
		}
		doc, err := p.c.getStatus(ctx, wake)
		if err != nil {
			wake = time.Now().Add(pause)
			pause = min(2*pause, retryMost)
			continue
		}
		pause = retryFirst
		if p.due(doc) && !time.Now().Before(p.holdOff) {
			a, err := p.post(ctx, opPlace, map[string]any{"sale": p.c.target.sale}, time.Now())
			if err != nil || !a.OK() {
				wake = time.Now().Add(max(2*time.Second, a.RetryAfter) + time.Duration(p.rand.Int64N(int64(time.Second))))
				continue
			}
			p.holdOff = time.Now().Add(p.poll * 9 / 10)
			if p.state == "lapsed" && !p.rejoin(ctx) {
				return false
			}
		}
		wake = time.Now().Add(p.nextPoll(doc))
		if p.due(doc) && wake.After(p.holdOff) {
			wake = time.Now().Add(max(time.Second, time.Until(p.holdOff)))
		}
	}
}

// due says whether the page would post the Place-Token (line.js, stand).
func (p *person) due(doc *status) bool {
	switch {
	case doc.State == "closed", doc.State == "before", doc.State == "drawing":
		return false
	case doc.State == "standby" && p.place > doc.Lapsed:
		return false // this crowd buys: it waits for seats to come back, not for standby
	case p.place == 0:
		return true
	case p.place <= doc.Lapsed:
		return p.state != "lapsed"
	case doc.State == "paused":
		return false
	}
	return p.place <= doc.Serving
}

// nextPoll is how long the page waits: what the last answer asked for while it
// is fresh, else by how near one's turn is (line.js, nextPoll).
func (p *person) nextPoll(doc *status) time.Duration {
	wait := 5 * time.Second
	switch {
	case p.poll > 0 && time.Since(p.posted) < p.poll:
		wait = p.poll
	case doc != nil && p.place > 0 && doc.AdmitPerSec > 0:
		eta := time.Duration(float64(p.place-doc.Serving) / doc.AdmitPerSec * float64(time.Second))
		wait = min(15*time.Second, max(1500*time.Millisecond, eta/8))
	}
	wait = max(time.Second, wait)
	return wait*9/10 + time.Duration(p.rand.Int64N(int64(wait/5)))
}

// rejoin asks for a new place at the tail, after a lapse or a used admission.
func (p *person) rejoin(ctx context.Context) bool {
	select {
	case <-p.c.over:
		p.c.m.refused.Add(1)
		return false
	default:
	}
	p.c.line.left(p.account)
	p.place, p.admit = 0, wire.Header{}
	pause := retryFirst
	for {
		a, err := p.post(ctx, opPlace, map[string]any{"sale": p.c.target.sale, "rejoin": true}, time.Now())
		if err == nil && a.OK() {
			return true
		}
		if !p.sleepOrOver(ctx, time.Now().Add(max(pause, a.RetryAfter))) {
			if ctx.Err() == nil {
				p.c.m.refused.Add(1)
			}
			return false
		}
		pause = min(2*pause, retryMost)
	}
}

// send posts a body. A doubler sends every request twice at the same time with
// the same Idempotency-Key; the answers must agree.
func (p *person) send(ctx context.Context, op, path string, headers []wire.Header, body any, planned time.Time) (wire.Answer, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return wire.Answer{}, err
	}
	if !p.doubler {
		return p.c.call(ctx, op, "POST", path, planned, headers, raw)
	}
	var second wire.Answer
	var secondErr error
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		second, secondErr = p.c.call(ctx, op, "POST", path, planned, headers, raw)
	}()
	first, err := p.c.call(ctx, op, "POST", path, planned, headers, raw)
	wg.Wait()
	p.c.m.twice.Add(1)
	if err == nil && secondErr == nil && first.OK() && second.OK() && !sameIDs(op, first.Body, second.Body) {
		p.c.m.twiceDiffered.Add(1)
		p.c.story.problem(fmt.Sprintf("%s sent twice by %s was answered differently: %s and %s",
			op, p.account, short(first.Body), short(second.Body)))
	}
	// The one that was still running answers 409 in-progress: the other counts.
	if (err != nil || !first.OK()) && secondErr == nil && second.OK() {
		return second, nil
	}
	return first, err
}

// sameIDs compares what a doubled request made: the booking or the payment.
func sameIDs(op string, a, b []byte) bool {
	var x, y struct {
		Booking string `json:"booking"`
		Payment string `json:"payment"`
		Place   *int64 `json:"place"`
	}
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	if op == opJoin || op == opPlace {
		return x.Place == nil || y.Place == nil || *x.Place == *y.Place
	}
	return x.Booking == y.Booking && x.Payment == y.Payment
}

func short(b []byte) string {
	if len(b) > 200 {
		b = b[:200]
	}
	return string(b)
}

// key makes a new Idempotency-Key.
func (p *person) key() wire.Header {
	p.keys++
	return wire.Header{Name: "Idempotency-Key", Value: fmt.Sprintf("%s-%d", p.account, p.keys)}
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sleepOrOver sleeps until t; false when the rush ended meanwhile.
func (p *person) sleepOrOver(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.c.over:
		return false
	case <-ctx.Done():
		return false
	}
}
