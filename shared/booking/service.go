package booking

import (
	"context"
	_ "embed"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/money"
	"handler/function/shared/problem"
	"handler/function/shared/seat"
	"handler/function/shared/store"
)

//go:embed booking.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// maxList bounds an account's list.
const maxList = 200

// Sales looks a sale up, from memory where it can: *catalog.Reader.
type Sales = seat.Sales

// Service makes and reads bookings for one replica. It is safe for concurrent
// use.
type Service struct {
	db    *store.DB
	sales Sales
	maps  *seat.Maps
	ids   *id.Maker
	keys  *idempotency.Store
	pick  func(n int) int // random, 0 to n exclusively
}

// New makes a Service. Holds of "any n" choose on maps.
func New(db *store.DB, sales Sales, maps *seat.Maps, ids *id.Maker) *Service {
	return &Service{db: db, sales: sales, maps: maps, ids: ids, keys: idempotency.New(db), pick: rand.IntN}
}

// Load reads one booking with its history; an unknown one is not-found. The
// caller says whether the account may see it.
func (s *Service) Load(ctx context.Context, saleID, number int64) (*Booking, error) {
	var b *Booking
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) (err error) {
		b, err = scan(q.QueryRow(ctx, sql["load"], saleID, number))
		return err
	})
	if store.IsNoRows(err) {
		return nil, unknown()
	}
	if err != nil {
		return nil, err
	}
	return b, s.name(ctx, b)
}

// Find is Load for the account's own: another's is not-found too. which is a
// public booking id or a locator as a person types it.
func (s *Service) Find(ctx context.Context, account, which string) (*Booking, error) {
	saleID, number, err := s.ids.ParseBooking(which)
	if err != nil {
		saleID, number, err = s.ids.ParseLocator(which)
	}
	if err != nil {
		return nil, unknown()
	}
	b, err := s.Load(ctx, saleID, number)
	if err == nil && b.Account != account {
		return nil, unknown()
	}
	return b, err
}

// List reads an account's bookings over all sales, newest first, at most 200,
// without their history.
func (s *Service) List(ctx context.Context, account string) ([]*Booking, error) {
	list := []*Booking{}
	err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		list = list[:0]
		rows, err := q.Query(ctx, sql["list"], account, maxList)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			b, err := scan(rows)
			if err != nil {
				return err
			}
			b.History = nil
			list = append(list, b)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	for _, b := range list {
		if err := s.name(ctx, b); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// scan reads one row of "load" or "list".
func scan(row pgx.Row) (*Booking, error) {
	var b Booking
	var passengers, contact, history []byte
	var seats []int32
	var endedAt, departs *time.Time
	err := row.Scan(&b.Sale, &b.Number, &b.Account, &b.Admission, &b.Class, &b.LegFrom, &b.LegTo, &seats, &b.Quantity,
		&b.State, &b.Price.Amount, &b.Price.Currency, &b.MadeAt, &b.EndsAt, &b.LimitAt, &endedAt, &departs, &passengers, &contact,
		&b.Group, &b.Origin, &history, &b.TraceID, &b.ReadAt)
	if err != nil {
		return nil, err
	}
	for _, n := range seats {
		b.SeatNumbers = append(b.SeatNumbers, int(n))
	}
	if endedAt != nil {
		b.EndedAt = *endedAt
	} else if b.State == Expired {
		b.EndedAt = b.EndsAt
	}
	if departs != nil {
		b.Departs = *departs
	}
	var later []Event
	for _, field := range []struct {
		raw  []byte
		into any
	}{{passengers, &b.Passengers}, {contact, &b.Contact}, {history, &later}} {
		if err := json.Unmarshal(field.raw, field.into); err != nil {
			return nil, err
		}
	}
	// The row keeps what happened after the booking was made.
	if b.Origin != ByHouse {
		b.History = append(b.History, Event{At: b.MadeAt, What: string(Held)})
	}
	b.History = append(b.History, later...)
	if b.State == Expired && !slices.ContainsFunc(later, func(e Event) bool { return e.What == string(Expired) }) {
		b.History = append(b.History, Event{At: b.EndsAt, What: string(Expired), Why: "the hold ended unpaid"})
	}
	return &b, nil
}

// name adds what the sale and the keys say about a booking.
func (s *Service) name(ctx context.Context, b *Booking) error {
	sale, err := s.sales.Sale(ctx, b.Sale)
	if err != nil {
		return err
	}
	b.ID, b.Locator = s.ids.Booking(b.Sale, b.Number), s.ids.Locator(b.Sale, b.Number)
	b.From, b.To = sale.From(b.LegFrom).ID, sale.To(b.LegTo).ID
	b.Seats = names(sale, b.SeatNumbers)
	return nil
}

func names(sale *catalog.Sale, numbers []int) []string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = sale.SeatName(n)
	}
	return out
}

// Rename is a change of a booking's passengers.
type Rename struct {
	Account    string
	Booking    string // public id
	Passengers []Passenger
	Key        string // Idempotency-Key
	Hash       []byte // of the request's body
}

