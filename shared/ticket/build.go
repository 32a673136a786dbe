package ticket

import (
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/text"
)

// Build makes the ticket of a booking, its codes signed. The language is the
// contact's; the default is English.
func Build(sale *catalog.Sale, b *booking.Booking, signer *Signer) (*Ticket, error) {
	t := &Ticket{
		Sale: b.Sale, Booking: b.Number, Locator: b.Locator,
		Kind: sale.Kind, Title: sale.Title, Number: sale.Number, ServiceDate: sale.ServiceDate,
		From: call(sale, b.LegFrom-1, true), To: call(sale, b.LegTo, false),
		FirstLeg: b.LegFrom, LastLeg: b.LegTo,
		Class: b.Class, Price: b.Price, Lang: text.Match(b.Contact.Language), Issued: issued(b),
	}
	for _, c := range sale.Classes {
		if c.ID == b.Class && c.Title != "" {
			t.Class = c.Title
		}
	}
	for i := range b.Quantity {
		s := Seat{Serial: i + 1}
		if i < len(b.SeatNumbers) {
			s.Number = b.SeatNumbers[i]
			if place, ok := sale.Place(s.Number); ok {
				s.Name, s.Coach, s.Seat = place.Name(), place.Coach, place.Seat
			}
		}
		if i < len(b.Passengers) {
			s.Passenger, s.Category = b.Passengers[i].Name, b.Passengers[i].Category
		}
		var err error
		s.QR, err = signer.Sign(Pass{
			Sale: t.Sale, Booking: t.Booking, Serial: s.Serial, Seat: s.Number, SeatName: cutName(s.Name),
			FirstLeg: t.FirstLeg, LastLeg: t.LastLeg, ServiceDate: t.ServiceDate,
		})
		if err != nil {
			return nil, err
		}
		t.Seats = append(t.Seats, s)
	}
	return t, nil
}

// issued is when the booking was booked, or exchanged after that; or made where its
// history does not say.
func issued(b *booking.Booking) time.Time {
	at := b.MadeAt
	for _, e := range b.History {
		if e.What == "booked" || e.What == "exchanged" {
			at = e.At
		}
	}
	return at
}

// call is stop i of the sale, where one gets on or off.
func call(sale *catalog.Sale, i int, on bool) Call {
	if i < 0 || i >= len(sale.Stops) {
		return Call{}
	}
	stop := sale.Stops[i]
	c := Call{Name: stop.Name}
	at, other, way := stop.Departs, stop.Arrives, stop.Board
	if !on {
		at, other, way = stop.Arrives, stop.Departs, stop.Alight
	}
	if at == nil {
		at = other
	}
	c.Request = way == catalog.CallRequest
	if at != nil {
		local := *at
		if zone, err := time.LoadLocation(stop.Timezone); err == nil {
			local = at.In(zone)
		}
		c.Time = &local
	}
	return c
}

// cutName keeps a seat's name inside the code's limit, at a character's edge.
func cutName(s string) string {
	for len(s) > maxName {
		r := []rune(s)
		s = string(r[:len(r)-1])
	}
	return s
}
