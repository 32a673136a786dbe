package standby

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/money"
	"handler/function/shared/standby/line"
)

// Lines say where an order stands, without a look into Postgres: *line.Lines.
type Lines interface {
	Position(ctx context.Context, sale, number int64, class string, from, to int) line.Answer
}

// View is an order as the API shows it to its owner.
type View struct {
	Order       string              `json:"order"`
	State       State               `json:"state"`
	Sale        string              `json:"sale"`
	Classes     []string            `json:"classes"` // in order of liking
	From        string              `json:"from"`
	To          string              `json:"to"`
	Quantity    int                 `json:"quantity"`
	Together    bool                `json:"together"`
	Price       money.Amount        `json:"price"` // authorised; once there are seats, their fare
	Gateway     string              `json:"gateway"`
	Position    *Position           `json:"position"` // nil: not known now, or it does not wait
	Queues      []QueuePlace        `json:"queues,omitempty"`
	Why         *Why                `json:"why"`
	Ahead       string              `json:"ahead_explained"` // English, a key of the catalogue of texts
	Message     string              `json:"message"`         // the same
	Until       time.Time           `json:"until"`
	AuthoriseBy *time.Time          `json:"authorise_by,omitempty"`
	Booking     string              `json:"booking,omitempty"`
	Locator     string              `json:"locator,omitempty"`
	Class       string              `json:"class,omitempty"` // of the seats it got
	Reason      string              `json:"reason,omitempty"`
	JoinedAt    time.Time           `json:"joined_at"`
	QueuedAt    *time.Time          `json:"queued_at,omitempty"`
	MatchedAt   *time.Time          `json:"matched_at,omitempty"`
	EndedAt     *time.Time          `json:"ended_at,omitempty"`
	Passengers  []booking.Passenger `json:"passengers,omitempty"`
	Contact     *booking.Contact    `json:"contact,omitempty"`
	History     []booking.Event     `json:"history,omitempty"`
	PollAfterMS int64               `json:"poll_after_ms,omitempty"` // 0: nothing changes any more
	ServerTime  time.Time           `json:"server_time"`
}

// Position is a place in a queue: exact to 100, within the first 1,000, else an
// estimate (DESIGN 8). With all three empty it stands behind these and nothing was
// matched in the last 24 hours to estimate by.
type Position struct {
	Exact       int  `json:"exact,omitempty"`
	Within      int  `json:"within,omitempty"`
	WaitSeconds *int `json:"wait_seconds,omitempty"`
}

// QueuePlace is the place in the queue of one of the order's classes.
type QueuePlace struct {
	Class    string    `json:"class"`
	Position *Position `json:"position"`
	Length   int       `json:"length"` // of the queue
	AsOf     time.Time `json:"as_of"`
}

// Why is the last release considered that touched the order's stops, and why it
// passed the order by.
type Why struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Class  string    `json:"class"`
	From   string    `json:"from"` // what was free then, stop ids
	To     string    `json:"to"`
	Freed  *Stretch  `json:"freed,omitempty"` // what of it this release freed
	Reason string    `json:"reason"`
	Served []Served  `json:"served,omitempty"`
}

// Stretch is an interval by its stop ids.
type Stretch struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Served is who got it.
type Served struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Quantity int    `json:"quantity"`
	Exact    bool   `json:"exact"`
}

// Texts of an order, keys of the catalogue.
const (
	TextAuthorising = "Confirm the payment, and you have your place in the line. You are charged only when seats are found."
	TextQueued      = "You are in the line. Seats that come free for you are booked by themselves."
	TextPending     = "Queued. System busy, position available later"
	TextUnknown     = "System busy, please ask again later"
	TextNoEstimate  = "You are in the line. Nothing was matched in the last 24 hours, so nobody can say how long it takes."
	TextMatched     = "Seats were found. They are being paid for."
	TextBooked      = "Standby successful"
	TextCancelling  = "You have left the line. The payment is being let go."
	TextCancelled   = "This order was cancelled. Nothing is charged; what was charged comes back."
	TextExpired     = "No seat came free in time. Nothing is charged."
)

// explained says for each reason why somebody else got a seat first.
var explained = map[string]string{
	line.ReasonSameQueue: "Somebody ahead of you in the same queue got it.",
	line.ReasonExact:     "It went to somebody who waits for exactly the stops that came free: they come first.",
	line.ReasonFuller:    "It went to others who together fill more of what came free.",
	line.ReasonGroup:     "Fewer seats were free than you need, so a smaller group got it.",
	line.ReasonPart:      "Only a part of your stops came free.",
	line.ReasonKept:      "It is kept for a group that was passed by ten times.",
	line.ReasonYours:     "It is kept for your group until the other seats come free, for half an hour at most.",
	line.ReasonSale:      "Nobody who waits could use it, so it went back on sale.",
}