// Rename writes other passengers into the account's own live booking, whether or
// not anything is left to sell (field case 45), and returns it; again says that
// the key has done it before. Errors: not-found, invalid, hold-ended,
// wrong-state, idempotency-mismatch, in-progress.
func (s *Service) Rename(ctx context.Context, r Rename) (v View, again bool, err error) {
	saleID, number, err := s.ids.ParseBooking(r.Booking)
	if err != nil {
		return View{}, false, unknown()
	}
	var f faults
	f.passengers(r.Passengers, MaxSeats)
	if len(r.Passengers) == 0 {
		f.add("passengers", "must name at least one passenger")
	}
	if err := f.problem(); err != nil {
		return View{}, false, err
	}
	call := idempotency.Call{Sale: saleID, Account: r.Account, Function: "hold", Key: r.Key, Hash: r.Hash}
	answer, err := s.keys.Do(ctx, call, func(ctx context.Context) (int, any, error) {
		b, err := s.rename(ctx, saleID, number, r)
		if err != nil {
			return 0, nil, err
		}
		return 200, b.View(), nil
	})
	if err != nil {
		return View{}, answer.Replay, err
	}
	if err := json.Unmarshal(answer.Body, &v); err != nil {
		return View{}, false, err
	}
	if answer.Replay {
		v.ServerTime = time.Now().UTC()
	}
	return v, answer.Replay, nil
}

func (s *Service) rename(ctx context.Context, saleID, number int64, r Rename) (*Booking, error) {
	b, err := s.Load(ctx, saleID, number)
	switch {
	case err != nil:
		return nil, err
	case b.Account != r.Account:
		return nil, unknown()
	case b.State == Expired:
		return nil, problem.New(problem.HoldEnded, "This hold has ended. The seats are free for others.")
	case !b.State.Live():
		return nil, problem.New(problem.WrongState, "Names can be changed while a booking is held or booked; this one is %s.", string(b.State))
	}
	var f faults
	if f.passengers(r.Passengers, b.Quantity); f.err != nil {
		return nil, f.err
	}
	passengers, err := json.Marshal(r.Passengers)
	if err != nil {
		return nil, err
	}
	var changed int64
	err = s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		tag, err := q.Exec(ctx, sql["rename"], saleID, number, r.Account, passengers)
		changed = tag.RowsAffected()
		return err
	})
	if err != nil {
		return nil, err
	}
	if changed == 0 { // it moved while we looked
		return nil, problem.New(problem.HoldEnded, "This hold has ended. The seats are free for others.")
	}
	return s.Load(ctx, saleID, number)
}

// LetGo is what came of taking a booking back.
type LetGo struct {
	// Code is the state reached: released, expired (the hold had ended already) or
	// cancelled; or wrong-state or not-found.
	Code       string    `json:"code"`
	State      State     `json:"state"` // where Code is wrong-state
	Seats      []int     `json:"seats"`
	ReleasedAt time.Time `json:"released_at"` // zero when nothing was released now
}

// Release lets a hold go inside the caller's transaction (or on the pool): held
// → released, its seats free, the ABANDON release written. A hold that ended
// already is moved to expired. account must own the booking.
func Release(ctx context.Context, q store.Querier, saleID, number int64, account, why, traceID string) (LetGo, error) {
	return takeBack(q.QueryRow(ctx, sql["let-go"], saleID, number, account, why, traceID))
}

// Cancel takes back a booking that was paid for, in the caller's transaction:
// booked → cancelled, its seats free, the REFUND release written. The money is
// the caller's. Codes: cancelled, wrong-state, not-found.
func Cancel(ctx context.Context, q store.Querier, saleID, number int64, account, why, traceID string) (LetGo, error) {
	return takeBack(q.QueryRow(ctx, sql["cancel"], saleID, number, account, why, traceID))
}

func takeBack(row pgx.Row) (l LetGo, err error) {
	var raw []byte
	if err := row.Scan(&raw); err != nil {
		return l, err
	}
	return l, json.Unmarshal(raw, &l)
}

func unknown() error { return problem.New(problem.NotFound, "There is no such booking.") }

// View is a booking as the API shows it.
type View struct {
	Booking    string       `json:"booking"`
	Locator    string       `json:"locator"`
	State      State        `json:"state"`
	Sale       string       `json:"sale"`
	Class      string       `json:"class"`
	From       string       `json:"from"`
	To         string       `json:"to"`
	Seats      []string     `json:"seats"`
	Quantity   int          `json:"quantity"`
	Price      money.Amount `json:"price"`
	EndsAt     time.Time    `json:"ends_at"`
	LimitAt    time.Time    `json:"may_extend_until"`
	ServerTime time.Time    `json:"server_time"`
	MadeAt     *time.Time   `json:"made_at,omitempty"`
	Departs    *time.Time   `json:"departs_at,omitempty"`
	Passengers []Passenger  `json:"passengers,omitempty"`
	Contact    *Contact     `json:"contact,omitempty"`
	Group      string       `json:"group,omitempty"`
	History    []Event      `json:"history,omitempty"`
}

// View is the booking as the API shows it to its owner.
func (b *Booking) View() View {
	v := View{
		Booking: b.ID, Locator: b.Locator, State: b.State, Sale: id.Format(b.Sale), Class: b.Class, From: b.From, To: b.To,
		Seats: b.Seats, Quantity: b.Quantity, Price: b.Price, EndsAt: b.EndsAt.UTC(), LimitAt: b.LimitAt.UTC(), ServerTime: b.ReadAt.UTC(),
		Passengers: b.Passengers, Group: b.Group, History: b.History,
	}
	if !b.MadeAt.IsZero() {
		at := b.MadeAt.UTC()
		v.MadeAt = &at
	}
	if !b.Departs.IsZero() {
		at := b.Departs.UTC()
		v.Departs = &at
	}
	if b.Contact != (Contact{}) {
		v.Contact = &b.Contact
	}
	return v
}
