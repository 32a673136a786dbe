package rush

import (
	"fmt"
	"time"

	"handler/function/shared/catalog"
)

// layout of the sale a rush sells: coaches (of a train) or rows in one hall.
const (
	seatsACoach = 80
	seatsARow   = 4
	saleClass   = "standard"
	fareALeg    = 2500 // CAD 25.00
)

// saleDocument makes the sale of a rush: one leg is a screening, more are a
// train. The line opens, and the sale with it, at opens.
func saleDocument(o Options, opens time.Time) catalog.Document {
	departs := opens.Add(24 * time.Hour)
	kind, title := catalog.Show, "A rush in a hall"
	if o.Legs > 1 {
		kind, title = catalog.Train, "A rush on a train"
	}
	d := catalog.Document{
		Kind: kind, Title: title, Number: "1", ServiceDate: departs.Format(time.DateOnly), Timezone: "UTC",
		State: catalog.Open, Currency: "CAD", OpensAt: &opens, Gateways: []string{"sandbox"}, Test: true,
		HoldSeconds: seconds(o.Hold), BookingLimit: ptr(o.Party), AccountLimit: ptr(o.Party),
		Room: &catalog.RoomWish{RoomSettings: catalog.RoomSettings{
			DrawOpensAt: &opens, DrawSeconds: seconds(o.Draw), AdmitPerSecond: ptr(float64(o.Admit)),
		}},
	}
	var amounts []int64
	for i := range o.Legs + 1 {
		at := departs.Add(time.Duration(i) * time.Hour)
		stop := catalog.Stop{ID: fmt.Sprint(i), Name: fmt.Sprintf("Stop %d", i), Timezone: "UTC", Km: float64(100 * i)}
		if i > 0 {
			stop.Arrives = &at
			amounts = append(amounts, fareALeg)
		}
		if i < o.Legs {
			leaves := at.Add(time.Minute)
			stop.Departs = &leaves
		}
		d.Stops = append(d.Stops, stop)
	}
	d.Classes = []catalog.Class{{
		ID: saleClass, Title: "Standard", Stock: catalog.Numbered,
		Fare: catalog.Fare{Kind: catalog.PerLeg, Amounts: amounts},
	}}
	for n := 0; n < o.Seats; n++ {
		if n%seatsACoach == 0 {
			d.Coaches = append(d.Coaches, catalog.Coach{Coach: fmt.Sprint(1 + n/seatsACoach), Class: saleClass})
		}
		c := &d.Coaches[len(d.Coaches)-1]
		row, column := 1+len(c.Seats)/seatsARow, string(rune('A'+len(c.Seats)%seatsARow))
		c.Seats = append(c.Seats, catalog.Seat{Seat: fmt.Sprintf("%d%s", row, column), Row: row, Column: column})
	}
	return d
}

// seatNames lists the seats of a document in layout order.
func seatNames(d catalog.Document) []string {
	var names []string
	for _, c := range d.Coaches {
		for _, s := range c.Seats {
			names = append(names, catalog.SeatPlace{Coach: c.Coach, Seat: s.Seat}.Name())
		}
	}
	return names
}

func seconds(d time.Duration) *int {
	return ptr(int(d / time.Second))
}

func ptr[T any](v T) *T { return &v }
