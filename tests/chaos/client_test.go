package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/shared/standby"
)

// How many in a thousand die on the way: operations of clients, and runs of what
// goes on in the background. Each costs a connection, and a new one costs as much
// as twenty operations.
const (
	cutOps  = 15
	cutRuns = 15
)

// What a client knows of an operation when it is over.
const (
	done    = "ok"
	refused = "refused"
	unsure  = "unknown"
)

// uncertain says whether something may have happened although there was an error.
func uncertain(err error) bool {
	var p *problem.Error
	switch {
	case err == nil:
		return false
	case errors.As(err, &p):
		return p.Code.Status() >= 500
	}
	return true
}

func outcome(err error) string {
	switch {
	case err == nil:
		return done
	case uncertain(err):
		return unsure
	}
	return refused
}

// mine is a booking that a client has.
type mine struct {
	account  string
	number   int64
	id       string
	class    string
	from, to int
	seats    []int
	pays     []paying
	tries    int // to return or change it
}

// paying is a payment that a client has begun.
type paying struct{ id, reference string }

// waiting is an order that a client has made.
type waiting struct {
	account, id string
	number      int64
	reference   string // of its payment
	acted       bool
}

// promise is a payment that is made at its time.
type promise struct {
	at        int64
	reference string
}

// seen is what a client was told that happened, and when.
type seen struct {
	what     string // held, let go, returned, exchanged
	booking  int64
	account  string
	class    string
	from, to int
	seats    []int
	ends     int64
	span     span
	// Of an exchange, what it had before.
	hadFrom, hadTo int
	had            []int
}

// look is what a refusal says of a seat: that it is taken, or free and not for
// the open sale.
type look struct {
	seat     int
	from, to int
	taken    bool
	span     span
}

// tryout is an operation of which nobody knows what became.
type tryout struct {
	account string
	call    int64
}

// crowd is who the clients act for.
type crowd struct {
	accounts  int      // of a client
	intervals [][2]int // that they want; nil: any
}

// client is one of the eight. Nothing of it is shared while it is at work.
type client struct {
	w   *world
	n   int
	rng *rand.Rand
	crowd
	calm   bool     // nothing of it dies
	people []string // accounts
	used   []int

	held   []*mine
	booked []*mine
	orders []*waiting
	late   []promise
	again  func() // the last request, to be sent again

	// Since the last quiet moment.
	seen  []seen
	looks []look
	died  []tryout // holds

	over  map[int64]bool  // bookings that were let go: the hold's old answer does not bring them back
	left  map[int64]int64 // orders that were left, as the client was told
	count map[string]int  // operations by kind and outcome
}

func newClient(w *world, n int, of crowd, seed uint64) *client {
	c := &client{w: w, crowd: of, people: make([]string, of.accounts), used: make([]int, of.accounts), over: map[int64]bool{}, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), left: map[int64]int64{}, count: map[string]int{}}
	for i := range c.people {
		c.people[i] = c.newAccount()
	}
	return c
}

func (c *client) newAccount() string { return fmt.Sprintf("c%d-%d", c.n, c.w.keys.Add(1)) }

// account is one of the client's people. They are replaced after a while.
func (c *client) account() string {
	i := c.rng.IntN(len(c.people))
	if c.used[i]++; c.used[i] > 40 {
		c.people[i], c.used[i] = c.newAccount(), 0
	}
	return c.people[i]
}

func (c *client) key() string { return "k" + strconv.FormatInt(c.w.keys.Add(1), 10) }

func (c *client) replica() *replica { return c.w.replicas[c.rng.IntN(len(c.w.replicas))] }

// interval is one to six legs, short ones more often.
func (c *client) interval() (from, to int) {
	if n := len(c.intervals); n > 0 {
		i := c.intervals[c.rng.IntN(n)]
		return i[0], i[1]
	}
	n := 1 + min(c.rng.IntN(legs), c.rng.IntN(legs))
	from = 1 + c.rng.IntN(legs-n+1)
	return from, from + n - 1
}

