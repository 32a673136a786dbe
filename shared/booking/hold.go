package booking

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/money"
	"handler/function/shared/problem"
	"handler/function/shared/seat"
	"handler/function/shared/store"
)

// earlySlack is by how much a replica's clock may be wrong before it says "not
// open yet" by itself; within it the database is asked.
const earlySlack = 2 * time.Second

// Wish is a hold as it is asked for.
type Wish struct {
	Account string
	Origin  Origin // ByCustomer or BySeller
	// Admission is the room's, verified by its signature; 0 where the sale has no
	// room. Its end is compared with the database's clock.
	Admission     int64
	AdmissionEnds time.Time
	Class         string
	From, To      string // stop ids
	// Seats are shown names, or Quantity says how many of any with Prefer.
	Seats      []string
	Quantity   int
	Prefer     seat.Prefer
	Passengers []Passenger
	Contact    Contact
	Group      string
	Key        string // Idempotency-Key
	Hash       []byte // of the request's body
	TraceID    string
}

// Hold is a hold that was made.
type Hold struct {
	*Booking
	Again  bool // the very same seats were held already, by this booking
	Replay bool // the answer that the key has had before
}

// answer is what hold_seats says.
type answer struct {
	Code       problem.Code `json:"code"` // or "held"
	Why        string       `json:"why"`
	Again      bool         `json:"again"`
	Replay     bool         `json:"replay"`
	Number     int64        `json:"number"`
	Seats      []int        `json:"seats"`
	Taken      []int        `json:"taken"`
	Limit      int          `json:"limit"`
	Amount     int64        `json:"amount"`
	Currency   string       `json:"currency"`
	EndsAt     time.Time    `json:"ends_at"`
	LimitAt    time.Time    `json:"limit_at"`
	OpensAt    time.Time    `json:"opens_at"`
	ServerTime time.Time    `json:"server_time"`
}

// Want is what somebody wants of a sale, in the sale's numbers.
type Want struct {
	LegFrom, LegTo int     // 1-based and inclusive
	Seats          []int32 // named ones in order; nil for any
	Quantity       int
	Price          money.Amount // of one seat
	Departs        time.Time    // from the first stop; zero where not published
}

// order is a wish in the sale's numbers.
type order struct {
	Want
	choice []int32 // proposed
}

// Hold holds seats of a sale, all of them or none, in one round trip to
// Postgres. The caller has checked the admission's signature, room and account.
// Errors: invalid, not-open-yet, paused, sale-closed, admit-expired,
// limit-reached, seat-taken, sold-out, standby-first, idempotency-mismatch,
// unavailable.
func (s *Service) Hold(ctx context.Context, sale *catalog.Sale, w Wish) (*Hold, error) {
	o, err := s.order(sale, &w)
	if err != nil {
		return nil, err
	}
	// Long before opening nobody can have a hold to get back, so no key is asked.
	if err := sale.OpenAt(time.Now().Add(earlySlack), o.LegFrom); problem.Is(err, problem.NotOpenYet) {
		return nil, err
	}
	var m *seat.Map
	if o.Seats == nil {
		// Without a map Postgres chooses.
		if m, err = s.maps.Get(ctx, sale); err == nil {
			o.choice = numbers(s.maps.Choose(m, w.Class, o.LegFrom, o.LegTo, o.Quantity, w.Prefer, s.pick))
		}
	} else {
		m = s.maps.Fresh(sale.ID)
	}
	a, err := s.hold(ctx, sale, w, o)
	if err != nil {
		return nil, err
	}
	if a.Code != "held" {
		return nil, a.refusal(sale, w)
	}
	if m != nil && !a.Again && !a.Replay {
		s.maps.Took(m, w.Class, a.Seats, o.LegFrom, o.LegTo)
	}
	return &Hold{Again: a.Again, Replay: a.Replay, Booking: &Booking{
		Sale: sale.ID, Number: a.Number, ID: s.ids.Booking(sale.ID, a.Number), Locator: s.ids.Locator(sale.ID, a.Number),
		Account: w.Account, Admission: w.Admission, Class: w.Class, From: sale.From(o.LegFrom).ID, To: sale.To(o.LegTo).ID, LegFrom: o.LegFrom, LegTo: o.LegTo,
		Seats: names(sale, a.Seats), SeatNumbers: a.Seats, Quantity: len(a.Seats),
		Price: money.Amount{Amount: a.Amount, Currency: a.Currency}, State: Held,
		EndsAt: a.EndsAt, LimitAt: a.LimitAt, Departs: o.Departs, Passengers: w.Passengers, Contact: w.Contact, Group: w.Group,
		Origin: w.Origin, TraceID: w.TraceID, ReadAt: a.ServerTime,
	}}, nil
}

func (s *Service) hold(ctx context.Context, sale *catalog.Sale, w Wish, o order) (answer, error) {
	var admission *int64
	var ends *time.Time
	if w.Admission != 0 {
		admission, ends = &w.Admission, &w.AdmissionEnds
	}
	passengers, contact := []byte("[]"), []byte("{}")
	var err error
	if len(w.Passengers) > 0 {
		if passengers, err = json.Marshal(w.Passengers); err != nil {
			return answer{}, err
		}
	}
	if w.Contact != (Contact{}) {
		if contact, err = json.Marshal(w.Contact); err != nil {
			return answer{}, err
		}
	}
	var departs *time.Time
	if !o.Departs.IsZero() {
		departs = &o.Departs
	}
	var group *string
	if w.Group != "" {
		group = &w.Group
	}
	var raw []byte
	err = s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["hold"], sale.ID, w.Account, w.Key, w.Hash, admission, ends, w.Class, o.LegFrom, o.LegTo, o.Seats, o.choice,
			o.Quantity, o.Price.Amount*int64(o.Quantity), departs, passengers, contact, group, string(w.Origin), w.TraceID).Scan(&raw)
	})
	if store.State(err) == "HF003" { // the key of another kind of request
		return answer{Code: problem.IdempotencyMismatch}, nil
	}
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(raw, &a)
}

