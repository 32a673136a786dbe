package money

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/event"
	"handler/function/shared/payment"
	"handler/function/shared/problem"
	"handler/function/tests/harness"
)

// trade is a world whose sale has five legs at 5.00 each, seats 1 to 8 of class
// `second`, 9 to 12 of `first`, which costs the same, and 13 to 14 of `flat`,
// where leg 3 costs 5.00 and the others nothing.
type trade struct {
	*world
	exchanges *payment.Exchanges
}

func newTrade(t *testing.T, o options) *trade {
	t.Helper()
	w := setup(t, o)
	w.sale = w.db.OpenSale(t, 5, 8)
	w.exec(`UPDATE sale SET account_limit = 20 WHERE sale_id = $1`, w.sale)
	w.exec(`INSERT INTO class (sale_id, class, position, title, stock, fare)
		SELECT sale_id, 'first', 1, 'First', stock, fare FROM class WHERE sale_id = $1 AND class = 'second'
		UNION ALL SELECT sale_id, 'flat', 2, 'Flat', stock, '{"kind":"per_leg","amounts":[0,0,500,0,0]}' FROM class WHERE sale_id = $1 AND class = 'second'`, w.sale)
	w.exec(`SELECT seat_create($1, 'first', 5, '{9,10,11,12}', false), seat_create($1, 'flat', 5, '{13,14}', false)`, w.sale)
	w.exec(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name)
		SELECT $1, n, '2-' || n, '2', n, 'A' FROM generate_series(9, 14) n`, w.sale)
	return &trade{w, payment.NewExchanges(w.payments, w.sales, w.maps)}
}

// book makes a booking that is paid for at the gateway.
func (w *trade) book(account, class string, from, to int, seats ...int) int64 {
	w.Helper()
	legs := to - from + 1
	if class == "flat" {
		legs = 1
	}
	number := w.take(account, class, from, to, 500*legs*len(seats), seats...)
	p := w.pay(account, number)
	if got := w.webhook(paidEvent(fmt.Sprintf("paid-%d", number), p)); got != 200 {
		w.Fatalf("webhook: %d", got)
	}
	w.becomes(number, "booked")
	return number
}

// take holds seats at a price.
func (w *trade) take(account, class string, from, to, amount int, seats ...int) int64 {
	w.Helper()
	var raw []byte
	w.scan(&raw, `SELECT hold_seats($1, $2, $3, 'h', NULL, NULL, $4, $5, $6, $7, NULL, $8, $9, now() + interval '2 days', $10, '{}', NULL, 'customer', '')`,
		w.sale, account, w.key(), class, from, to, seats, len(seats), amount, `[{"name":"Ann"}]`)
	var a struct {
		Code   string
		Number int64
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Code != "held" {
		w.Fatalf("hold of %v: %s, %v", seats, raw, err)
	}
	return a.Number
}

// to is what is wanted instead: from before leg `from` to after leg `to`.
func (w *trade) to(class string, from, to int, seats ...int) payment.ExchangeTo {
	x := payment.ExchangeTo{Sale: fmt.Sprint(w.sale), Class: class, From: fmt.Sprint(from - 1), To: fmt.Sprint(to)}
	for _, n := range seats {
		x.Seats = append(x.Seats, seatName(n))
	}
	return x
}

// any is to with a quantity.
func (w *trade) any(class string, from, to, quantity int) payment.ExchangeTo {
	x := w.to(class, from, to)
	x.Quantity = quantity
	return x
}

func seatName(n int) string {
	if n > 8 {
		return fmt.Sprintf("2-%d", n)
	}
	return fmt.Sprintf("1-%d", n)
}

func (w *trade) wish(account string, number int64, to payment.ExchangeTo) payment.Exchange {
	hash, _ := json.Marshal(to)
	return payment.Exchange{Account: account, Booking: w.ids.Booking(w.sale, number), To: to, Key: w.key(), Hash: hash, TraceID: "trace-x"}
}

func (w *trade) exchange(account string, number int64, to payment.ExchangeTo) (payment.Exchanged, error) {
	out, _, err := w.exchanges.Exchange(w.ctx, w.wish(account, number, to))
	return out, err
}

// must exchanges what has to work.
func (w *trade) must(account string, number int64, to payment.ExchangeTo) payment.Exchanged {
	w.Helper()
	out, err := w.exchange(account, number, to)
	if err != nil {
		w.Fatalf("exchange for %+v: %v", to, err)
	}
	return out
}

// refused exchanges what must be refused with a code and a field (or none), with
// nothing changed but the key.
func (w *trade) refused(what string, account string, number int64, to payment.ExchangeTo, code problem.Code, field string) *problem.Error {
	w.Helper()
	before := w.everything()
	_, err := w.exchange(account, number, to)
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != code {
		w.Errorf("%s: %v, want %s", what, err, code)
		return &problem.Error{}
	}
	if field != "" && (len(p.Fields) != 1 || p.Fields[0].Field != field) {
		w.Errorf("%s: %v, want the field %s", what, err, field)
	}
	if after := w.everything(); after != before {
		w.Errorf("%s changed something:\n%s\n%s", what, before, after)
	}
	return p
}

// everything that an exchange could change, as text.
func (w *trade) everything() string {
	w.Helper()
	var s string
	w.scan(&s, `SELECT concat_ws(E'\n',
		(SELECT string_agg(b::text, ' ' ORDER BY number) FROM booking b WHERE sale_id = $1),
		(SELECT string_agg(s::text, ' ' ORDER BY number) FROM seat s WHERE sale_id = $1),
		(SELECT string_agg(o::text, ' ' ORDER BY seat, booking) FROM booked_seat o WHERE sale_id = $1),
		(SELECT string_agg(r::text, ' ' ORDER BY release_id) FROM seat_release r WHERE sale_id = $1),
		(SELECT string_agg(a::text, ' ' ORDER BY account) FROM account_sale a WHERE sale_id = $1),
		(SELECT string_agg(p::text, ' ' ORDER BY payment_id) FROM payment p WHERE sale_id = $1),
		(SELECT string_agg(o.kind || o.payload, ' ' ORDER BY outbox_id) FROM outbox o WHERE sale_id = $1))`, w.sale)
	return s
}

// releases are the RESCHEDULE rows as "seat:from-to", in order.
func (w *trade) releases() string {
	w.Helper()
	var s string
	w.scan(&s, `SELECT coalesce(string_agg(seat || ':' || leg_from || '-' || leg_to, ' ' ORDER BY seat, leg_from), '') FROM seat_release
		WHERE sale_id = $1 AND event_type = 'RESCHEDULE'`, w.sale)
	return s
}

// An exchange in every shape: what the booking has afterwards, and what came free.
func TestExchange(t *testing.T) {
	for _, c := range []struct {
		name     string
		class    string
		from, to int
		seats    []int
		wish     func(w *trade) payment.ExchangeTo
		now      []int // seats afterwards
		released []int
		rows     string
	}{
		{"other seats", "second", 1, 3, []int{1, 2}, func(w *trade) payment.ExchangeTo { return w.to("second", 1, 3, 6, 5) }, []int{5, 6}, []int{1, 2}, "1:1-3 2:1-3"},
		{"another class", "second", 2, 4, []int{3}, func(w *trade) payment.ExchangeTo { return w.to("first", 2, 4, 10) }, []int{10}, []int{3}, "3:2-4"},
		{"any of another class", "second", 2, 4, []int{3, 4}, func(w *trade) payment.ExchangeTo { return w.any("first", 1, 3, 2) }, nil, []int{3, 4}, "3:2-4 4:2-4"},
		{"a later train part, the same seat", "second", 1, 4, []int{7}, func(w *trade) payment.ExchangeTo { return w.to("second", 2, 5, 7) }, []int{7}, []int{7}, "7:1-1"},
		{"an earlier one, the same seat", "second", 2, 5, []int{7}, func(w *trade) payment.ExchangeTo { return w.to("second", 1, 4, 7) }, []int{7}, []int{7}, "7:5-5"},
		{"no leg in common, the same seat", "second", 1, 2, []int{7}, func(w *trade) payment.ExchangeTo { return w.to("second", 4, 5, 7) }, []int{7}, []int{7}, "7:1-2"},
		{"before, no leg in common, the same seat", "second", 4, 5, []int{7}, func(w *trade) payment.ExchangeTo { return w.to("second", 1, 2, 7) }, []int{7}, []int{7}, "7:4-5"},
		{"a part of what it was", "flat", 1, 5, []int{13}, func(w *trade) payment.ExchangeTo { return w.to("flat", 2, 3, 13) }, []int{13}, []int{13}, "13:1-1 13:4-5"},
		{"more than it was", "flat", 3, 3, []int{13}, func(w *trade) payment.ExchangeTo { return w.to("flat", 1, 5, 13) }, []int{13}, nil, ""},
		{"one seat stays, one goes", "second", 1, 3, []int{1, 2}, func(w *trade) payment.ExchangeTo { return w.to("second", 1, 3, 2, 3) }, []int{2, 3}, []int{1}, "1:1-3"},
		{"one moves along, one goes", "second", 1, 3, []int{1, 2}, func(w *trade) payment.ExchangeTo { return w.to("second", 2, 4, 2, 3) }, []int{2, 3}, []int{1, 2}, "1:1-3 2:1-1"},
		{"any: its own seats where they will do", "second", 1, 3, []int{4, 8}, func(w *trade) payment.ExchangeTo { return w.any("second", 2, 4, 2) }, []int{4, 8}, []int{4, 8}, "4:1-1 8:1-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTrade(t, options{})
			number := w.book("ann", c.class, c.from, c.to, c.seats...)
			wish := c.wish(w)
			asked := w.wish("ann", number, wish)
			asked.Preview = true
			before := w.everything()
			preview, _, err := w.exchanges.Exchange(w.ctx, asked)
			if err != nil || !preview.Preview || w.everything() != before {
				t.Errorf("preview: %+v, %v", preview, err)
			}
			out := w.must("ann", number, wish)
			preview.Preview = false
			if c.now != nil && fmt.Sprint(preview) != fmt.Sprint(out) {
				t.Errorf("preview %+v, then %+v", preview, out)
			}
			var b struct {
				Class      string
				From, To   int
				Seats      []int
				State      string
				Passengers string
				History    string
			}
			if err := w.db.Owner.QueryRow(w.ctx, `SELECT class, leg_from, leg_to, seats, state, passengers, history -> -1 ->> 'what' FROM booking WHERE sale_id = $1 AND number = $2`,
				w.sale, number).Scan(&b.Class, &b.From, &b.To, &b.Seats, &b.State, &b.Passengers, &b.History); err != nil {
				t.Fatal(err)
			}
			if b.State != "booked" || b.Class != wish.Class || fmt.Sprint(b.From-1) != wish.From || fmt.Sprint(b.To) != wish.To ||
				c.now != nil && !slices.Equal(b.Seats, c.now) || len(b.Seats) != len(c.seats) || b.Passengers != `[{"name": "Ann"}]` || b.History != "exchanged" {
				t.Errorf("the booking: %+v", b)
			}
			names := func(seats []int) []string {
				all := []string{}
				for _, n := range seats {
					all = append(all, seatName(n))
				}
				return all
			}
			if out.State != "booked" || out.Class != wish.Class || out.From != wish.From || out.To != wish.To || out.Quantity != len(c.seats) ||
				!slices.Equal(out.Seats, names(b.Seats)) || !slices.Equal(out.Released, names(c.released)) || out.Booking != w.ids.Booking(w.sale, number) {
				t.Errorf("answer %+v", out)
			}
			if got := w.releases(); got != c.rows {
				t.Errorf("releases %q, want %q", got, c.rows)
			}
			if w.outbox("ticket", "done_at IS NULL") != 2 || w.outbox("notify", "payload ->> 'template' = 'exchanged'") != 1 {
				t.Error("the ticket or the notice is not to be sent")
			}
			// Whoever waits comes first at what came free.
			if n := w.count(`SELECT count(*) FROM seat_release r JOIN seat s USING (sale_id) WHERE r.sale_id = $1 AND r.event_type = 'RESCHEDULE'
				AND s.number = r.seat AND (s.taken_until[r.leg_from] <> r.released_at OR s.considered_at >= r.released_at OR r.trace_id <> 'trace-x')`, w.sale); n != 0 {
				t.Errorf("%d releases do not agree with their seats", n)
			}
			if n := w.count(`SELECT live_seats FROM account_sale WHERE sale_id = $1 AND account = 'ann'`, w.sale); n != len(c.seats) {
				t.Errorf("%d live seats", n)
			}
			w.check()
		})
	}
}

// Whatever is refused names why, and changes nothing.
func TestExchangeRefused(t *testing.T) {
	w := newTrade(t, options{})
	number := w.book("ann", "second", 1, 3, 1, 2)
	other := w.book("bob", "second", 1, 3, 3)
	held := w.take("bob", "second", 4, 5, 2000, 1, 2)
	edit := func(x payment.ExchangeTo, f func(*payment.ExchangeTo)) payment.ExchangeTo { f(&x); return x }

	w.refused("another's", "bob", number, w.to("second", 1, 3, 5, 6), problem.NotFound, "")
	w.refused("a hold", "bob", held, w.to("second", 3, 4, 5, 6), problem.WrongState, "")
	w.refused("another sale", "ann", number, edit(w.to("second", 1, 3, 5, 6), func(x *payment.ExchangeTo) { x.Sale = "999" }), problem.Unprocessable, "to.sale")
	w.refused("no sale", "ann", number, edit(w.to("second", 1, 3, 5, 6), func(x *payment.ExchangeTo) { x.Sale = "" }), problem.Unprocessable, "to.sale")
	w.refused("no such class", "ann", number, w.to("third", 1, 3, 5, 6), problem.Unprocessable, "to.class")
	w.refused("no such stop", "ann", number, edit(w.to("second", 1, 3, 5, 6), func(x *payment.ExchangeTo) { x.To = "9" }), problem.Unprocessable, "to.to")
	w.refused("no quantity", "ann", number, w.to("second", 1, 3), problem.Unprocessable, "to.quantity")
	w.refused("fewer", "ann", number, w.any("second", 2, 4, 1), problem.Unprocessable, "to.quantity")
	w.refused("more", "ann", number, w.any("second", 2, 4, 3), problem.Unprocessable, "to.quantity")
	w.refused("more, named", "ann", number, w.to("second", 2, 4, 5, 6, 7), problem.Unprocessable, "to.seats")
	w.refused("a seat of another class", "ann", number, w.to("second", 2, 4, 5, 9), problem.Unprocessable, "to.seats[1]")
	w.refused("what it has", "ann", number, w.to("second", 1, 3, 2, 1), problem.Unprocessable, "to")
	w.refused("what it has, any", "ann", number, w.any("second", 1, 3, 2), problem.Unprocessable, "to")
	p := w.refused("dearer", "ann", number, w.any("second", 1, 4, 2), problem.Unprocessable, "to")
	if s := p.Error(); !strings.Contains(s, "CAD 40.00") || !strings.Contains(s, "CAD 30.00") {
		t.Errorf("dearer: %s", s)
	}
	w.refused("cheaper", "ann", number, w.any("second", 1, 2, 2), problem.Unprocessable, "to")
	p = w.refused("one of two is taken", "ann", number, w.to("second", 1, 3, 5, 3), problem.SeatTaken, "to.seats[1]")
	if !strings.Contains(p.Error(), "1-3") {
		t.Errorf("taken: %v", p)
	}
	w.refused("a leg behind its own is taken", "ann", number, w.to("second", 2, 4, 1, 2), problem.SeatTaken, "")
	w.take("cleo", "first", 1, 5, 0, 9, 10, 11)
	w.refused("too few are left", "ann", number, w.any("first", 1, 3, 2), problem.SoldOut, "")

	let := w.take("ann", "second", 1, 1, 1, 7)
	w.exec(`SELECT let_go_booking($1, $2, 'ann', '', '')`, w.sale, let)
	w.refused("let go a moment ago", "ann", number, w.to("second", 1, 3, 7, 8), problem.SeatTaken, "to.seats[0]")

	late := func(what, set string, code problem.Code) {
		t.Helper()
		var version int64
		w.scan(&version, `UPDATE sale SET `+set+` WHERE sale_id = $1 RETURNING version`, w.sale)
		w.refused(what, "ann", number, w.to("second", 1, 3, 5, 6), code, "")
		w.exec(`UPDATE sale SET state = 'open', closes_at = now() + interval '1 day' WHERE sale_id = $1`, w.sale)
	}
	late("closed", `state = 'closed'`, problem.SaleClosed)
	late("past its close", `closes_at = now() - interval '1 second'`, problem.SaleClosed)
	late("paused", `state = 'paused'`, problem.Paused)
	w.exec(`UPDATE booking SET departs_at = now() - interval '1 second' WHERE sale_id = $1 AND number = $2`, w.sale, number)
	w.refused("departed", "ann", number, w.to("second", 1, 3, 5, 6), problem.SaleClosed, "")
	w.exec(`UPDATE booking SET departs_at = now() + interval '1 day' WHERE sale_id = $1 AND number = $2`, w.sale, number)

	w.exec(`INSERT INTO check_in (sale_id, booking, seat, serial, account, at) VALUES ($1, $2, 1, 0, 'gate', now())`, w.sale, number)
	w.refused("checked in", "ann", number, w.to("second", 1, 3, 5, 6), problem.WrongState, "")
	if _, _, err := w.payments.Return(w.ctx, w.release("bob", other)); err != nil {
		t.Fatal(err)
	}
	w.refused("given back", "bob", other, w.to("second", 1, 3, 8), problem.WrongState, "")
	w.check()
}

// The new departure counts too: nothing that has left is exchanged for.
func TestExchangeForWhatHasLeft(t *testing.T) {
	w := newTrade(t, options{})
	w.exec(`UPDATE sale SET stops = jsonb_set(jsonb_set(stops, '{0,departs}', to_jsonb(now() - interval '1 minute')), '{1,departs}', to_jsonb(now() + interval '1 hour'))
		WHERE sale_id = $1`, w.sale)
	number := w.book("ann", "second", 2, 4, 1)
	w.refused("it has left", "ann", number, w.to("second", 1, 3, 1), problem.SaleClosed, "")
	w.must("ann", number, w.to("second", 3, 5, 1))
	var departs time.Time
	w.scan(&departs, `SELECT departs_at FROM booking WHERE sale_id = $1 AND number = $2`, w.sale, number)
	if d := time.Until(departs); d < 30*time.Minute || d > time.Hour {
		t.Errorf("departs in %v", d) // stop 2 has no time: the last known before it
	}
	w.check()
}

// Standby first: what came free is not exchanged for before it was offered, but
// what the booking has already is no offer to anybody.
func TestExchangeStandbyFirst(t *testing.T) {
	w := newTrade(t, options{})
	number := w.book("ann", "second", 1, 4, 1)
	free := w.book("bob", "second", 1, 5, 2)
	last := w.book("cleo", "second", 5, 5, 1)
	w.take("dora", "second", 1, 5, 0, 3, 4, 5, 6, 7, 8)
	w.db.QueueOrder(t, w.sale, "waits", "second", 1, 5, 6) // a group that fits nowhere
	for _, b := range []struct {
		account string
		number  int64
	}{{"bob", free}, {"cleo", last}} {
		if _, _, err := w.payments.Return(w.ctx, w.release(b.account, b.number)); err != nil {
			t.Fatal(err)
		}
	}
	w.refused("named", "ann", number, w.to("second", 2, 5, 2), problem.StandbyFirst, "to.seats[0]")
	w.refused("any", "ann", number, w.any("second", 2, 5, 1), problem.StandbyFirst, "")
	w.refused("its own seat, but leg 5 came free", "ann", number, w.to("second", 2, 5, 1), problem.StandbyFirst, "to.seats[0]")
	w.exec(`SELECT seat_considered($1, '{1}')`, w.sale)
	out := w.must("ann", number, w.any("second", 2, 5, 1))
	if !slices.Equal(out.Seats, []string{"1-1"}) || w.releases() != "1:1-1" {
		t.Errorf("%+v, releases %s", out, w.releases())
	}
	w.refused("back again: leg 1 is to be offered", "ann", number, w.to("second", 1, 4, 1), problem.StandbyFirst, "to.seats[0]")
	w.check()
}

// Sent twice it happens once, and answers the same; a refusal too.
func TestExchangeTwice(t *testing.T) {
	w := newTrade(t, options{})
	number := w.book("ann", "second", 1, 3, 1, 2)
	wish := w.wish("ann", number, w.to("second", 2, 4, 1, 5))
	first, replay, err := w.exchanges.Exchange(w.ctx, wish)
	if err != nil || replay {
		t.Fatalf("%v, %v", replay, err)
	}
	before := w.everything()
	again, replay, err := w.exchanges.Exchange(w.ctx, wish)
	if err != nil || !replay || fmt.Sprint(again) != fmt.Sprint(first) || w.everything() != before {
		t.Errorf("%+v, then %+v, %v, %v", first, again, replay, err)
	}
	wish.Hash = []byte("another")
	if _, _, err := w.exchanges.Exchange(w.ctx, wish); !problem.Is(err, problem.IdempotencyMismatch) {
		t.Errorf("another body: %v", err)
	}
	dear := w.wish("ann", number, w.any("second", 1, 5, 2))
	for i := range 2 {
		_, _, err := w.exchanges.Exchange(w.ctx, dear)
		var p *problem.Error
		if !errors.As(err, &p) || p.Code != problem.Unprocessable || p.Replay != (i == 1) || p.Fields[0].Field != "to" {
			t.Errorf("try %d: %+v", i, err)
		}
	}
	// Ten at once under one key: one exchange.
	wish = w.wish("ann", number, w.to("first", 1, 3, 9, 10))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, _, err := w.exchanges.Exchange(w.ctx, wish); err != nil && !problem.Is(err, problem.InProgress) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.count(`SELECT count(*) FROM booking b, jsonb_array_elements(b.history) h WHERE b.sale_id = $1 AND h ->> 'what' = 'exchanged'`, w.sale); n != 2 {
		t.Errorf("%d exchanges", n)
	}
	w.check()
}

// An account at its limit exchanges: new seats count less the old ones.
func TestExchangeAtTheLimit(t *testing.T) {
	w := newTrade(t, options{})
	w.exec(`UPDATE sale SET account_limit = 6 WHERE sale_id = $1`, w.sale)
	number := w.book("ann", "second", 1, 2, 1, 2, 3, 4)
	w.book("ann", "second", 4, 5, 1, 2)
	w.must("ann", number, w.any("second", 2, 3, 4))
	w.must("ann", number, w.to("first", 4, 5, 9, 10, 11, 12))
	if n := w.count(`SELECT live_seats FROM account_sale WHERE sale_id = $1 AND account = 'ann'`, w.sale); n != 6 {
		t.Errorf("%d live seats", n)
	}
	w.check()
}

// An exchange is told, and nudges the ticket function.
func TestExchangeTold(t *testing.T) {
	n := harness.NATS(t)
	bus, err := event.Open(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	w := newTrade(t, options{bus: bus})
	w.eventually("nats", bus.Up)
	number := w.book("ann", "second", 1, 3, 1, 2)
	sub, err := n.Conn.SubscribeSync("booking.confirmed.*")
	if err != nil || n.Conn.Flush() != nil {
		t.Fatal(err)
	}
	w.must("ann", number, w.to("second", 1, 3, 5, 6))
	if told, left := w.told("RESCHEDULE"); told != 2 || left != 0 {
		t.Errorf("%d told, %d not", told, left)
	}
	if _, err := sub.NextMsg(10 * time.Second); err != nil {
		t.Errorf("the ticket function: %v", err)
	}
}

// One seat is wanted by many bookings: one gets it, the others keep what they
// have. And a booking is exchanged or returned or checked in, never two of them.
func TestExchangeRaces(t *testing.T) {
	w := newTrade(t, options{})
	var numbers []int64
	for i := range 6 {
		numbers = append(numbers, w.book(fmt.Sprint("a", i), "second", 1, 3, i+1))
	}
	var wg sync.WaitGroup
	results := make([]error, len(numbers))
	for i, number := range numbers {
		wg.Go(func() { _, results[i] = w.exchange(fmt.Sprint("a", i), number, w.to("second", 2, 4, 8)) })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !problem.Is(err, problem.SeatTaken) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d won one seat", won)
	}
	w.check()

	for i, number := range numbers {
		account := fmt.Sprint("a", i)
		var exchanged, returned error
		var scan string
		wg.Go(func() { _, exchanged = w.exchange(account, number, w.any("first", 1, 3, 1)) })
		if i%2 == 0 {
			wg.Go(func() { _, _, returned = w.payments.Return(w.ctx, w.release(account, number)) })
		} else {
			var seat, from, to int
			if err := w.db.Owner.QueryRow(w.ctx, `SELECT seats[1], leg_from, leg_to FROM booking WHERE sale_id = $1 AND number = $2`, w.sale, number).Scan(&seat, &from, &to); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				returned = w.db.App.QueryRow(w.ctx, `SELECT result || reason FROM check_in_ticket($1, $2, 1, $3, $4, $5, 'gate', $6)`,
					w.sale, number, seat, from, to, account).Scan(&scan)
			})
		}
		wg.Wait()
		switch {
		case returned != nil:
			t.Error(returned)
		case i%2 == 0 && exchanged != nil && !problem.Is(exchanged, problem.WrongState) && !problem.Is(exchanged, problem.SoldOut):
			t.Error(exchanged)
		case i%2 == 1 && (exchanged == nil) != (scan == "invalidchanged"):
			t.Errorf("exchanged: %v, scanned: %s", exchanged, scan)
		}
		w.check()
	}
}

// Bookings are exchanged, held, let go, returned and made again by many at once,
// over few seats: no deadlock comes through, and the invariants hold.
func TestExchangeStorm(t *testing.T) {
	w := newTrade(t, options{})
	type owned struct {
		account string
		number  int64
	}
	var all []owned
	for i := range 8 {
		account := fmt.Sprint("a", i)
		if i%2 == 0 {
			all = append(all, owned{account, w.book(account, "second", 1, 2, i+1, i%8+2)})
		} else {
			all = append(all, owned{account, w.book(account, "second", 4, 5, i, i+1)})
		}
	}
	const tries = 40 // of each
	var mu sync.Mutex
	counts := map[string]int{}
	var wg, others sync.WaitGroup
	ctx, done := context.WithCancel(w.ctx)
	for i, o := range all {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range tries {
				from := 1 + rng.IntN(4)
				to := w.any("second", from, from+1, 2)
				if rng.IntN(2) == 0 {
					a := 1 + rng.IntN(8)
					to = w.to("second", from, from+1, a, a%8+1)
				}
				if rng.IntN(4) == 0 {
					to = w.any("first", from, from+1, 2)
				}
				_, err := w.exchange(o.account, o.number, to)
				code := "exchanged"
				if err != nil {
					code = string(problem.From(err).Code)
				}
				mu.Lock()
				counts[code]++
				mu.Unlock()
			}
		})
	}
	for i := range 2 { // and others hold and let go
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		account := fmt.Sprint("h", i)
		others.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				var raw []byte
				from := 1 + rng.IntN(5)
				err := w.db.App.QueryRow(w.ctx, `SELECT hold_seats($1, $2, $3, 'h', NULL, NULL, 'second', $4, $4, NULL, NULL, 2, 0, now() + interval '2 days', '[]', '{}', NULL, 'customer', '')`,
					w.sale, account, fmt.Sprint("s", i, "-", n), from).Scan(&raw)
				var a struct {
					Code   string
					Number int64
				}
				if err == nil {
					err = json.Unmarshal(raw, &a)
				}
				if err == nil && a.Code == "held" {
					_, err = w.db.App.Exec(w.ctx, `SELECT let_go_booking($1, $2, $3, '', '')`, w.sale, a.Number, account)
					// Or they would be kept from these seats for ten minutes.
					w.exec(`UPDATE booking SET ended_at = now() - interval '1 hour' WHERE sale_id = $1 AND number = $2 AND state = 'released'`, w.sale, a.Number)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	done()
	others.Wait()
	t.Logf("%v", counts)
	known := []string{"exchanged", string(problem.SeatTaken), string(problem.SoldOut), string(problem.Unprocessable), string(problem.Unavailable)}
	for code := range counts {
		if !slices.Contains(known, code) {
			t.Errorf("%d answers %s", counts[code], code)
		}
	}
	if counts["exchanged"] < tries {
		t.Errorf("only %d exchanges", counts["exchanged"])
	}
	w.check()
}

// The booking reads as exchanged, with what it had before in its history.
func TestExchangeHistory(t *testing.T) {
	w := newTrade(t, options{})
	number := w.book("ann", "second", 1, 3, 1, 2)
	w.must("ann", number, w.to("first", 2, 4, 9, 11))
	b, err := booking.New(w.store, w.sales, nil, w.ids).Load(w.ctx, w.sale, number)
	if err != nil {
		t.Fatal(err)
	}
	last := b.History[len(b.History)-1]
	if b.Class != "first" || b.From != "1" || b.To != "4" || !slices.Equal(b.Seats, []string{"2-9", "2-11"}) ||
		last.What != "exchanged" || last.Why != "second, 0 to 3, 1-1 1-2" {
		t.Errorf("%+v", b)
	}
}