// op does one operation: some of them die on the way.
func (c *client) op(kind, account string, do func(ctx context.Context) error) (sp span, err error) {
	ctx := c.w.ctx
	if !c.calm && c.rng.IntN(1000) < cutOps {
		var cancel context.CancelFunc
		ctx, cancel = fated(ctx, c.rng)
		defer cancel()
	}
	sp = c.w.work(account, func() error {
		err = do(ctx)
		return err
	})
	c.count[kind+" "+outcome(err)]++
	return sp, err
}

// kinds are the operations with their weights.
var kinds = []struct {
	weight int
	do     func(c *client)
}{
	{170, (*client).holdAny},
	{170, (*client).holdNamed},
	{120, (*client).pay},
	{160, (*client).payer},
	{30, (*client).letGo},
	{55, (*client).giveBack},
	{45, (*client).exchange},
	{90, (*client).join},
	{90, (*client).authorise},
	{40, (*client).leave},
	{20, (*client).ask},
	{20, (*client).sendAgain},
	{4, (*client).killBackend},
	{5, (*client).trouble},
	{4, (*client).drop},
	{1, (*client).wipe},
	{1, (*client).addCoach},
}

var weights = func() (sum int) {
	for _, k := range kinds {
		sum += k.weight
	}
	return sum
}()

// run does operations until none is left.
func (c *client) run(left *atomic.Int64) {
	for left.Add(-1) >= 0 {
		if i := slices.IndexFunc(c.late, func(p promise) bool { return p.at <= now() }); i >= 0 {
			p := c.late[i]
			c.late = slices.Delete(c.late, i, i+1)
			_, _ = c.op("payer late", "nobody", func(context.Context) error { return c.w.act(p.reference, sandboxgw.Act{Do: "succeed"}) })
			continue
		}
		n := c.rng.IntN(weights)
		for _, k := range kinds {
			if n -= k.weight; n < 0 {
				k.do(c)
				break
			}
		}
	}
}

// fill buys what there is, long intervals first: standby is for a sale that is
// sold. Nothing of it dies. It returns how many operations that took.
func (c *client) fill() (ops int) {
	c.calm = true
	defer func() { c.calm = false }()
	for n := legs; n > 0; n-- {
		for missed := 0; missed < 3; {
			from := 1 + c.rng.IntN(legs-n+1)
			wish := booking.Wish{Account: c.newAccount(), Class: classes[c.n%2], Quantity: min(n, 3), Origin: booking.ByCustomer, Key: c.key(), Hash: []byte("h"),
				From: strconv.Itoa(from - 1), To: strconv.Itoa(from + n - 1)}
			held := len(c.held)
			c.holdOnce("hold any", wish, from, from+n-1)
			if ops++; len(c.held) == held {
				missed++
				continue
			}
			m := c.held[held]
			c.payOnce(m, payment.Request{Account: m.account, Booking: m.id, Gateway: "sandbox", Key: c.key(), Hash: []byte("h")})
			if ops++; len(m.pays) > 0 {
				_, _ = c.op("payer succeed", m.account, func(context.Context) error { return c.w.act(m.pays[0].reference, sandboxgw.Act{Do: "succeed"}) })
				ops++
				c.held = without(c.held, m)
				c.booked = append(c.booked, m)
			}
		}
	}
	return ops
}

func (c *client) sale(ctx context.Context, r *replica) (*catalog.Sale, error) {
	return r.sales.Sale(ctx, c.w.sale)
}

func (c *client) holdAny() {
	wish := booking.Wish{Class: classes[min(1, c.rng.IntN(6))], Quantity: 1 + min(c.rng.IntN(bookingLimit), c.rng.IntN(bookingLimit))}
	wish.Prefer.Together = c.rng.IntN(2) == 0
	c.hold("hold any", wish)
}

