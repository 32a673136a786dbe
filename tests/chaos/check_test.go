package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gofrs/uuid/v5"
	"github.com/jackc/pgx/v5"

	"handler/function/shared/audit"
	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
	"handler/function/tests/chaos/model"
)

// checker looks at quiet moments: nobody is at work and nothing is due. What it
// knows of bookings goes from one to the next.
type checker struct {
	w       *world
	begun   int64 // when the segment began
	strips  map[int]model.Strip
	known   map[int64]*kept // bookings that may still change
	numbers map[string]int  // of seats, by name
	release int64           // the last release read
	freed   map[int][]freed // by seat
	stood   map[int64]int64 // orders, and by when they surely stood in their queues
	left    map[int64]int64 // orders that were left, and when that was said
	faults  []found
	final   map[string]bool // payments that nothing can happen to any more, by key
	checked int             // operations of seats that went through the model
	first   int             // holds that were looked at for standby first
}

// found is one thing that is wrong, and which check saw it.
type found struct{ check, text string }

func (f found) String() string { return f.check + ": " + f.text }

// kept is a booking as it stood at the last quiet moment.
type kept struct {
	from, to int
	seats    []int
	ends     int64
	lines    int // of its history
}

// row is a booking as it stands.
type row struct {
	number     int64
	account    string
	class      string
	from, to   int
	seats      []int
	quantity   int
	state      string
	amount     int64
	made, ends int64
	origin     string
	history    []happened
}

type happened struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	Why  string    `json:"why"`
}

// freed is a release row.
type freed struct {
	id, booking int64
	event       string
	seat        int
	from, to    int
	at, doneAt  int64
}

// order is a standby order as it stands.
type order struct {
	number, score, booking int64
	account, state         string
	classes                []string
	class                  string
	from, to, quantity     int
	queued, matched, gone  int64 // 0: not
	payment                uuid.UUID
	fares                  []int64
}

func newChecker(w *world) *checker {
	c := &checker{w: w, strips: map[int]model.Strip{}, known: map[int64]*kept{}, freed: map[int][]freed{}, final: map[string]bool{}, stood: map[int64]int64{}, left: map[int64]int64{}}
	c.begun = now()
	for n, s := range c.read() {
		c.strips[n] = s
	}
	return c
}

func (c *checker) fault(check, format string, args ...any) {
	c.faults = append(c.faults, found{check, fmt.Sprintf(format, args...)})
}

// read reads every strip: the ends in microseconds and the bookings.
func (c *checker) read() map[int]model.Strip {
	type strip struct {
		number int
		model.Strip
	}
	at := now()
	all := map[int]model.Strip{}
	for _, s := range read(c.w, func(r pgx.CollectableRow) (s strip, err error) {
		var until, by []int64
		if err := r.Scan(&s.number, &until, &by); err != nil {
			return s, err
		}
		for i := range until {
			s.Legs[i] = model.Leg{Holder: by[i], Until: until[i]}
		}
		s.Now = at
		return s, nil
	}, `SELECT number, ARRAY(SELECT CASE WHEN u = 'infinity' THEN $2 WHEN u = '-infinity' THEN 0 ELSE (extract(epoch FROM u) * 1000000)::bigint END
			FROM unnest(taken_until) u), taken_by FROM seat WHERE sale_id = $1`, c.w.sale, model.Forever) {
		all[s.number] = s.Strip
	}
	return all
}

// bookings are those that changed since the segment began, or may still change.
func (c *checker) bookings() []row {
	return read(c.w, func(r pgx.CollectableRow) (b row, err error) {
		var history []byte
		var made, ends time.Time
		err = r.Scan(&b.number, &b.account, &b.class, &b.from, &b.to, &b.seats, &b.quantity, &b.state, &b.amount, &made, &ends, &b.origin, &history)
		if err != nil {
			return b, err
		}
		b.made, b.ends = made.UnixMicro(), ends.UnixMicro()
		return b, json.Unmarshal(history, &b.history)
	}, `SELECT number, account, class, leg_from, leg_to, seats, quantity, state, amount, made_at, ends_at, origin, history FROM booking
		WHERE sale_id = $1 AND (state IN ('held', 'booked') OR made_at > $2 OR ended_at > $2) ORDER BY number`,
		c.w.sale, time.UnixMicro(c.begun).Add(-15*time.Second))
}

