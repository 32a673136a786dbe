package catalog

import (
	"context"
	"slices"
	"time"

	"handler/function/shared/money"
)

// View is a sale as GET answers it; a list leaves out what only one sale shows.
// POSTed back as it came it changes nothing.
type View struct {
	Sale        string      `json:"sale"`
	Kind        Kind        `json:"kind"`
	Title       string      `json:"title"`
	Number      string      `json:"number"`
	ServiceDate string      `json:"service_date"`
	Timezone    string      `json:"timezone"`
	Room        *string     `json:"room"` // null without a waiting room
	State       State       `json:"state"`
	Stops       []Stop      `json:"stops"`
	Classes     []ClassView `json:"classes"`
	Currency    string      `json:"currency"`
	OpensAt     time.Time   `json:"opens_at"`
	ClosesAt    time.Time   `json:"closes_at"`
	DepartsAt   time.Time   `json:"departs_at"`
	*Details
}

// Details are shown of one sale only.
type Details struct {
	Layout        Layout   `json:"layout"`
	HoldSeconds   int      `json:"hold_seconds"`
	ExtendSeconds int      `json:"extend_seconds"`
	BookingLimit  int      `json:"booking_limit"`
	AccountLimit  int      `json:"account_limit"`
	Gateways      []string `json:"gateways"`
	Test          bool     `json:"test"`
}

// Layout is where the seats are, in number order: the order of the seat map.
type Layout struct {
	Coaches []Coach `json:"coaches"`
}

// ClassView is a class with what the interval asked for costs (the whole route
// where none was) and how many of its seats are free there.
type ClassView struct {
	ID     string  `json:"class"`
	Title  string  `json:"title"`
	Stock  Stock   `json:"stock"`
	Fare   *Fare   `json:"fare,omitempty"` // of one sale only
	Prices []Price `json:"prices"`
	Left   *int    `json:"left"` // null where it is not known
}

// Price is the price of one seat between two stops.
type Price struct {
	From  string       `json:"from"`
	To    string       `json:"to"`
	Price money.Amount `json:"price"`
}

// Counter says how many seats of a class are free on legs f..t; false where it
// does not know. Package seat has one; it must not cost a query for each call.
type Counter func(ctx context.Context, saleID int64, class string, f, t int) (int, bool)

// Summary is the sale in a list, for legs f..t (1-based, inclusive).
func (s *Sale) Summary(ctx context.Context, f, t int, left Counter) View {
	v := View{
		Sale: s.IDString(), Kind: s.Kind, Title: s.Title, Number: s.Number, ServiceDate: s.ServiceDate, Timezone: s.Timezone,
		State: s.State, Stops: s.Stops, Classes: make([]ClassView, 0, len(s.Classes)), Currency: s.Currency,
		OpensAt: s.OpensAt, ClosesAt: s.ClosesAt, DepartsAt: s.DepartsAt,
	}
	if s.Room != 0 {
		room := s.RoomString()
		v.Room = &room
	}
	for _, c := range s.Classes {
		cv := ClassView{ID: c.ID, Title: c.Title, Stock: c.Stock, Prices: []Price{}}
		if price, err := s.Price(c.ID, f, t); err == nil {
			cv.Prices = append(cv.Prices, Price{From: s.From(f).ID, To: s.To(t).ID, Price: price})
		}
		if left != nil {
			if n, ok := left(ctx, s.ID, c.ID, f, t); ok {
				cv.Left = &n
			}
		}
		v.Classes = append(v.Classes, cv)
	}
	return v
}

// View is the whole sale; see Summary.
func (s *Sale) View(ctx context.Context, f, t int, left Counter) View {
	v := s.Summary(ctx, f, t, left)
	for i := range v.Classes {
		v.Classes[i].Fare = &s.Classes[i].Fare
	}
	v.Details = &Details{
		Layout: Layout{Coaches: coaches(s.Places)}, HoldSeconds: s.HoldSeconds, ExtendSeconds: s.ExtendSeconds,
		BookingLimit: s.BookingLimit, AccountLimit: s.AccountLimit, Gateways: slices.Clone(s.Gateways), Test: s.Test,
	}
	return v
}