// holdNamed wants one or two seats by name, often ones that came free just now.
func (c *client) holdNamed() {
	r := c.replica()
	sale, err := c.sale(c.w.ctx, r)
	if err != nil {
		return
	}
	seat := 0
	if c.rng.IntN(10) < 7 {
		seat = c.w.hot.pick(c.rng)
	}
	if seat == 0 || seat > len(sale.Places) {
		seat = 1 + c.rng.IntN(len(sale.Places))
	}
	place, _ := sale.Place(seat)
	wish := booking.Wish{Class: place.Class, Seats: []string{place.Name()}}
	if next, ok := sale.Place(seat + 1); ok && next.Class == place.Class && c.rng.IntN(4) == 0 {
		wish.Seats = append(wish.Seats, next.Name())
	}
	c.hold("hold named", wish)
}

func (c *client) hold(kind string, wish booking.Wish) {
	from, to := c.interval()
	wish.Account, wish.Origin, wish.Key, wish.Hash = c.account(), booking.ByCustomer, c.key(), []byte("h")
	wish.From, wish.To = strconv.Itoa(from-1), strconv.Itoa(to)
	c.again = func() { c.holdOnce("hold again", wish, from, to) }
	c.holdOnce(kind, wish, from, to)
}

func (c *client) holdOnce(kind string, wish booking.Wish, from, to int) {
	r := c.replica()
	var h *booking.Hold
	sp, err := c.op(kind, wish.Account, func(ctx context.Context) error {
		sale, err := c.sale(ctx, r)
		if err != nil {
			return err
		}
		h, err = r.bookings.Hold(ctx, sale, wish)
		return err
	})
	var p *problem.Error
	switch {
	case err == nil:
		if !h.Again && !h.Replay {
			c.seen = append(c.seen, seen{what: "held", booking: h.Number, account: wish.Account, class: wish.Class, from: from, to: to,
				seats: h.SeatNumbers, ends: h.EndsAt.UnixMicro(), span: sp})
		}
		if !c.over[h.Number] && !slices.ContainsFunc(c.held, func(m *mine) bool { return m.number == h.Number }) {
			c.held = append(c.held, &mine{account: wish.Account, number: h.Number, id: h.ID, class: wish.Class, from: from, to: to, seats: h.SeatNumbers})
		}
	case uncertain(err):
		c.died = append(c.died, tryout{wish.Account, sp.from})
		if c.rng.IntN(2) == 0 {
			c.again = nil
			c.holdOnce("hold again", wish, from, to)
		}
	case errors.As(err, &p) && len(wish.Seats) == 1 && !p.Replay:
		seat := c.seatNumber(wish.Seats[0])
		switch {
		case p.Code == problem.SeatTaken && p.Format == "No longer free: %s":
			c.looks = append(c.looks, look{seat, from, to, true, sp})
		case p.Code == problem.StandbyFirst:
			c.looks = append(c.looks, look{seat, from, to, false, sp})
		}
	}
}

func (c *client) seatNumber(name string) int {
	sale, err := c.sale(c.w.ctx, c.w.replicas[0])
	if err != nil {
		return 0
	}
	n, _ := sale.SeatNumber(name)
	return n
}

// one picks one of a list; nil for none.
func one[T any](rng *rand.Rand, list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return list[rng.IntN(len(list))]
}

// newest picks one of the last few, which are those that are still alive.
func newest[T any](rng *rand.Rand, list []*T) *T { return one(rng, list[max(0, len(list)-12):]) }

func without[T any](list []*T, x *T) []*T {
	return slices.DeleteFunc(list, func(y *T) bool { return x == y })
}

func (c *client) pay() {
	m := newest(c.rng, c.held)
	if m == nil || len(m.pays) > 2 {
		c.holdAny()
		return
	}
	req := payment.Request{Account: m.account, Booking: m.id, Gateway: "sandbox", Key: c.key(), Hash: []byte("h")}
	c.again = func() { c.payOnce(m, req) }
	c.payOnce(m, req)
}

