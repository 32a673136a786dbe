package rush

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Result is what a rush came to. People, joined, admitted and refused count
// people; held and sold count seats (a seat whose hold ended and that was held
// again counts twice in held).
type Result struct {
	People   int `json:"people"`
	Joined   int `json:"joined"`
	Admitted int `json:"admitted"`
	Held     int `json:"held"`
	Sold     int `json:"sold"`
	Refused  int `json:"refused"`
	// Oversold is how many legs of seats more than one customer has a ticket
	// for, counted from the tickets.
	Oversold int `json:"oversold"`
	// SoldOutAfterMS is from the opening until the last seat had its ticket;
	// null when seats were left.
	SoldOutAfterMS *int64     `json:"sold_out_after_ms"`
	CPU            CPUSeconds `json:"cpu_seconds"`
	P50            float64    `json:"p50_ms"`
	P99            float64    `json:"p99_ms"`
	LoadLateP99    float64    `json:"load_late_p99_ms"`

	// FirstSoldOutMS is when the room first said that nothing is left for now.
	FirstSoldOutMS *int64 `json:"first_sold_out_ms"`
	Seats          int    `json:"seats"`
	// JoinsFirstOK are the people whose first attempt to join was answered 2xx;
	// JoinsFirstKilled those whose first attempt met a function that was killed
	// at that moment, and who got in later.
	JoinsFirstOK     int         `json:"joins_first_attempt_ok"`
	JoinsFirstFailed int         `json:"joins_first_attempt_failed"`
	JoinsFirstKilled int         `json:"joins_first_attempt_killed"`
	Places           int         `json:"places"`
	PlacesAsked      int         `json:"places_asked"` // people asked once more, with their tokens and without
	PlacesChanged    int         `json:"places_changed"`
	PlacesTwice      int         `json:"places_twice"`
	Holders          int         `json:"holders"`
	Unpaid           int         `json:"unpaid"`
	Left             int         `json:"left"`
	PaidBookings     int         `json:"paid_bookings"`
	SentTwice        int         `json:"sent_twice"`
	Requests         int         `json:"requests"`
	Failed           int         `json:"failed_requests"`
	TooMany          int         `json:"too_many_requests"`
	Flushes          int         `json:"flushes"`
	Kills            int         `json:"kills"`
	Promotions       int         `json:"promotions"`
	TookMS           int64       `json:"took_ms"`
	Latency          []OpLatency `json:"latency"`
	Refusals         []Count     `json:"refusals"`
	Story            []string    `json:"story"`
	Notes            []string    `json:"notes"`
	Broken           []string    `json:"broken"`
	Audit            any         `json:"audit,omitempty"`

	seconds []point
	options Options
}