// order checks a wish and reads its names.
func (s *Service) order(sale *catalog.Sale, w *Wish) (o order, err error) {
	var f faults
	if o.Want, err = f.want(sale, w.Class, w.From, w.To, w.Seats, w.Quantity); err != nil {
		return o, err
	}
	f.passengers(w.Passengers, o.Quantity)
	f.contact(&w.Contact)
	f.text("group", w.Group, 0, maxGroup)
	if err := f.problem(); err != nil {
		return o, err
	}
	if most := min(sale.BookingLimit, sale.AccountLimit); o.Quantity > most {
		return o, tooMany(most)
	}
	return o, nil
}

// ReadWant reads what is wanted of a sale: a class, the stops, and named seats
// (by their shown names) or how many of any. Errors: invalid, naming class, from,
// to, quantity or seats[i].
func ReadWant(sale *catalog.Sale, class, from, to string, seats []string, quantity int) (Want, error) {
	var f faults
	w, err := f.want(sale, class, from, to, seats, quantity)
	if err == nil {
		err = f.problem()
	}
	return w, err
}

// want reads class and stops, whose fault is returned, and seats or quantity,
// whose faults are gathered.
func (f *faults) want(sale *catalog.Sale, class, from, to string, seats []string, quantity int) (w Want, err error) {
	if _, ok := sale.Class(class); !ok {
		return w, problem.Invalid("class", "must be a class of this sale")
	}
	if w.LegFrom, w.LegTo, err = sale.Interval(from, to); err != nil {
		return w, err
	}
	if w.Price, err = sale.Price(class, w.LegFrom, w.LegTo); err != nil {
		return w, err
	}
	w.Departs, w.Quantity = sale.DepartsFrom(w.LegFrom), quantity
	switch {
	case len(seats) > MaxSeats:
		f.add("seats", "must be at most %d", MaxSeats)
	case len(seats) > 0:
		if quantity != 0 && quantity != len(seats) {
			f.add("quantity", "must be left out, or be the number of seats named")
		}
		w.Quantity = len(seats)
		for i, name := range seats {
			n, ok := sale.SeatNumber(name)
			place, _ := sale.Place(n)
			switch {
			case !ok || len(name) > maxSeatName*4:
				f.add(fmt.Sprintf("seats[%d]", i), "must be a seat of this sale")
			case place.Class != class:
				f.add(fmt.Sprintf("seats[%d]", i), "is not of this class")
			case slices.Contains(w.Seats, int32(n)):
				f.add(fmt.Sprintf("seats[%d]", i), "is named twice")
			}
			w.Seats = append(w.Seats, int32(n))
		}
		slices.Sort(w.Seats)
	case quantity < 1 || quantity > MaxSeats:
		f.add("quantity", "must be 1 to %d, or seats must be named", MaxSeats)
	}
	return w, nil
}

func numbers(list []int) []int32 {
	if list == nil {
		return nil
	}
	out := make([]int32, len(list))
	for i, n := range list {
		out[i] = int32(n)
	}
	return out
}

func tooMany(most int) error {
	return problem.New(problem.LimitReached, "At most %d seats can be had here.", most)
}

// refusal is the problem that a code of hold_seats stands for.
func (a answer) refusal(sale *catalog.Sale, w Wish) error {
	p := a.problem(sale, w)
	p.Replay = a.Replay
	return p
}

func (a answer) problem(sale *catalog.Sale, w Wish) *problem.Error {
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
		if a.Why == "admission" {
			return problem.New(a.Code, "This admission has its booking already, or has been used twice.")
		}
		return problem.New(a.Code, "At most %d seats can be had here.", a.Limit)
	case problem.SeatTaken:
		p := problem.New(a.Code, "No longer free: %s", strings.Join(names(sale, a.Taken), ", "))
		if a.Why == "let-go" {
			p = problem.New(a.Code, "You let these seats go a moment ago; for ten minutes they are for others: %s", strings.Join(names(sale, a.Taken), ", "))
		}
		return a.nameSeats(sale, w, p)
	case problem.StandbyFirst:
		return a.nameSeats(sale, w, problem.New(a.Code, "What is free now is offered to those on standby first."))
	case problem.SoldOut:
		return problem.New(a.Code, "Not so many seats are left between these stops.")
	case problem.IdempotencyMismatch:
		return problem.New(a.Code, "This Idempotency-Key was used with another body.")
	case problem.Unavailable:
		return problem.New(a.Code, "System busy, please wait").After(time.Second)
	}
	return problem.New(problem.Internal, "Something went wrong on our side.").Because(fmt.Errorf("booking: hold_seats said %q", a.Code))
}

// Refusal is what a hold answers with for a refusal of the SQL functions that sell
// seats: code, why and taken as they say it, named the shown names wished for.
func Refusal(sale *catalog.Sale, code problem.Code, why string, taken []int, named []string) error {
	return answer{Code: code, Why: why, Taken: taken}.problem(sale, Wish{Seats: named})
}

// nameSeats names the wished seats that are gone.
func (a answer) nameSeats(sale *catalog.Sale, w Wish, p *problem.Error) *problem.Error {
	for i, name := range w.Seats {
		if n, ok := sale.SeatNumber(name); ok && slices.Contains(a.Taken, n) {
			_ = p.And(fmt.Sprintf("seats[%d]", i), "%s is not free", name)
		}
	}
	return p
}