func (c *client) payOnce(m *mine, req payment.Request) {
	r := c.replica()
	var p payment.Started
	_, err := c.op("pay", m.account, func(ctx context.Context) (err error) {
		p, _, err = r.payments.Pay(ctx, req)
		return err
	})
	switch {
	case err == nil:
		if p.Gateway.Reference != "" && !slices.ContainsFunc(m.pays, func(q paying) bool { return q.id == p.Payment }) {
			m.pays = append(m.pays, paying{p.Payment, p.Gateway.Reference})
		}
	case uncertain(err):
		if c.again != nil && c.rng.IntN(2) == 0 {
			c.again = nil
			c.payOnce(m, req)
		}
	default: // it has ended, or is paid
		c.held = without(c.held, m)
	}
}

// payer is what who pays does at the gateway: most pay, once or twice.
func (c *client) payer() {
	m := newest(c.rng, slices.DeleteFunc(slices.Clone(c.held), func(m *mine) bool { return len(m.pays) == 0 }))
	if m == nil {
		c.pay()
		return
	}
	p := m.pays[c.rng.IntN(len(m.pays))]
	do := []string{"succeed", "succeed", "succeed", "succeed", "succeed", "fail", "fail", "pend", "twice", "disorder", "fail-succeed", "late"}[c.rng.IntN(12)]
	if do == "late" { // with some luck in time, or to be rescued
		c.late = append(c.late, promise{now() + c.rng.Int64N(int64(c.w.hold)*1_500_000), p.reference})
		do = "pend"
	} else {
		_, _ = c.op("payer "+do, m.account, func(context.Context) error { return c.w.act(p.reference, sandboxgw.Act{Do: do}) })
	}
	if do == "fail" || do == "pend" {
		return
	}
	c.held = without(c.held, m)
	c.booked = append(c.booked, m)
}

func (c *client) letGo() {
	m := newest(c.rng, c.held)
	if m == nil {
		c.holdNamed()
		return
	}
	r := c.replica()
	req := payment.Release{Account: m.account, Booking: m.id, Key: c.key(), Hash: []byte("h")}
	var got payment.Released
	var replay bool
	sp, err := c.op("let go", m.account, func(ctx context.Context) (err error) {
		got, replay, err = r.payments.Abandon(ctx, req)
		return err
	})
	if err == nil && !replay {
		c.seen = append(c.seen, seen{what: "let go", booking: m.number, span: sp})
		c.over[m.number] = true
		c.w.hot.add(got.Seats...)
	}
	if !uncertain(err) {
		c.held = without(c.held, m)
	}
}

// old picks a booking that is likely to be booked by now.
func (c *client) old() *mine {
	if len(c.booked) < 3 {
		return nil
	}
	return one(c.rng, c.booked[:len(c.booked)-2])
}

func (c *client) giveBack() {
	m := c.old()
	if m == nil {
		c.payer()
		return
	}
	r := c.replica()
	req := payment.Release{Account: m.account, Booking: m.id, Key: c.key(), Hash: []byte("h")}
	var got payment.Released
	var replay bool
	sp, err := c.op("refund", m.account, func(ctx context.Context) (err error) {
		got, replay, err = r.payments.Return(ctx, req)
		return err
	})
	if err == nil && !replay {
		c.seen = append(c.seen, seen{what: "returned", booking: m.number, span: sp})
		c.w.hot.add(got.Seats...)
	}
	if m.tries++; err == nil || m.tries > 2 {
		c.booked = without(c.booked, m)
	}
}

func (c *client) join() {
	from, to := c.interval()
	wish := standby.Wish{Account: c.account(), From: strconv.Itoa(from - 1), To: strconv.Itoa(to), Gateway: "sandbox", Key: c.key(),
		Quantity: 1, Together: c.rng.IntN(3) == 0}
	switch c.rng.IntN(6) {
	case 0:
		wish.Classes = []string{"first"}
	case 1:
		wish.Classes = []string{"second", "first"}
	default:
		wish.Classes = []string{"second"}
	}
	if c.rng.IntN(4) == 0 {
		wish.Quantity = 2 + c.rng.IntN(2)
	}
	c.again = func() { c.joinOnce(wish) }
	c.joinOnce(wish)
}