func (c *checker) readOrders() []order {
	micros := func(t *time.Time) int64 {
		if t == nil {
			return 0
		}
		return t.UnixMicro()
	}
	return read(c.w, func(r pgx.CollectableRow) (o order, err error) {
		var queued, matched, ended *time.Time
		var history []byte
		var lines []happened
		if err := r.Scan(&o.number, &o.account, &o.state, &o.score, &o.booking, &o.classes, &o.class, &o.from, &o.to, &o.quantity,
			&queued, &matched, &ended, &history, &o.payment, &o.fares); err != nil {
			return o, err
		}
		if err := json.Unmarshal(history, &lines); err != nil {
			return o, err
		}
		o.queued, o.matched, o.gone = micros(queued), micros(matched), micros(matched)
		if o.gone == 0 {
			o.gone = micros(ended)
			for _, l := range lines {
				if l.What == "cancelling" {
					o.gone = l.At.UnixMicro()
				}
			}
		}
		return o, nil
	}, `SELECT number, account, state, COALESCE(score, 0), COALESCE(booking, 0), classes, COALESCE(class, ''), leg_from, leg_to, quantity,
			queued_at, matched_at, ended_at, history, COALESCE(payment_id, '00000000-0000-0000-0000-000000000000'), fares FROM standby_order
		WHERE sale_id = $1 AND (ended_at IS NULL OR ended_at > $2) ORDER BY number`, c.w.sale, time.UnixMicro(c.begun).Add(-15*time.Second))
}

func (c *checker) readReleases() {
	for _, f := range read(c.w, func(r pgx.CollectableRow) (f freed, err error) {
		var at, doneAt time.Time
		err = r.Scan(&f.id, &f.event, &f.seat, &f.from, &f.to, &f.booking, &at, &doneAt)
		f.at, f.doneAt = at.UnixMicro(), doneAt.UnixMicro()
		return f, err
	}, `SELECT release_id, event_type, seat, leg_from, leg_to, COALESCE(booking, 0), released_at, COALESCE(done_at, clock_timestamp() + interval '1 year')
		FROM seat_release WHERE sale_id = $1 AND release_id > $2 ORDER BY release_id`, c.w.sale, c.release) {
		c.release = f.id
		c.freed[f.seat] = append(c.freed[f.seat], f)
	}
}

