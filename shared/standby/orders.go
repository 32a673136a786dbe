// Package standby owns the wait-list (候补): orders that wait for seats the open
// sale cannot give, what becomes of them, and `match`, which gives them what
// comes free. Postgres is the queue's truth (migrations/00060_standby.sql); the
// queues in Redis (package line) are its mirror, for positions alone. The money
// of an order is the package payment's.
package standby

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gofrs/uuid/v5"
	"github.com/jackc/pgx/v5"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/money"
	"handler/function/shared/problem"
	"handler/function/shared/seat"
	"handler/function/shared/store"
)

//go:embed orders.sql
var orderFile string

var orderSQL = store.Queries(orderFile)

// Limits of orders.
const (
	// MaxOpen is how many orders of one account may be open in a sale: a whole
	// party fits into one, and two more leave room for another time or class.
	MaxOpen     = 3
	maxClasses  = 10 // of one order, as the schema has it
	maxGateway  = 40 // characters of a gateway's name
	maxListed   = 200
	expireBatch = 100 // orders ended in one transaction (DESIGN 9)
	expireMost  = 50  // transactions of one sale in one run
	maxSales    = 1000
	// earlySlack is by how much a replica's clock may be wrong before it says "not
	// open yet" by itself; within it the database is asked.
	earlySlack = 2 * time.Second
)

// Together says how the seats of an order must stand.
type Together int16

// The ways of standing together. The numbers are those of the planner.
const (
	Apart    Together = 0
	OneRow   Together = 1 // all in one row of one coach
	OneCoach Together = 2 // all in one coach: more than a row holds
)

// Sales looks a sale up, from memory where it can: *catalog.Reader.
type Sales = seat.Sales

// After is what happens once a change of an order is committed. Both are best
// effort: whatever they do not do, reconcile does (law 1).
type After interface {
	// Queued: the order has taken its place. The queues in Redis are brought up to
	// date and `match` is told.
	Queued(ctx context.Context, sale, number int64)
	// Gone: the order has left its queues.
	Gone(ctx context.Context, sale, number int64)
}

// Orders makes and reads standby orders for one replica. It is safe for
// concurrent use.
type Orders struct {
	db        *store.DB
	ids       *id.Maker
	sales     Sales
	maps      *seat.Maps
	after     After
	reachable func(ctx context.Context) bool
	lines     Lines // nil: positions are not known
	views     views
}

// NewOrders makes Orders. The maps say what the open sale can still give.
func NewOrders(db *store.DB, ids *id.Maker, sales Sales, maps *seat.Maps) *Orders {
	return &Orders{db: db, ids: ids, sales: sales, maps: maps, after: nobody{}, reachable: func(context.Context) bool { return true }}
}

// OnChange sets who acts after a commit, and what says whether the queues in Redis
// can be reached (nil: always). Call it before the first use.
func (o *Orders) OnChange(after After, reachable func(ctx context.Context) bool) {
	o.after = after
	if reachable != nil {
		o.reachable = reachable
	}
}

// ShowPlaces sets who says where an order stands. Call it before the first use.
func (o *Orders) ShowPlaces(lines Lines) { o.lines = lines }

type nobody struct{}

func (nobody) Queued(context.Context, int64, int64) {}
func (nobody) Gone(context.Context, int64, int64)   {}

// Reachable says whether the queues in Redis can be reached; an order that takes
// its place meanwhile is pending.
func (o *Orders) Reachable(ctx context.Context) bool { return o.reachable(ctx) }

// Queued and Gone pass on what has been committed.
func (o *Orders) Queued(ctx context.Context, sale, number int64) { o.after.Queued(ctx, sale, number) }

// Gone says that an order has left its queues, see After.
func (o *Orders) Gone(ctx context.Context, sale, number int64) { o.after.Gone(ctx, sale, number) }