func (c *client) joinOnce(wish standby.Wish) {
	r := c.replica()
	var j payment.Joined
	_, err := c.op("join", wish.Account, func(ctx context.Context) error {
		sale, err := c.sale(ctx, r)
		if err != nil {
			return err
		}
		j, _, err = r.payments.JoinStandby(ctx, sale, payment.Joining{Wish: wish, Hash: []byte("h")})
		return err
	})
	switch {
	case err == nil:
		ref, err := r.ids.ParseOrder(j.Order)
		if err != nil {
			c.w.Errorf("the order id %q cannot be read: %v", j.Order, err)
			return
		}
		if !slices.ContainsFunc(c.orders, func(o *waiting) bool { return o.number == ref.Number }) {
			c.orders = append(c.orders, &waiting{account: wish.Account, id: j.Order, number: ref.Number, reference: j.Authorise.Reference})
		}
	case uncertain(err) && c.again != nil && c.rng.IntN(2) == 0:
		c.again = nil
		c.joinOnce(wish)
	}
}

// authorise is the payer's part of joining.
func (c *client) authorise() {
	i := slices.IndexFunc(c.orders, func(o *waiting) bool { return !o.acted })
	if i < 0 {
		c.join()
		return
	}
	o := c.orders[i]
	do := []string{"succeed", "succeed", "succeed", "succeed", "succeed", "succeed", "twice", "disorder", "fail", "cancel", "fail-succeed"}[c.rng.IntN(11)]
	o.acted = do != "fail"
	_, _ = c.op("authorise "+do, o.account, func(context.Context) error { return c.w.act(o.reference, sandboxgw.Act{Do: do}) })
}

func (c *client) leave() {
	o := one(c.rng, c.orders)
	if o == nil {
		c.join()
		return
	}
	r := c.replica()
	req := payment.Leaving{Account: o.account, Order: o.id, Key: c.key(), Hash: []byte("h")}
	var got payment.Left
	sp, err := c.op("leave", o.account, func(ctx context.Context) (err error) {
		got, _, err = r.payments.LeaveStandby(ctx, req)
		return err
	})
	if err == nil && (got.State == standby.Cancelling || got.State == standby.Cancelled) {
		c.left[o.number] = sp.to
	}
	if !uncertain(err) {
		c.orders = without(c.orders, o)
	}
}

// ask reads an order: who has been matched has a booking from then on.
func (c *client) ask() {
	o := one(c.rng, c.orders)
	if o == nil {
		c.join()
		return
	}
	r := c.replica()
	var k *standby.Order
	_, err := c.op("ask", o.account, func(ctx context.Context) (err error) {
		k, err = r.orders.Load(ctx, c.w.sale, o.number)
		return err
	})
	if err != nil {
		return
	}
	if k.State == standby.Booked {
		c.booked = append(c.booked, &mine{account: k.Account, number: k.Booking, id: r.ids.Booking(c.w.sale, k.Booking), class: k.Class, from: k.LegFrom, to: k.LegTo})
	}
	if k.State.Ended() {
		c.orders = without(c.orders, o)
	}
}

// sendAgain repeats the last request with its key.
func (c *client) sendAgain() {
	if c.again == nil {
		c.holdAny()
		return
	}
	again := c.again
	c.again = nil
	again()
}

// killBackend ends the database's side of somebody's work.
func (c *client) killBackend() {
	_, _ = c.op("die: connection", "nobody", func(context.Context) error {
		_, err := c.w.services.DB.Owner.Exec(c.w.ctx, `SELECT pg_terminate_backend(pid) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'holdfast_app' AND state <> 'idle'
			ORDER BY random() LIMIT 1) busy`)
		return err
	})
}

// trouble is what goes wrong at the gateway for its next few calls.
func (c *client) trouble() {
	n := 1 + c.rng.IntN(3)
	f := []sandboxgw.Faults{{TimeOut: n}, {LoseWebhooks: n}, {TwiceWebhooks: n}, {RefuseCapture: n}, {RefuseCreate: 1}, {RefuseRefund: 1},
		{DelayMS: 5 * n}, {}}[c.rng.IntN(8)]
	_, _ = c.op("gateway trouble", "nobody", func(context.Context) error { c.w.gateway.SetFaults(f); return nil })
}