// segment checks all that happened since the last quiet moment. The gate is shut.
func (c *checker) segment(clients []*client) {
	w := c.w
	spans := w.spans.take()
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	c.readReleases()
	c.numbers = map[string]int{}
	for _, p := range read(w, pgx.RowToStructByPos[struct {
		Name   string
		Number int
	}], `SELECT name, number FROM seat_place WHERE sale_id = $1`, w.sale) {
		c.numbers[p.Name] = p.Number
	}
	strips := c.read()
	readAt := now()
	bookings := c.bookings()
	orders := c.readOrders()
	var told []seen
	var looks []look
	var died []tryout
	for _, cl := range clients {
		told, looks, died = append(told, cl.seen...), append(looks, cl.looks...), append(died, cl.died...)
		cl.seen, cl.looks, cl.died = nil, nil, nil
		maps.Copy(c.left, cl.left)
	}

	ops := c.operations(bookings, told, died, spans, readAt)
	for _, l := range looks {
		what := model.Vacant
		if l.taken {
			what = model.Taken
		}
		ops[l.seat] = append(ops[l.seat], model.Op{What: what, From: l.from, To: l.to, Call: l.span.from, Return: l.span.to})
	}
	c.linearizable(ops, strips, readAt)
	c.whole(bookings, strips, readAt)
	c.standbyFirst(told, orders, spans)
	c.ordersRight(orders, bookings)
	c.fair(orders, spans)
	c.stranded(orders, strips)
	c.books(bookings)
	c.mirror(orders)
	c.news(bookings, orders)
	report, err := audit.Run(w.ctx, w.services.DB.Owner, w.sale, nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range report.Broken {
		c.fault("audit "+b.Check, "%s", b.Detail)
	}
	for _, a := range report.Alerts {
		if strings.HasPrefix(a.Kind, "release") || a.Kind == "money" {
			c.fault("alert", "%s %s: %s", a.Kind, a.Subject, a.Detail)
		}
	}
	c.strips = strips
	c.begun = readAt
	w.seats.Store(int64(len(strips)))
	c.handOver(clients, orders, bookings)
}

// until is when whoever was at work at a moment had ended: what they did to a
// booking of this account is done by then.
func until(spans []span, at int64, account string) int64 {
	end := int64(0)
	for _, s := range spans {
		if s.from > at+1 {
			break
		}
		mine := s.account == "" || s.account == account
		if mine && s.unsure >= at {
			end = max(end, s.unsure)
		}
	}
	return end
}

// operations makes the history of each seat: what clients were told, and of what
// nobody was told (a match, a webhook, an operation that died) that it happened
// at some time after the moment that stands in the booking.
func (c *checker) operations(bookings []row, told []seen, died []tryout, spans []span, readAt int64) map[int][]model.Op {
	ops := map[int][]model.Op{}
	said := map[int64]map[string]seen{}
	for _, s := range told {
		if said[s.booking] == nil {
			said[s.booking] = map[string]seen{}
		}
		if s.what == "exchanged" { // as often as somebody likes
			s.what += fmt.Sprint(" ", s.span.from)
		}
		if _, twice := said[s.booking][s.what]; twice {
			c.fault("told", "booking %d was said to be %s twice", s.booking, s.what)
		}
		said[s.booking][s.what] = s
	}
	known := map[int64]*kept{}
	for _, b := range bookings {
		was := c.known[b.number]
		add := func(what model.What, from, to int, seats []int, ends int64, call, ret int64) {
			for _, s := range seats {
				ops[s] = append(ops[s], model.Op{What: what, Booking: b.number, From: from, To: to, Until: ends, Call: call, Return: min(ret, readAt)})
			}
		}
		// when is the interval in which something happened: as the client saw it, or
		// from its moment until everybody had ended who was at work at it.
		when := func(what string, at int64) (call, ret int64) {
			if s, ok := said[b.number][what]; ok {
				if at < s.span.from || at > s.span.to {
					c.fault("told", "booking %d was said to be %s at %d to %d, and stands as of %d", b.number, what, s.span.from, s.span.to, at)
				}
				delete(said[b.number], what)
				return s.span.from, s.span.to
			}
			end := until(spans, at, b.account)
			if end == 0 {
				c.fault("told", "booking %d became %s at %d, when nobody was at work", b.number, what, at)
				end = unknown
			}
			return at, end
		}
		now := kept{from: b.from, to: b.to, seats: b.seats, ends: b.ends, lines: len(b.history)}
		if was == nil {
			if b.made <= c.begun {
				continue // ended before this segment
			}
			was = &kept{from: b.from, to: b.to, seats: b.seats}
			if olds := c.olds(b.history); len(olds) > 0 {
				was.from, was.to, was.seats = olds[0].from, olds[0].to, olds[0].seats
			}
			was.ends = b.made + int64(c.w.hold)*1_000_000
			if b.origin == "house" {
				was.ends = b.ends
			}
			if s, ok := said[b.number]["held"]; ok {
				if s.ends != was.ends || s.account != b.account || s.class != b.class || s.from != was.from || s.to != was.to || !slices.Equal(s.seats, was.seats) {
					c.fault("told", "booking %d was said to be %+v, and is %+v", b.number, s, b)
				}
			} else if b.origin == "customer" && !slices.ContainsFunc(died, func(d tryout) bool { return d.account == b.account && d.call <= b.made }) {
				c.fault("told", "booking %d of %s was asked for by nobody", b.number, b.account)
			}
			call, ret := when("held", b.made)
			add(model.Hold, was.from, was.to, was.seats, was.ends, call, ret)
		}
		if b.ends > was.ends {
			// By a payment that was begun or kept pending, at any time since.
			add(model.Extend, was.from, was.to, was.seats, b.ends, max(b.made, c.begun), unknown)
		}
		at := *was
		olds := c.olds(b.history[was.lines:])
		for _, l := range b.history[was.lines:] {
			moment := l.At.UnixMicro()
			switch l.What {
			case "booked":
				call, ret := when("booked", moment)
				add(model.Book, at.from, at.to, at.seats, 0, call, ret)
			case "rescued":
				call, ret := when("booked", moment)
				add(model.Rescue, at.from, at.to, at.seats, 0, call, ret)
			case "released", "unblocked":
				call, ret := when("let go", moment)
				add(model.LetGo, at.from, at.to, at.seats, 0, call, ret)
			case "cancelled":
				call, ret := when("returned", moment)
				add(model.Free, at.from, at.to, at.seats, 0, call, ret)
			case "exchanged":
				if olds[0].from != at.from || olds[0].to != at.to || !slices.Equal(olds[0].seats, at.seats) {
					c.fault("told", "booking %d had %+v, and its exchange says %+v", b.number, at, olds[0])
				}
				olds = olds[1:]
				next := kept{from: b.from, to: b.to, seats: b.seats}
				if len(olds) > 0 {
					next = olds[0]
				}
				what := "exchanged"
				for k, s := range said[b.number] {
					if strings.HasPrefix(k, what) && s.span.from <= moment && moment <= s.span.to {
						what = k
					}
				}
				call, ret := when(what, moment)
				c.swap(ops, b.number, at, next, call, min(ret, readAt))
				at = next
			}
		}
		if b.state == "held" || b.state == "booked" || b.state == "expired" {
			known[b.number] = &now
		}
	}
	for number, left := range said {
		for what, s := range left {
			c.fault("told", "booking %d was said to be %s, and that stands nowhere: %+v", number, what, s)
		}
	}
	c.known = known
	return ops
}

// olds are what a booking had before each of its exchanges: "second, 0 to 3, 2-1A 2-1B".
func (c *checker) olds(history []happened) (olds []kept) {
	for _, l := range history {
		if l.What != "exchanged" {
			continue
		}
		part := strings.Split(l.Why, ", ")
		var k kept
		if _, err := fmt.Sscanf(part[1], "%d to %d", &k.from, &k.to); err != nil {
			c.w.Fatalf("%q: %v", l.Why, err)
		}
		k.from++
		for _, name := range strings.Fields(part[2]) {
			k.seats = append(k.seats, c.numbers[name])
		}
		slices.Sort(k.seats)
		olds = append(olds, k)
	}
	return olds
}

// swap adds an exchange: on each seat old legs, new ones, or both.
func (c *checker) swap(ops map[int][]model.Op, booking int64, old, next kept, call, ret int64) {
	for _, s := range old.seats {
		o := model.Op{What: model.Swap, Booking: booking, OldFrom: old.from, OldTo: old.to, Call: call, Return: ret}
		if slices.Contains(next.seats, s) {
			o.From, o.To = next.from, next.to
		}
		ops[s] = append(ops[s], o)
	}
	for _, s := range next.seats {
		if !slices.Contains(old.seats, s) {
			ops[s] = append(ops[s], model.Op{What: model.Swap, Booking: booking, From: next.from, To: next.to, Call: call, Return: ret})
		}
	}
}

// linearizable checks each seat's history: from how it stood at the last quiet
// moment to how it stands now.
func (c *checker) linearizable(ops map[int][]model.Op, strips map[int]model.Strip, readAt int64) {
	for _, seat := range sortedKeys(strips) {
		from, there := c.strips[seat]
		if !there {
			from = model.Strip{Now: c.begun} // added in this segment
		}
		from.Now = c.begun
		list := append(ops[seat], model.Op{What: model.Read, Strip: strips[seat], Call: readAt, Return: readAt})
		var history []porcupine.Operation
		for i, o := range list {
			history = append(history, porcupine.Operation{ClientId: i, Input: o, Call: o.Call, Return: o.Return})
		}
		c.checked += len(list) - 1
		switch porcupine.CheckOperationsTimeout(model.Of(from), history, 20*time.Second) {
		case porcupine.Illegal:
			slices.SortFunc(list, func(a, b model.Op) int { return int(a.Call - b.Call) })
			text := fmt.Sprintf("the history of seat %d is not that of a seat, from %v on", seat, from)
			for _, o := range list {
				text += fmt.Sprintf("\n    %d to %d (%d us): %s", o.Call-c.begun, o.Return-c.begun, o.Return-o.Call, o)
			}
			c.fault("linearizable", "%s", text)
		case porcupine.Unknown:
			c.fault("linearizable", "seat %d has too wide a history: %d operations", seat, len(list))
		}
		delete(ops, seat)
	}
	for seat := range ops {
		c.fault("linearizable", "there is no seat %d", seat)
	}
}

// whole: each live booking has all its seats on every leg, and no strip has what
// no booking has.
func (c *checker) whole(bookings []row, strips map[int]model.Strip, readAt int64) {
	type at struct {
		booking int64
		leg     int
	}
	has := map[at]int{}
	for _, s := range strips {
		for i, l := range s.Legs {
			if l.Until > readAt {
				has[at{l.Holder, i + 1}]++
			}
		}
	}
	for _, b := range bookings {
		live := b.state == "booked" || b.state == "held" && b.ends > readAt
		for leg := 1; leg <= legs; leg++ {
			want := 0
			if live && b.from <= leg && leg <= b.to {
				want = b.quantity
			}
			if got := has[at{b.number, leg}]; got != want {
				c.fault("whole", "booking %d (%s) has %d seats on leg %d, and should have %d", b.number, b.state, got, leg, want)
			}
			delete(has, at{b.number, leg})
		}
	}
	for k, n := range has {
		c.fault("whole", "booking %d is not live and has %d seats on leg %d", k.booking, n, k.leg)
	}
}

// slack is how long before its commit the transaction of `match` may have begun.
const slack = 2_000_000

// standbyFirst: while somebody of the class waits, the open sale gives out no legs
// that came free and that `match` has not passed by since.
func (c *checker) standbyFirst(told []seen, orders []order, spans []span) {
	for _, h := range told {
		if h.what != "held" && h.what != "exchanged" {
			continue
		}
		waits := slices.ContainsFunc(orders, func(o order) bool {
			return o.queued > 0 && o.queued < h.span.from && (o.gone == 0 || o.gone > h.span.to) && slices.Contains(o.classes, h.class) &&
				until(spans, o.queued, o.account) < h.span.from
		})
		if !waits {
			continue
		}
		for _, seat := range h.seats {
			c.first++
			for leg := h.from; leg <= h.to; leg++ {
				if slices.Contains(h.had, seat) && h.hadFrom <= leg && leg <= h.hadTo {
					continue // it had this one
				}
				last := freed{}
				for _, f := range c.freed[seat] {
					if f.at < h.span.from && f.from <= leg && leg <= f.to && f.at > last.at {
						last = f
					}
				}
				if last.at != 0 && !slices.ContainsFunc(c.freed[seat], func(f freed) bool {
					return f.doneAt >= last.at-slack && f.doneAt <= h.span.to
				}) {
					c.fault("standby first", "booking %d got leg %d of seat %d, which came free (%s of %d, %d..%d) %d us before, and match had not passed it by",
						h.booking, leg, seat, last.event, last.booking, last.from, last.to, h.span.from-last.at)
					break
				}
			}
		}
	}
}

// ordersRight: each order is in one state with what belongs to it; who was told
// that he has left is not matched.
func (c *checker) ordersRight(orders []order, bookings []row) {
	of := map[int64]row{}
	for _, b := range bookings {
		of[b.number] = b
	}
	queued := map[int64]int{}
	for _, number := range read(c.w, pgx.RowTo[int64], `SELECT number FROM standby_queue WHERE sale_id = $1`, c.w.sale) {
		queued[number]++
	}
	served := map[int64]int64{}
	for _, o := range orders {
		waits := o.state == "queued" || o.state == "pending"
		if want := len(o.classes); waits && queued[o.number] != want || !waits && queued[o.number] != 0 {
			c.fault("orders", "order %d (%s) stands %d times in the queues, and has %d classes", o.number, o.state, queued[o.number], want)
		}
		delete(queued, o.number)
		// Who was matched and not charged may leave all the same.
		if at, left := c.left[o.number]; left && (o.state != "cancelled" || o.matched > at) {
			c.fault("orders", "order %d was left, and is %s with booking %d", o.number, o.state, o.booking)
		}
		if o.booking == 0 {
			continue
		}
		if other, twice := served[o.booking]; twice {
			c.fault("orders", "booking %d is of the orders %d and %d", o.booking, other, o.number)
		}
		served[o.booking] = o.number
		b, there := of[o.booking]
		if !there {
			continue // it ended before this segment
		}
		fare := o.fares[max(0, slices.Index(o.classes, o.class))]
		if b.origin != "match" || b.account != o.account || b.quantity != o.quantity || b.amount != fare {
			c.fault("orders", "order %+v has the booking %+v", o, b)
		}
		if ok := map[string]bool{"booked": true, "cancelled": true}[b.state]; ok != (o.state == "booked") {
			c.fault("orders", "order %d is %s, and its booking %d %s", o.number, o.state, b.number, b.state)
		}
	}
	for number := range queued {
		c.fault("orders", "order %d has ended and stands in a queue", number)
	}
}

// fair: of two that wait for one seat each in the same queue and no other, the one
// that surely stood there before the other came is served first.
func (c *checker) fair(orders []order, spans []span) {
	type at struct {
		class    string
		from, to int
	}
	queues := map[at][]order{}
	for _, o := range orders {
		if o.queued > 0 && o.quantity == 1 && len(o.classes) == 1 {
			k := at{o.classes[0], o.from, o.to}
			queues[k] = append(queues[k], o)
		}
	}
	for _, o := range orders {
		if _, known := c.stood[o.number]; o.queued > 0 && !known {
			c.stood[o.number] = until(spans, o.queued, o.account)
		}
	}
	for k, list := range queues {
		for _, b := range list {
			if b.matched == 0 || b.matched < c.begun {
				continue
			}
			for _, a := range list {
				if c.stood[a.number] < b.queued && (a.gone == 0 || a.gone > b.matched && a.matched > 0) {
					c.fault("fair", "order %d was matched at %d, and order %d, which came before it in the queue %+v, at %d", b.number, b.matched, a.number, k, a.matched)
				}
			}
		}
	}
}

// stranded: no order for one seat among the first ten of its queue waits beside
// legs that are free and were so before the last round of match.
func (c *checker) stranded(orders []order, strips map[int]model.Strip) {
	classOf := map[int]string{}
	for _, p := range read(c.w, pgx.RowToStructByPos[struct {
		Number int
		Class  string
	}], `SELECT number, class FROM seat WHERE sale_id = $1`, c.w.sale) {
		classOf[p.Number] = p.Class
	}
	calm := now() - 3_000_000
	for _, o := range orders {
		if o.state != "queued" || o.quantity != 1 || o.queued > calm {
			continue
		}
		for _, class := range o.classes {
			ahead := 0
			for _, a := range orders {
				if (a.state == "queued" || a.state == "pending") && a.score < o.score && a.from == o.from && a.to == o.to && slices.Contains(a.classes, class) {
					ahead++
				}
			}
			if ahead >= 10 {
				continue
			}
			for seat, s := range strips {
				if classOf[seat] != class {
					continue
				}
				free := true
				for _, l := range s.Legs[o.from-1 : o.to] {
					free = free && l.Until < calm
				}
				if free {
					c.fault("stranded", "order %d waits for legs %d..%d of %s, and seat %d has them free: %v", o.number, o.from, o.to, class, seat, s)
					break
				}
			}
		}
	}
}

// paid is a payment as we have it.
type paid struct {
	booking, order           int64
	step, orderState, booked string
}

func (w *world) payments() map[uuid.UUID]paid {
	ours := map[uuid.UUID]paid{}
	for _, p := range read(w, func(r pgx.CollectableRow) (p struct {
		id uuid.UUID
		paid
	}, err error) {
		err = r.Scan(&p.id, &p.booking, &p.order, &p.step, &p.orderState, &p.booked)
		return p, err
	}, `SELECT p.payment_id, COALESCE(p.booking, 0), COALESCE(p.standby_order, 0), p.step, COALESCE(o.state, ''), COALESCE(b.state, '')
		FROM payment p LEFT JOIN booking b ON b.sale_id = p.sale_id AND b.number = p.booking
		LEFT JOIN standby_order o ON o.sale_id = p.sale_id AND o.number = p.standby_order WHERE p.sale_id = $1`, w.sale) {
		ours[p.id] = p.paid
	}
	return ours
}

// paymentOf is our id of a payment of the gateway; nil where it has none of ours.
func paymentOf(w *world, p sandbox.Payment) uuid.UUID {
	_, id, err := w.replicas[0].ids.ParsePayment(p.Metadata[sandbox.MetadataPayment])
	if err != nil {
		return uuid.Nil
	}
	return id
}

// atGateway asks the gateway about every payment that was ever asked for, by its
// key, but for those that nothing can happen to any more.
func (c *checker) atGateway() map[string]sandbox.Payment {
	w := c.w
	w.till.mu.Lock()
	keys := slices.Clone(w.till.keys)
	w.till.mu.Unlock()
	all := map[string]sandbox.Payment{}
	for _, key := range keys {
		if _, asked := all[key]; asked || c.final[key] {
			continue
		}
		var p sandbox.Payment
		err := w.atGateway("GET", "/api/payments?key="+key, nil, &p)
		if errors.Is(err, payment.ErrUnknown) {
			continue // refused, or it never got there
		}
		if err != nil {
			w.Fatal(err)
		}
		all[key] = p
	}
	return all
}

// books compares what the gateway has with what is booked and who waits.
func (c *checker) books(bookings []row) {
	ours := c.w.payments()
	keeps := map[int64]int64{} // booking → what the gateway keeps for it
	var total, fares int64
	for key, p := range c.atGateway() {
		is, known := ours[paymentOf(c.w, p)]
		kept := p.Captured - p.Refunded
		total += kept
		if kept > 0 {
			keeps[is.booking] += kept
		}
		switch {
		case !known && p.Status != payment.Cancelled && kept > 0:
			c.fault("books", "the gateway has %s for a payment that is not ours: %+v", key, p)
		case kept > 0 && is.booked != "booked":
			c.fault("books", "%d is kept of %s (%s) for booking %d, which is %q (order %d %s)", kept, key, p.Reference, is.booking, is.booked, is.order, is.orderState)
		case p.Status == payment.Authorised && is.orderState != "queued":
			c.fault("books", "%s (%s) is authorised, and its order %d is %s", key, p.Reference, is.order, is.orderState)
		case is.order != 0 && p.Status == payment.Pending && is.orderState != "authorising":
			c.fault("books", "%s (%s) is open, and its order %d is %s", key, p.Reference, is.order, is.orderState)
		case is.orderState == "queued" && p.Status != payment.Authorised:
			c.fault("books", "order %d waits, and %s (%s) is %s", is.order, key, p.Reference, p.Status)
		case p.Status == payment.Cancelled || p.Status == payment.Succeeded && kept == 0:
			c.final[key] = true
		}
	}
	for _, b := range bookings {
		if b.state != "booked" {
			continue
		}
		fares += b.amount
		want := int64(b.to-b.from+1) * int64(b.quantity) * faresOf(b.class)
		if b.amount != want || keeps[b.number] != want {
			c.fault("books", "booking %d costs %d, its fare is %d and the gateway keeps %d for it", b.number, b.amount, want, keeps[b.number])
		}
	}
	if total != fares {
		c.fault("books", "the gateway keeps %d, and what is booked costs %d", total, fares)
	}
}

func faresOf(class string) int64 { return fares[class] }

// mirror: the queues in Redis are those in Postgres, once they were tended.
func (c *checker) mirror(orders []order) {
	w := c.w
	r := w.replicas[0]
	if _, err := r.lines.Tend(w.ctx, true); err != nil {
		w.Fatal(err)
	}
	here, err := r.lines.Read(w.ctx, w.sale)
	if err != nil {
		w.Fatal(err)
	}
	stands := map[string]bool{}
	for _, p := range here {
		stands[fmt.Sprintf("%s %d..%d %d at %d", p.Class, p.From, p.To, p.Number, p.Score)] = true
	}
	for _, o := range orders {
		if o.state != "queued" {
			continue
		}
		for _, class := range o.classes {
			k := fmt.Sprintf("%s %d..%d %d at %d", class, o.from, o.to, o.number, o.score)
			if !stands[k] {
				c.fault("mirror", "%s is not in Redis", k)
			}
			delete(stands, k)
		}
	}
	for k := range stands {
		c.fault("mirror", "%s is a ghost in Redis", k)
	}
}

// news: who has a booking was sent a ticket, and who got it by standby was told so.
func (c *checker) news(bookings []row, orders []order) {
	for _, b := range bookings {
		if _, sent := c.w.mailed.Load(mail{"ticket", "", b.number, 0}); b.state == "booked" && !sent {
			c.fault("news", "booking %d has no ticket", b.number)
		}
	}
	for _, o := range orders {
		if _, told := c.w.mailed.Load(mail{"notify", "standby_matched", o.booking, o.number}); o.state == "booked" && !told {
			c.fault("news", "nobody was told that order %d has booking %d", o.number, o.booking)
		}
	}
}

// handOver tells clients what became of their orders meanwhile, and lets go of
// bookings that have ended.
func (c *checker) handOver(clients []*client, orders []order, bookings []row) {
	state := map[int64]order{}
	for _, o := range orders {
		state[o.number] = o
	}
	live := map[int64]row{}
	for _, b := range bookings {
		live[b.number] = b
	}
	for _, cl := range clients {
		var still []*waiting
		for _, w := range cl.orders {
			o, there := state[w.number]
			if there && o.booking != 0 && live[o.booking].state == "booked" && !slices.ContainsFunc(cl.booked, func(m *mine) bool { return m.number == o.booking }) {
				b := live[o.booking]
				cl.booked = append(cl.booked, &mine{account: b.account, number: b.number, id: c.w.replicas[0].ids.Booking(c.w.sale, b.number), class: b.class, from: b.from, to: b.to, seats: b.seats})
			}
			if there && (o.state == "queued" || o.state == "authorising") {
				still = append(still, w)
			}
		}
		cl.orders = still
		cl.held = slices.DeleteFunc(cl.held, func(m *mine) bool { return live[m.number].state != "held" && live[m.number].state != "booked" })
		cl.booked = slices.DeleteFunc(cl.booked, func(m *mine) bool { return live[m.number].state != "booked" && live[m.number].state != "held" })
		cl.left = map[int64]int64{}
	}
}

func sortedKeys[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func rowText(r pgx.CollectableRow) (s string, err error) {
	err = r.Scan(&s)
	return s, err
}