// Wish is an order as it is asked for.
type Wish struct {
	Account string
	// Admission is the room's, verified by its signature; 0 where the sale has no
	// room. Its end is compared with the database's clock.
	Admission     int64
	AdmissionEnds time.Time
	Classes       []string // in order of liking
	From, To      string   // stop ids
	Quantity      int
	Together      bool
	Until         time.Time // how long it waits; zero: until the sale closes
	Gateway       string
	Passengers    []booking.Passenger
	Contact       booking.Contact
	Key           string // Idempotency-Key
	TraceID       string
}

// Joined is an order that has been made, or was made before by the same request.
type Joined struct {
	Ref         id.OrderRef
	Number      int64
	Again       bool // the same request made it before
	State       State
	Payment     uuid.UUID // nil until one has begun
	Price       money.Amount
	Gateway     string
	Title       string // of the sale
	Test        bool   // the sale's
	Until       time.Time
	AuthoriseBy time.Time
	ServerTime  time.Time
}

// spot is a wish in the sale's numbers.
type spot struct {
	f, t     int
	fares    []int64 // of the whole order in each class
	together Together
	departs  time.Time
	until    time.Time
}

// joined is the answer of standby_join.
type joined struct {
	Code        problem.Code `json:"code"` // or "joined"
	Why         string       `json:"why"`
	Again       bool         `json:"again"`
	Order       int64        `json:"order"`
	State       State        `json:"state"`
	Payment     *uuid.UUID   `json:"payment"`
	Amount      int64        `json:"amount"`
	Currency    string       `json:"currency"`
	Gateway     string       `json:"gateway"`
	Until       time.Time    `json:"until"`
	AuthoriseBy time.Time    `json:"authorise_by"`
	Title       string       `json:"title"`
	Test        bool         `json:"test"`
	Limit       int          `json:"limit"`
	OpensAt     time.Time    `json:"opens_at"`
	ServerTime  time.Time    `json:"server_time"`
}

// Join makes an order, which is authorising until its payment is, unless the open
// sale can give the seats now. The caller has checked the admission's signature,
// room and account. Errors: invalid, not-open-yet, paused, sale-closed,
// admit-expired, limit-reached, wrong-state (there are seats), unavailable.
func (o *Orders) Join(ctx context.Context, sale *catalog.Sale, w Wish) (Joined, error) {
	p, err := o.spot(sale, &w)
	if err != nil {
		return Joined{}, err
	}
	if err := sale.OpenAt(time.Now().Add(earlySlack), p.f); problem.Is(err, problem.NotOpenYet) {
		return Joined{}, err
	}
	if err := o.mustWait(ctx, sale, w, p); err != nil {
		return Joined{}, err
	}
	passengers, contact := []byte("[]"), []byte("{}")
	if len(w.Passengers) > 0 {
		if passengers, err = json.Marshal(w.Passengers); err != nil {
			return Joined{}, err
		}
	}
	if w.Contact != (booking.Contact{}) {
		if contact, err = json.Marshal(w.Contact); err != nil {
			return Joined{}, err
		}
	}
	var admission *int64
	var ends, departs *time.Time
	if w.Admission != 0 {
		admission, ends = &w.Admission, &w.AdmissionEnds
	}
	if !p.departs.IsZero() {
		departs = &p.departs
	}
	var raw []byte
	err = o.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, orderSQL["join"], sale.ID, w.Account, w.Key, admission, ends, w.Classes, p.f, p.t, w.Quantity,
			int16(p.together), p.fares, w.Gateway, p.until, departs, MaxOpen, passengers, contact, w.TraceID).Scan(&raw)
	})
	if err != nil {
		return Joined{}, err
	}
	var a joined
	if err := json.Unmarshal(raw, &a); err != nil {
		return Joined{}, err
	}
	if a.Code != "joined" {
		return Joined{}, a.refusal()
	}
	out := Joined{
		Ref: o.ref(sale, a.Order, w.Account, w.Classes, p.f, p.t), Number: a.Order, Again: a.Again, State: a.State,
		Price: money.Amount{Amount: a.Amount, Currency: a.Currency}, Gateway: a.Gateway, Title: a.Title, Test: a.Test,
		Until: a.Until, AuthoriseBy: a.AuthoriseBy, ServerTime: a.ServerTime,
	}
	if a.Payment != nil {
		out.Payment = *a.Payment
	}
	return out, nil
}