// drop loses the nudges of a while.
func (c *client) drop() {
	_, _ = c.op("drop messages", "nobody", func(context.Context) error {
		c.w.deaf.Store(now() + int64(c.rng.IntN(700_000)))
		return nil
	})
}

func (c *client) wipe() {
	_, _ = c.op("wipe redis", "nobody", func(ctx context.Context) error { return c.w.services.Redis.Client.FlushAll(ctx).Err() })
}

// addCoach adds eight seats, of the second class mostly.
func (c *client) addCoach() {
	n := c.w.added.Add(1)
	if n > mostAdded {
		c.holdAny()
		return
	}
	r := c.replica()
	coach := catalog.Extra{Class: classes[min(1, c.rng.IntN(4))], Coach: "x" + strconv.FormatInt(n, 10)}
	for i := range 8 {
		column := string(rune('A' + i%rowSeats))
		coach.Seats = append(coach.Seats, catalog.Seat{Seat: strconv.Itoa(i/rowSeats+1) + column, Row: i/rowSeats + 1, Column: column})
	}
	who := catalog.Caller{Account: "organiser", Org: "o", Key: c.key(), Hash: []byte("h")}
	_, _ = c.op("add coach", "nobody", func(ctx context.Context) error {
		_, err := r.catalog.Do(ctx, who, catalog.Request{Sale: &catalog.Target{ID: strconv.FormatInt(c.w.sale, 10)}, AddSeats: &coach}, "")
		return err
	})
}

// exchange wants as many legs elsewhere, for the same fare: often a few on, on its
// own seats.
func (c *client) exchange() {
	m := c.old()
	if m == nil || len(m.seats) == 0 {
		c.payer()
		return
	}
	from := 1 + c.rng.IntN(legs-(m.to-m.from))
	to := from + m.to - m.from
	want := payment.ExchangeTo{Sale: strconv.FormatInt(c.w.sale, 10), Class: m.class, From: strconv.Itoa(from - 1), To: strconv.Itoa(to)}
	r := c.replica()
	sale, err := c.sale(c.w.ctx, r)
	if err != nil {
		return
	}
	switch hot := c.w.hot.pick(c.rng); {
	case c.rng.IntN(3) == 0:
		for _, s := range m.seats {
			want.Seats = append(want.Seats, sale.SeatName(s))
		}
	case hot > 0 && len(m.seats) == 1 && c.rng.IntN(2) == 0:
		want.Seats = []string{sale.SeatName(hot)}
	default:
		want.Quantity = len(m.seats)
	}
	req := payment.Exchange{Account: m.account, Booking: m.id, To: want, Key: c.key(), Hash: []byte("h")}
	var got payment.Exchanged
	var replay bool
	sp, err := c.op("exchange", m.account, func(ctx context.Context) (err error) {
		got, replay, err = r.exchanges.Exchange(ctx, req)
		return err
	})
	switch {
	case err == nil && !replay:
		c.w.hot.add(m.seats...)
		s := seen{what: "exchanged", booking: m.number, account: m.account, class: m.class, from: from, to: to, hadFrom: m.from, hadTo: m.to, had: m.seats, span: sp}
		for _, name := range got.Seats {
			n, _ := sale.SeatNumber(name)
			s.seats = append(s.seats, n)
		}
		c.seen = append(c.seen, s)
		m.from, m.to, m.seats = from, to, s.seats
	case uncertain(err): // what it has now is not known
		c.booked = without(c.booked, m)
	}
}

// sum adds up the counts of clients.
func sum(clients []*client) map[string]int {
	all := map[string]int{}
	for _, c := range clients {
		for k, n := range c.count {
			all[k] += n
		}
	}
	return all
}

// story is a line for each kind of operation.
func story(counts map[string]int) string {
	var s string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		s += fmt.Sprintf("  %-28s %d\n", k, counts[k])
	}
	return s
}