// OpLatency is how long one kind of request took, in milliseconds.
type OpLatency struct {
	Op  string  `json:"op"`
	N   int64   `json:"n"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// point is one second of the report's curves.
type point struct {
	second                                         int
	requests, failed, joined, admitted, held, sold int64
}

// result judges the rush.
func (r *run) result(ctx context.Context, cpu CPUSeconds, took time.Duration) *Result {
	c, m, s := r.c, r.c.m, r.c.story
	known, changed, twice := c.line.verdict()
	sold, oversold, clashes := c.judge.verdict()
	paid, faults := c.gateway.account(ctx, s.payments, c.judge.bookings())
	res := &Result{
		People: r.o.People, Joined: int(m.joined.Load()), Admitted: int(m.admitted.Load()),
		Held: int(m.heldSeats.Load()), Sold: sold, Refused: int(m.refused.Load()), Oversold: oversold,
		CPU: cpu.rounded(), P50: round1(m.all.quantile(50)), P99: round1(m.all.quantile(99)), LoadLateP99: round1(m.late.quantile(99)),
		Seats: r.o.Seats, JoinsFirstOK: int(m.firstOK.Load()), JoinsFirstFailed: int(m.firstBad.Load()),
		JoinsFirstKilled: int(m.firstBadInFault.Load()), Places: known, PlacesAsked: r.asked, PlacesChanged: len(changed), PlacesTwice: len(twice),
		Holders: int(m.holders.Load()), Unpaid: int(m.unpaid.Load()), Left: int(m.left.Load()), PaidBookings: paid,
		SentTwice: int(m.twice.Load()), Requests: int(m.requests.Load()), Failed: int(m.failed.Load()), TooMany: int(m.tooMany.Load()),
		Flushes: r.flushes, Kills: r.kills, Promotions: r.promotions, TookMS: took.Milliseconds(),
		Refusals: m.refusals(), options: r.o, Broken: []string{}, Notes: []string{},
	}
	res.SoldOutAfterMS = since(s.allSold, s.opens)
	res.FirstSoldOutMS = since(s.firstSoldOut, s.opens)
	for _, op := range ops {
		if h := m.byOp[op]; h.count() > 0 {
			res.Latency = append(res.Latency, OpLatency{op, h.count(), round1(h.quantile(50)), round1(h.quantile(99)), round1(h.quantile(100))})
		}
	}
	for note, n := range s.notes {
		if n > 1 {
			note = fmt.Sprintf("%s (%s times)", note, count(n))
		}
		res.Notes = append(res.Notes, note)
	}
	broke := func(format string, args ...any) { res.Broken = append(res.Broken, fmt.Sprintf(format, args...)) }
	list := func(what string, faults []string) {
		for i, f := range faults {
			if i == 5 {
				broke("%s: and %s more", what, count(len(faults)-i))
				return
			}
			broke("%s: %s", what, f)
		}
	}
	list("sold twice", clashes)
	list("a place changed", changed)
	list("a place was given twice", twice)
	list("money", faults)
	list("", s.problems)
	if n := m.twiceDiffered.Load(); n > 0 {
		broke("%s requests sent twice with one key were answered differently", count(int(n)))
	}
	if n := res.JoinsFirstFailed; n > 0 {
		broke("%s people were not let into the line at their first attempt", count(n))
		list("first attempt", m.firstFailures)
	}
	if res.Joined != res.People {
		broke("%s of %s people never got into the line", count(res.People-res.Joined), count(res.People))
	}
	// With many times more buyers than seats, everything must be sold.
	buyers := float64(r.o.People) * (1 - shareLeaver) * (1 - r.o.Unpaid)
	if want := r.o.Seats / r.o.Party * r.o.Party; r.o.Legs == 1 && buyers > float64(2*r.o.Seats/r.o.Party) && sold < want {
		broke("%s of %s seats were sold: the sale did not go on", count(sold), count(want))
	}
	for i, b := range res.Broken {
		res.Broken[i] = strings.TrimPrefix(b, ": ")
	}
	res.Story = r.tellStory(res)
	last := 0
	for i := range m.seconds {
		sec := &m.seconds[i]
		p := point{i, sec.requests.Load(), sec.failed.Load(), sec.joined.Load(), sec.admitted.Load(), sec.held.Load(), sec.sold.Load()}
		res.seconds = append(res.seconds, p)
		if p.requests > 0 {
			last = i
		}
	}
	res.seconds = res.seconds[:last+1]
	return res
}

func since(t, from time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.Sub(from).Milliseconds()
	return &ms
}

func round1(x float64) float64 { return math.Round(x*10) / 10 }

func (c CPUSeconds) rounded() CPUSeconds {
	return CPUSeconds{round1(c.Functions), round1(c.Redis), round1(c.Postgres), round1(c.NATS), round1(c.Load), round1(c.Platform)}
}

// tellStory tells the rush in sentences.
func (r *run) tellStory(res *Result) []string {
	o := r.o
	lines := []string{fmt.Sprintf("%s people came within %s for %s seats, %d each; the draw was open for %s.",
		count(o.People), o.Window, count(o.Seats), o.Party, o.Draw)}
	for _, m := range r.c.story.moments() {
		at := time.Duration(m.At) * time.Millisecond
		lines = append(lines, fmt.Sprintf("After %5.1f s %s.", at.Seconds(), m.What))
	}
	switch {
	case res.SoldOutAfterMS != nil:
		lines = append(lines, fmt.Sprintf("%s were admitted, %s of them held seats, %s let theirs go unpaid, and those seats were sold again.",
			count(res.Admitted), count(res.Holders), count(res.Unpaid)))
	default:
		lines = append(lines, fmt.Sprintf("%s were admitted, %s of them held seats, %s let theirs go unpaid; %s %s %s seats were sold.",
			count(res.Admitted), count(res.Holders), count(res.Unpaid), count(res.Sold), res.of(), count(res.Seats)))
	}
	lines = append(lines, fmt.Sprintf("%s closed the page while waiting; %s were still there at the end and were told that nothing is left.",
		count(res.Left), count(res.Refused)))
	return lines
}

// of joins the number sold and the number of seats: on a train a seat is sold
// again for each part of the route.
func (res *Result) of() string {
	if res.options.Legs > 1 {
		return "intervals on"
	}
	return "of"
}

// Table writes the result for a terminal.
func (res *Result) Table(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w)
	row("people", "%s", count(res.People))
	row("joined at first attempt", "%s (failed %s, met a killed function %s)", count(res.JoinsFirstOK), count(res.JoinsFirstFailed), count(res.JoinsFirstKilled))
	row("admitted", "%s", count(res.Admitted))
	row("seats held", "%s", count(res.Held))
	row("seats sold", "%s %s %s", count(res.Sold), res.of(), count(res.Seats))
	row("oversold", "%s", count(res.Oversold))
	row("paid bookings", "%s", count(res.PaidBookings))
	row("refused", "%s", count(res.Refused))
	row("places told", "%s, asked again %s, changed %s, given twice %s", count(res.Places), count(res.PlacesAsked), count(res.PlacesChanged), count(res.PlacesTwice))
	if res.SoldOutAfterMS != nil {
		row("sold out after", "%.1f s", float64(*res.SoldOutAfterMS)/1000)
	}
	row("requests", "%s in %.0f s (no answer or 5xx %s, 429 %s)", count(res.Requests), float64(res.TookMS)/1000, count(res.Failed), count(res.TooMany))
	row("answered within", "p50 %.1f ms, p99 %.1f ms; the load was late by %.1f ms (p99)", res.P50, res.P99, res.LoadLateP99)
	c := res.CPU
	row("CPU seconds", "functions %.1f, gateway %.1f, Redis %.1f, Postgres %.1f, NATS %.1f, load %.1f", c.Functions, c.Platform, c.Redis, c.Postgres, c.NATS, c.Load)
	fmt.Fprintf(w, "\n  %-8s %10s %10s %10s %10s\n", "", "requests", "p50 ms", "p99 ms", "max ms")
	for _, l := range res.Latency {
		fmt.Fprintf(w, "  %-8s %10s %10.1f %10.1f %10.1f\n", l.Op, count(int(l.N)), l.P50, l.P99, l.Max)
	}
	if len(res.Refusals) > 0 {
		fmt.Fprintln(w, "\n  Answers other than 2xx")
		for i, f := range res.Refusals {
			if i == 12 {
				break
			}
			fmt.Fprintf(w, "  %10s  %s\n", count(f.N), f.What)
		}
	}
	fmt.Fprintln(w, "\nThe story of the rush")
	for _, l := range res.Story {
		fmt.Fprintln(w, "  "+l)
	}
	for _, n := range res.Notes {
		fmt.Fprintln(w, "  Note: "+n)
	}
	fmt.Fprintln(w)
	if len(res.Broken) == 0 {
		fmt.Fprintln(w, "Nothing was broken.")
		return
	}
	fmt.Fprintln(w, "BROKEN")
	for _, b := range res.Broken {
		fmt.Fprintln(w, "  "+b)
	}
}