// spot checks a wish and reads its names.
func (o *Orders) spot(sale *catalog.Sale, w *Wish) (p spot, err error) {
	if len(w.Classes) < 1 || len(w.Classes) > maxClasses {
		return p, problem.Invalid("classes", "must name 1 to %d classes of this sale", maxClasses)
	}
	for i, id := range w.Classes {
		field := fmt.Sprintf("classes[%d]", i)
		class, ok := sale.Class(id)
		switch {
		case !ok:
			return p, problem.Invalid(field, "must be a class of this sale")
		case slices.Contains(w.Classes[:i], id):
			return p, problem.Invalid(field, "is named twice")
		case class.Stock != catalog.Numbered:
			return p, problem.Invalid(field, "has no numbered seats, so nobody waits for it")
		}
	}
	if p.f, p.t, err = sale.Interval(w.From, w.To); err != nil {
		return p, err
	}
	if w.Quantity < 1 || w.Quantity > booking.MaxSeats {
		return p, problem.Invalid("quantity", "must be 1 to %d", booking.MaxSeats)
	}
	if most := min(sale.BookingLimit, sale.AccountLimit); w.Quantity > most {
		return p, problem.New(problem.LimitReached, "At most %d seats can be had here.", most)
	}
	for i, class := range w.Classes {
		price, err := sale.Price(class, p.f, p.t)
		if err != nil {
			return p, problem.Invalid(fmt.Sprintf("classes[%d]", i), "this class has no fare between these stops")
		}
		p.fares = append(p.fares, price.Amount*int64(w.Quantity))
	}
	if w.Together && w.Quantity > 1 {
		p.together = OneRow
		for _, class := range w.Classes {
			row, coach := widest(sale, class)
			if w.Quantity > coach {
				return p, problem.Invalid("together", "class %s has at most %d seats together", class, coach)
			}
			if w.Quantity > row {
				p.together = OneCoach
			}
		}
	}
	for _, class := range w.Classes {
		if seats := len(sale.ClassSeats(class)); w.Quantity > seats {
			return p, problem.Invalid("quantity", "must be at most %d: class %s has no more seats", seats, class)
		}
	}
	p.departs = sale.DepartsFrom(p.f)
	p.until = w.Until
	switch {
	case p.until.IsZero():
		p.until = sale.ClosesAt
	case p.until.After(sale.ClosesAt) || !p.until.After(time.Now().Add(-earlySlack)):
		return p, lateUntil()
	}
	if w.Gateway == "" || len(w.Gateway) > maxGateway || !slices.Contains(sale.Gateways, w.Gateway) {
		return p, problem.Invalid("gateway", "must be one of the gateways of this sale")
	}
	return p, booking.CheckPeople(w.Passengers, w.Quantity, &w.Contact)
}

func lateUntil() error {
	return problem.Invalid("until", "must be ahead, and not after this sale closes")
}

// widest is the most seats of a class in one row of one coach, and in one coach.
func widest(sale *catalog.Sale, class string) (row, coach int) {
	type at struct {
		coach string
		row   int
	}
	rows, coaches := map[at]int{}, map[string]int{}
	for _, n := range sale.ClassSeats(class) {
		p, _ := sale.Place(n)
		rows[at{p.Coach, p.Row}]++
		coaches[p.Coach]++
		row, coach = max(row, rows[at{p.Coach, p.Row}]), max(coach, coaches[p.Coach])
	}
	return row, coach
}