// Times and limits of what a replica remembers of orders.
const (
	viewSame  = time.Second      // within which an order is not read twice whatever is known of it
	viewBlind = 5 * time.Second  // the same while the queues say nothing of it
	viewKept  = 10 * time.Minute // of an order that its queue still has
	viewMost  = 10_000           // orders remembered
)

// views remembers orders that were shown, so that who waits costs Postgres nothing:
// what an order is never changes while its queue has it, and where it stands the
// queues say.
type views struct {
	mu  sync.Mutex
	all map[int64]seen // by number: numbers are unique over all sales
}

type seen struct {
	order *Order
	at    time.Time
}

func (v *views) get(sale, number int64) (seen, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.all[number]
	return s, ok && s.order.Sale == sale
}

func (v *views) put(k *Order) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil {
		v.all = map[int64]seen{}
	}
	if len(v.all) >= viewMost {
		for number, s := range v.all { // the old ones, and of the others any
			if time.Since(s.at) > time.Minute || len(v.all) > viewMost*9/10 {
				delete(v.all, number)
			}
		}
	}
	v.all[k.Number] = seen{k, time.Now()}
}

func (v *views) forget(number int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.all, number)
}

// Show is an order of the account's own. While it waits it is answered from the
// replica: its queues are read at most once in five seconds, and Postgres only when
// a queue does not have it (any more). Errors: not-found, unavailable.
func (o *Orders) Show(ctx context.Context, account, order string) (View, error) {
	ref, err := o.Own(account, order)
	if err != nil {
		return View{}, err
	}
	sale, err := o.sales.Sale(ctx, ref.Sale)
	if err != nil {
		return View{}, err
	}
	places, known, stands := o.places(ctx, sale, ref.Number, named(sale, ref), ref.From, ref.To)
	if s, ok := o.views.get(ref.Sale, ref.Number); ok {
		age := time.Since(s.at)
		if age < viewSame || known && stands && age < viewKept && s.order.State.Waits() || !known && age < viewBlind {
			return o.view(sale, s.order, places, stands), nil
		}
	}
	k, err := o.Load(ctx, ref.Sale, ref.Number)
	if err != nil {
		return View{}, err
	}
	if k.Account != account { // two accounts with one tag: as good as impossible
		return View{}, unknown()
	}
	o.views.put(k)
	return o.view(sale, k, places, stands), nil
}

// Mine are the account's orders as views, newest first.
func (o *Orders) Mine(ctx context.Context, account string) ([]View, error) {
	list, err := o.List(ctx, account)
	if err != nil {
		return nil, err
	}
	views := make([]View, len(list))
	for i, k := range list {
		sale, err := o.sales.Sale(ctx, k.Sale)
		if err != nil {
			return nil, err
		}
		var places []placed
		stands := false
		if k.State.Waits() {
			places, _, stands = o.places(ctx, sale, k.Number, k.Classes, k.LegFrom, k.LegTo)
		}
		views[i] = o.view(sale, k, places, stands)
	}
	return views, nil
}

// Placed is where an order that has just joined stands, nil while nobody can say,
// and how it stands in words (English, a key of the catalogue of texts).
func (o *Orders) Placed(ctx context.Context, account, order string, state State) (*Position, string) {
	v := View{State: state}
	if state.Waits() {
		ref, err := o.Own(account, order)
		if err == nil {
			var sale *catalog.Sale
			if sale, err = o.sales.Sale(ctx, ref.Sale); err == nil {
				places, _, _ := o.places(ctx, sale, ref.Number, named(sale, ref), ref.From, ref.To)
				v.Position = best(places)
			}
		}
		if err != nil {
			slog.WarnContext(ctx, "standby: position not told", "order", order, "error", err)
		}
	}
	_, message := v.words()
	return v.Position, message
}

// named are the classes that an id names by their positions; one that the sale does
// not have is left out.
func named(sale *catalog.Sale, ref id.OrderRef) []string {
	var classes []string
	for _, c := range ref.Classes {
		if c < len(sale.Classes) {
			classes = append(classes, sale.Classes[c].ID)
		}
	}
	return classes
}

// placed is what the lines say of one queue of an order.
type placed struct {
	class string
	line.Answer
}

// places asks the queues of an order. known: all of them can be read; stands: one of
// them has it.
func (o *Orders) places(ctx context.Context, sale *catalog.Sale, number int64, classes []string, f, t int) (all []placed, known, stands bool) {
	if o.lines == nil {
		return nil, false, false
	}
	known = len(classes) > 0
	for _, class := range classes {
		a := o.lines.Position(ctx, sale.ID, number, class, f, t)
		known = known && a.Known
		stands = stands || a.Known && a.Queued
		all = append(all, placed{class, a})
	}
	return all, known, stands
}

// best is the foremost of the places; nil when no queue that can be read has it.
func best(places []placed) *Position {
	var first *Position
	for _, p := range places {
		if at := p.position(); at != nil && (first == nil || at.before(first)) {
			first = at
		}
	}
	return first
}

