package rush

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"handler/function/cmd/holdfast/wire"
	"handler/function/shared/ticket"
)

// booking is the answer of hold (api/openapi.yaml), as far as the crowd reads it.
type booking struct {
	Booking string    `json:"booking"`
	Locator string    `json:"locator"`
	State   string    `json:"state"`
	Seats   []string  `json:"seats"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	EndsAt  time.Time `json:"ends_at"`
	Price   money     `json:"price"`
}

type money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// shop is what an admitted person does. It returns true when the person goes
// home, false when the admission has ended and a new place is needed.
func (p *person) shop(ctx context.Context) bool {
	b, again := p.take(ctx)
	if b == nil {
		return !again
	}
	p.c.m.holders.Add(1)
	p.c.story.mark(&p.c.story.firstHeld)
	p.c.m.heldSeats.Add(int64(len(b.Seats)))
	p.c.m.at().held.Add(int64(len(b.Seats)))
	if p.unpaid {
		p.c.m.unpaid.Add(1)
		return true
	}
	// Names and card are typed in: up to a quarter of the hold, at most 10 s.
	think := min(p.c.target.hold/4, 10*time.Second)
	if !sleepUntil(ctx, time.Now().Add(time.Duration(p.rand.Int64N(int64(think)+1)))) {
		return true
	}
	paid := p.pay(ctx, b)
	if !paid {
		p.c.m.unpaid.Add(1)
		return true
	}
	p.fetchTicket(ctx, b)
	return true
}

// take holds seats. nil: none were got; again tells whether the person still
// wants some, with a new admission.
func (p *person) take(ctx context.Context) (b *booking, again bool) {
	pause := retryFirst
	for ctx.Err() == nil {
		b, a, err := p.askForSeats(ctx)
		if b != nil {
			return b, false
		}
		if ctx.Err() != nil {
			return nil, false
		}
		switch c := code(a); {
		case err == nil && a.Status == 403:
			return nil, true
		case c == "limit-reached", c == "sale-closed", c == "wrong-state":
			p.c.m.refused.Add(1)
			return nil, false
		case c == "standby-first":
			p.c.m.standbyFirst.Add(1)
		}
		// Sold out for now, or the platform is down: the page shows what is left
		// and lets one try again when there is something.
		for {
			wake := time.Now().Add(max(pause, a.RetryAfter) + time.Duration(p.rand.Int64N(int64(time.Second))))
			if !p.sleepOrOver(ctx, wake) {
				if ctx.Err() == nil {
					p.c.m.refused.Add(1)
				}
				return nil, false
			}
			if doc, err := p.c.getStatus(ctx, wake); err == nil && doc.left(p.c.target.sale) != 0 && !doc.SoldOut {
				break
			}
			pause = min(pause*3/2, retryMost/2)
		}
	}
	return nil, false
}

// askForSeats posts holds until one is given or none is to be had. The last
// answer comes back with a nil booking.
func (p *person) askForSeats(ctx context.Context) (*booking, wire.Answer, error) {
	t := p.c.target
	from, to := t.stops[p.from], t.stops[p.to]
	var a wire.Answer
	var err error
	key, retry := p.key(), false
	var body map[string]any
	for try := 1; try <= holdTries && ctx.Err() == nil; try++ {
		if !retry {
			body = map[string]any{"sale": t.sale, "class": t.class, "from": from, "to": to}
			body["quantity"] = p.c.party
			if p.chooser && try < holdTries {
				if seats := p.chooseSeats(ctx, from, to); seats != nil {
					delete(body, "quantity")
					body["seats"] = seats
				}
			}
		}
		a, err = p.send(ctx, opHold, "/function/hold", []wire.Header{p.auth, p.admit, key}, body, time.Now())
		if err == nil && a.OK() {
			b := new(booking)
			if err := json.Unmarshal(a.Body, b); err != nil || len(b.Seats) == 0 {
				p.c.story.problem("hold answered without seats: " + short(a.Body))
				return nil, a, nil
			}
			return b, a, nil
		}
		// Unknown or still running: the same request with the same key.
		retry = err != nil || a.Status >= 500 || a.Status == 429 || code(a) == "in-progress"
		if retry {
			if !sleepUntil(ctx, time.Now().Add(max(retryFirst/2, a.RetryAfter))) {
				return nil, a, ctx.Err()
			}
			continue
		}
		if code(a) != "seat-taken" {
			return nil, a, nil
		}
		key = p.key()
	}
	return nil, a, err
}

// chooseSeats looks at the map and picks neighbours in layout order, else any
// free seats; nil when the map shows too few.
func (p *person) chooseSeats(ctx context.Context, from, to string) []string {
	t := p.c.target
	q := url.Values{"sale": {t.sale}, "from": {from}, "to": {to}, "class": {t.class}}
	a, err := p.c.call(ctx, opMap, "GET", "/function/seat-map?"+q.Encode(), time.Now(), nil, nil)
	if err != nil || !a.OK() {
		return nil
	}
	var m struct {
		Classes []struct {
			Class string `json:"class"`
			Seats string `json:"seats"`
		} `json:"classes"`
	}
	if json.Unmarshal(a.Body, &m) != nil {
		return nil
	}
	i := slices.IndexFunc(m.Classes, func(c struct {
		Class string `json:"class"`
		Seats string `json:"seats"`
	}) bool {
		return c.Class == t.class
	})
	if i < 0 {
		return nil
	}
	bits, err := base64.StdEncoding.DecodeString(m.Classes[i].Seats)
	if err != nil {
		return nil
	}
	return pickSeats(freeSeats(bits, len(t.names)), t.names, p.c.party, p.rand.IntN)
}

// freeSeats reads a map of two bits a seat, the lowest bits of a byte first:
// 0 is free.
func freeSeats(bits []byte, seats int) []int {
	var free []int
	for n := range min(seats, 4*len(bits)) {
		if bits[n/4]>>(2*(n%4))&3 == 0 {
			free = append(free, n)
		}
	}
	return free
}

// pickSeats takes n seats side by side from a random point on, else the first
// free from there; nil when there are too few.
func pickSeats(free []int, names []string, n int, random func(int) int) []string {
	if len(free) < n {
		return nil
	}
	start := random(len(free))
	at := -1
	for i := range free {
		j := (start + i) % len(free)
		if j+n <= len(free) && free[j+n-1]-free[j] == n-1 {
			at = j
			break
		}
	}
	picked := make([]string, 0, n)
	for i := range n {
		j := (max(at, 0) + i) % len(free)
		if at < 0 {
			j = (start + i) % len(free)
		}
		picked = append(picked, names[free[j]])
	}
	return picked
}

// pay starts a payment, pays it at the gateway and waits until the platform
// has taken note. False: the seats were not got.
func (p *person) pay(ctx context.Context, b *booking) bool {
	key := p.key()
	pause := retryFirst / 2
	var started struct {
		Payment string `json:"payment"`
		Gateway struct {
			Reference string `json:"reference"`
		} `json:"gateway"`
		EndsAt time.Time `json:"ends_at"`
	}
	for {
		a, err := p.send(ctx, opPay, "/function/pay", []wire.Header{p.auth, key}, map[string]any{"booking": b.Booking, "gateway": "sandbox"}, time.Now())
		if ctx.Err() != nil {
			return false
		}
		if err == nil && a.OK() {
			if err := json.Unmarshal(a.Body, &started); err != nil || started.Gateway.Reference == "" {
				p.c.story.problem("pay answered without a reference: " + short(a.Body))
				return false
			}
			break
		}
		if err == nil && a.Status < 500 && a.Status != 429 && code(a) != "in-progress" {
			return false
		}
		if !sleepUntil(ctx, time.Now().Add(max(pause, a.RetryAfter))) {
			return false
		}
		pause = min(2*pause, retryMost)
	}
	for try := 1; ; try++ {
		err := p.c.gateway.succeed(ctx, started.Gateway.Reference)
		if err == nil {
			break
		}
		if ctx.Err() != nil || try == 10 {
			p.c.story.problem(fmt.Sprintf("the sandbox gateway did not take the payment of %s: %v", p.account, err))
			return false
		}
		sleepUntil(ctx, time.Now().Add(retryFirst))
	}
	p.c.story.paid(b.Booking, started.Gateway.Reference, b.Price.Amount)
	q := url.Values{"booking": {b.Booking}}.Encode()
	for {
		wake := time.Now().Add(settleEvery)
		a, err := p.c.call(ctx, opSettle, "GET", "/function/hold?"+q, time.Now(), []wire.Header{p.auth}, nil)
		if err == nil && a.OK() {
			var now booking
			_ = json.Unmarshal(a.Body, &now)
			switch now.State {
			case "booked":
				return true
			case "lost", "cancelled", "released":
				p.c.story.note(fmt.Sprintf("%s paid too late and is refunded (%s)", p.account, now.State))
				return false
			}
		}
		if !sleepUntil(ctx, wake) {
			return false
		}
	}
}

// fetchTicket gets the ticket as the customer would and hands it to the judge.
func (p *person) fetchTicket(ctx context.Context, b *booking) {
	q := url.Values{"booking": {b.Booking}}.Encode()
	pause := retryFirst / 2
	for {
		a, err := p.c.call(ctx, opTicket, "GET", "/function/ticket?"+q, time.Now(), []wire.Header{p.auth}, nil)
		if err == nil && a.OK() {
			if err := p.readTicket(a.Body, b); err != nil {
				p.c.story.problem(err.Error())
			}
			return
		}
		if !sleepUntil(ctx, time.Now().Add(max(pause, a.RetryAfter))) {
			return
		}
		pause = min(2*pause, retryMost)
	}
}

func (p *person) readTicket(raw []byte, b *booking) error {
	var t struct {
		Locator string `json:"locator"`
		Seats   []struct {
			Seat string `json:"seat"`
			QR   string `json:"qr"`
		} `json:"seats"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return fmt.Errorf("ticket of %s cannot be read: %w", p.account, err)
	}
	if len(t.Seats) != p.c.party {
		return fmt.Errorf("ticket of %s is for %d seats, not %d", p.account, len(t.Seats), p.c.party)
	}
	list := make([]ticketed, 0, len(t.Seats))
	for _, s := range t.Seats {
		if s.QR == "" {
			return fmt.Errorf("ticket of %s has no code for seat %s", p.account, s.Seat)
		}
		seat := ticketed{account: p.account, booking: b.Booking, seat: s.Seat, from: p.from, to: p.to}
		if keys := p.c.tickets; keys != nil {
			pass, err := ticket.Verify(keys, s.QR)
			if err != nil {
				return fmt.Errorf("the code on the ticket of %s is not genuine: %w", p.account, err)
			}
			if fmt.Sprint(pass.Sale) != p.c.target.sale || pass.SeatName != s.Seat {
				return fmt.Errorf("the ticket of %s says seat %s and its code sale %d, seat %s", p.account, s.Seat, pass.Sale, pass.SeatName)
			}
			seat.from, seat.to = pass.FirstLeg-1, pass.LastLeg
		}
		list = append(list, seat)
	}
	p.c.judge.add(list...)
	p.c.m.soldSeats.Add(int64(len(list)))
	p.c.m.at().sold.Add(int64(len(list)))
	p.c.story.mark(&p.c.story.firstTicket)
	p.c.sold(int(p.c.m.soldSeats.Load()))
	return nil
}