// mustWait refuses an order for what the open sale can give now (DESIGN 8): by the
// map, which is a second old at most, and where that has seats by Postgres, as the
// last of them may just be sold. The same request may have made its order before
// there were seats.
func (o *Orders) mustWait(ctx context.Context, sale *catalog.Sale, w Wish, p spot) error {
	m, err := o.maps.Get(ctx, sale)
	if err != nil {
		return err
	}
	classes := slices.DeleteFunc(slices.Clone(w.Classes), func(id string) bool { return m.Left(id, p.f, p.t) < w.Quantity })
	if len(classes) == 0 {
		return nil
	}
	var known bool
	var free *string
	err = o.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, orderSQL["known-or-free"], sale.ID, w.Account, w.Key, classes, p.f, p.t, w.Quantity).Scan(&known, &free)
	})
	if err != nil || known || free == nil {
		return err
	}
	class, _ := sale.Class(*free)
	return problem.New(problem.WrongState, "There are seats in %s now: buy them.", class.Title)
}

// refusal is the problem that a code of standby_join stands for.
func (a joined) refusal() error {
	switch a.Code {
	case problem.NotFound:
		return problem.New(a.Code, "There is no such sale.")
	case problem.NotOpenYet:
		return problem.New(a.Code, "This sale is not open yet.").After(a.OpensAt.Sub(a.ServerTime))
	case problem.Paused:
		return problem.New(a.Code, "This sale is paused. Please try again later.").After(10 * time.Second)
	case problem.SaleClosed:
		return problem.New(a.Code, "This sale is closed.")
	case problem.AdmitExpired:
		return problem.New(a.Code, "Your admission has ended. You can join again.")
	case problem.LimitReached:
		if a.Why == "orders" {
			return problem.New(a.Code, "At most %d of your orders can wait here at a time.", a.Limit)
		}
		return problem.New(a.Code, "At most %d seats can be had here.", a.Limit)
	case "gateway":
		return problem.Invalid("gateway", "must be one of the gateways of this sale")
	case "until":
		return lateUntil()
	}
	return fmt.Errorf("standby: standby_join said %q", a.Code)
}

func (o *Orders) ref(sale *catalog.Sale, number int64, account string, classes []string, f, t int) id.OrderRef {
	r := id.OrderRef{Sale: sale.ID, Number: number, From: f, To: t, Account: id.TagOf(account)}
	for _, c := range classes {
		r.Classes = append(r.Classes, slices.IndexFunc(sale.Classes, func(k catalog.Class) bool { return k.ID == c }))
	}
	return r
}

// Own reads the id of an order of the account's own; another's is not-found, and
// so is anything that is no order id, without a look into Postgres.
func (o *Orders) Own(account, order string) (id.OrderRef, error) {
	ref, err := o.ids.ParseOrder(order)
	if err != nil || !ref.Of(account) {
		return id.OrderRef{}, unknown()
	}
	return ref, nil
}