func (p placed) position() *Position {
	if !p.Known || !p.Queued {
		return nil
	}
	return &Position{Exact: p.Exact, Within: p.Within, WaitSeconds: p.WaitSeconds}
}

// before says whether a place is nearer the head than another.
func (p *Position) before(q *Position) bool {
	rank := func(p *Position) int {
		switch {
		case p.Exact > 0:
			return p.Exact
		case p.Within > 0:
			return 1 << 20
		case p.WaitSeconds != nil:
			return 1<<20 + 1 + *p.WaitSeconds
		}
		return 1 << 62
	}
	return rank(p) < rank(q)
}

// view is an order with what its queues say. stands: one of them has it now.
func (o *Orders) view(sale *catalog.Sale, k *Order, places []placed, stands bool) View {
	v := View{
		Order: k.ID, State: k.State, Sale: id.Format(k.Sale), Classes: k.Classes, From: k.From, To: k.To, Quantity: k.Quantity,
		Together: k.Together != Apart, Price: money.Amount{Amount: slices.Max(k.Fares), Currency: k.Currency}, Gateway: k.Gateway,
		Until: k.Until.UTC(), Class: k.Class, Reason: k.Reason, JoinedAt: k.JoinedAt.UTC(), Passengers: k.Passengers, History: k.History,
		ServerTime: time.Now().UTC(), PollAfterMS: pollAfter(k.State),
	}
	if i := slices.Index(k.Classes, k.Class); i >= 0 {
		v.Price.Amount = k.Fares[i]
	}
	if k.State == Authorising {
		at := k.AuthoriseBy.UTC()
		v.AuthoriseBy = &at
	}
	for _, t := range []struct {
		at time.Time
		to **time.Time
	}{{k.QueuedAt, &v.QueuedAt}, {k.MatchedAt, &v.MatchedAt}, {k.EndedAt, &v.EndedAt}} {
		if !t.at.IsZero() {
			at := t.at.UTC()
			*t.to = &at
		}
	}
	if k.Booking != 0 {
		v.Booking, v.Locator = o.ids.Booking(k.Sale, k.Booking), o.ids.Locator(k.Sale, k.Booking)
	}
	if k.Contact != (booking.Contact{}) {
		v.Contact = &k.Contact
	}
	if k.State.Waits() {
		if stands { // the queues are newer than the row
			v.State = Queued
		}
		v.Position = best(places)
		for _, p := range places {
			if p.Known {
				v.Queues = append(v.Queues, QueuePlace{Class: p.class, Position: p.position(), Length: p.Length, AsOf: p.AsOf.UTC()})
			}
		}
		v.Why = whyPassed(sale, k, places)
	}
	v.Ahead, v.Message = v.words()
	return v
}

// whyPassed is the newest release that passed the order by since it took its place.
func whyPassed(sale *catalog.Sale, k *Order, places []placed) *Why {
	var w *Why
	for _, p := range places {
		last := p.Why
		if last == nil || last.At.Before(k.QueuedAt) || w != nil && !last.At.After(w.At) || last.From < 1 || last.To > sale.Legs {
			continue
		}
		w = &Why{At: last.At.UTC(), Event: last.Event, Class: p.class, From: sale.From(last.From).ID, To: sale.To(last.To).ID, Reason: last.Reason}
		if f := last.Freed; f[0] >= 1 && f[1] <= sale.Legs && f[0] <= f[1] {
			w.Freed = &Stretch{From: sale.From(f[0]).ID, To: sale.To(f[1]).ID}
		}
		for _, s := range last.Served {
			if s.From >= 1 && s.To <= sale.Legs {
				w.Served = append(w.Served, Served{From: sale.From(s.From).ID, To: sale.To(s.To).ID, Quantity: s.Quantity, Exact: s.Exact})
			}
		}
	}
	return w
}

// words are the sentences for an order: why somebody else was first, and how it
// stands.
func (v View) words() (ahead, message string) {
	if v.Why != nil {
		ahead = explained[v.Why.Reason]
	}
	switch v.State {
	case Authorising:
		message = TextAuthorising
	case Queued:
		switch {
		case v.Position == nil:
			message = TextUnknown
		case *v.Position == Position{}:
			message = TextNoEstimate
		default:
			message = TextQueued
		}
	case Pending:
		message = TextPending
	default:
		message = map[State]string{Matched: TextMatched, Booked: TextBooked, Cancelling: TextCancelling, Cancelled: TextCancelled, Expired: TextExpired}[v.State]
	}
	return ahead, message
}

// pollAfter is how long who waits may wait before asking again, spread at random.
func pollAfter(s State) int64 {
	base := map[State]time.Duration{
		Authorising: 2 * time.Second, Queued: line.Refresh, Pending: line.Refresh, Matched: time.Second, Cancelling: 2 * time.Second,
	}[s]
	if base == 0 {
		return 0
	}
	return (base + rand.N(base/2)).Milliseconds()
}