// Leave takes an order of the account's own out of its queues; what was authorised
// is still to be voided, and until then it is cancelling. Errors: not-found,
// wrong-state (it has been matched, or has ended).
func (o *Orders) Leave(ctx context.Context, ref id.OrderRef, account, trace string) (State, error) {
	var raw []byte
	err := o.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, orderSQL["leave"], ref.Sale, ref.Number, account, trace).Scan(&raw)
	})
	if err != nil {
		return "", err
	}
	var a struct {
		Code  string `json:"code"`
		State State  `json:"state"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return "", err
	}
	o.views.forget(ref.Number)
	switch {
	case a.Code == "left":
		o.Gone(ctx, ref.Sale, ref.Number)
		return a.State, nil
	case a.Code == "not-found":
		return "", unknown()
	case a.State == Matched || a.State == Booked:
		return "", problem.New(problem.WrongState, "This order has got its seats. They can be returned as any booking.")
	default:
		return "", problem.New(problem.WrongState, "This order waits no more.")
	}
}

// Expire ends orders whose time is over, of every sale: past their end, not
// authorised in time, or of a sale that sells no more (field case 43). Returns how
// many.
func (o *Orders) Expire(ctx context.Context) (int, error) {
	var sales []int64
	err := o.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, orderSQL["over-sales"], maxSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, err
	}
	ended := 0
	for _, sale := range sales {
		for range expireMost {
			var n int
			err := o.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
				return q.QueryRow(ctx, orderSQL["expire-orders"], sale, expireBatch).Scan(&n)
			})
			if err != nil {
				return ended, err
			}
			ended += n
			if n < expireBatch {
				break
			}
		}
	}
	return ended, nil
}

// Order is a standby order as it stood when it was read.
type Order struct {
	Sale, Number   int64
	Account        string
	ID             string // the public id
	Classes        []string
	LegFrom, LegTo int // 1-based and inclusive
	From, To       string
	Quantity       int
	Together       Together
	Fares          []int64 // of the whole order in each of Classes, minor units
	Currency       string
	Gateway        string
	State          State
	Step           string
	Until          time.Time
	AuthoriseBy    time.Time
	Class          string // of the seats it got; empty before
	Booking        int64  // its booking's number; 0 before
	Reason         string // of an end other than booked
	JoinedAt       time.Time
	QueuedAt       time.Time // zero before
	MatchedAt      time.Time // zero before
	EndedAt        time.Time // zero before
	Passengers     []booking.Passenger
	Contact        booking.Contact
	History        []booking.Event // oldest first
	TraceID        string
	ReadAt         time.Time
}

// Load reads one order with its history; not-found for an unknown one. The caller
// says whether the account may see it.
func (o *Orders) Load(ctx context.Context, sale, number int64) (*Order, error) {
	var order *Order
	err := o.db.Do(ctx, func(ctx context.Context, q store.Querier) (err error) {
		order, err = scanOrder(q.QueryRow(ctx, orderSQL["load-order"], sale, number))
		return err
	})
	if store.IsNoRows(err) {
		return nil, unknown()
	}
	if err != nil {
		return nil, err
	}
	return order, o.name(ctx, order)
}

// List reads an account's orders over all sales, newest first, at most 200, without
// their history.
func (o *Orders) List(ctx context.Context, account string) ([]*Order, error) {
	list := []*Order{}
	err := o.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, orderSQL["list-orders"], account, maxListed)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (*Order, error) { return scanOrder(r) })
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, order := range list {
		order.History = nil
		if err := o.name(ctx, order); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// scanOrder reads one row of "load-order" or "list-orders".
func scanOrder(row pgx.Row) (*Order, error) {
	var k Order
	var queued, matched, ended *time.Time
	var passengers, contact, history []byte
	err := row.Scan(&k.Sale, &k.Number, &k.Account, &k.Classes, &k.LegFrom, &k.LegTo, &k.Quantity, &k.Together, &k.Fares, &k.Currency,
		&k.Gateway, &k.State, &k.Step, &k.Until, &k.AuthoriseBy, &k.Class, &k.Booking, &k.Reason,
		&k.JoinedAt, &queued, &matched, &ended, &passengers, &contact, &history, &k.TraceID, &k.ReadAt)
	if err != nil {
		return nil, err
	}
	for _, t := range []struct{ from, to *time.Time }{{queued, &k.QueuedAt}, {matched, &k.MatchedAt}, {ended, &k.EndedAt}} {
		if t.from != nil {
			*t.to = *t.from
		}
	}
	k.History = []booking.Event{{At: k.JoinedAt, What: string(Authorising)}}
	var later []booking.Event
	err = errors.Join(json.Unmarshal(passengers, &k.Passengers), json.Unmarshal(contact, &k.Contact), json.Unmarshal(history, &later))
	k.History = append(k.History, later...)
	return &k, err
}

// name adds what the sale and the keys say about an order.
func (o *Orders) name(ctx context.Context, k *Order) error {
	sale, err := o.sales.Sale(ctx, k.Sale)
	if err != nil {
		return err
	}
	k.ID = o.ids.Order(o.ref(sale, k.Number, k.Account, k.Classes, k.LegFrom, k.LegTo))
	k.From, k.To = sale.From(k.LegFrom).ID, sale.To(k.LegTo).ID
	return nil
}

func unknown() error { return problem.New(problem.NotFound, "There is no such order.") }
