package catalog

import "slices"

// The attributes a seat place may have.
const (
	Window     = "window"
	Aisle      = "aisle"
	Accessible = "accessible" // sold last
	Companion  = "companion"  // beside an accessible place, sold with it
	AtTable    = "table"
	Upper      = "upper"
	Lower      = "lower"
)

// Attributes lists every attribute.
var Attributes = []string{Window, Aisle, Accessible, Companion, AtTable, Upper, Lower}

// SeatPlace is where a numbered seat is. Its number is its 1-based position in
// layout order.
type SeatPlace struct {
	Number     int
	Class      string
	Coach      string // may be empty (a hall without sections)
	Seat       string
	Row        int
	Column     string
	Attributes []string
}

// Name is what the customer sees and sends: "3-12A", or the seat alone where
// there is no coach.
func (p SeatPlace) Name() string {
	if p.Coach == "" {
		return p.Seat
	}
	return p.Coach + "-" + p.Seat
}

// Coach is a run of seats of one class in the sale document. A coach with two
// classes is written as two.
type Coach struct {
	Coach string `json:"coach"`
	Class string `json:"class"`
	Seats []Seat `json:"seats"`
}

// Seat is one seat of a coach in the sale document.
type Seat struct {
	Seat       string   `json:"seat"`
	Row        int      `json:"row"`
	Column     string   `json:"column"`
	Attributes []string `json:"attributes,omitempty"`
}

// places lists the seats of coaches in layout order, numbered from first.
func places(coaches []Coach, first int) []SeatPlace {
	var list []SeatPlace
	for _, c := range coaches {
		for _, s := range c.Seats {
			list = append(list, SeatPlace{
				Number: first + len(list), Class: c.Class, Coach: c.Coach,
				Seat: s.Seat, Row: s.Row, Column: s.Column, Attributes: s.Attributes,
			})
		}
	}
	return list
}

// coaches is the inverse of places: seats in number order, a new coach wherever
// coach or class changes.
func coaches(list []SeatPlace) []Coach {
	var out []Coach
	for _, p := range list {
		if n := len(out); n == 0 || out[n-1].Coach != p.Coach || out[n-1].Class != p.Class {
			out = append(out, Coach{Coach: p.Coach, Class: p.Class})
		}
		last := &out[len(out)-1]
		last.Seats = append(last.Seats, Seat{Seat: p.Seat, Row: p.Row, Column: p.Column, Attributes: p.Attributes})
	}
	return out
}

// HasAttribute says whether a place carries an attribute.
func (p SeatPlace) HasAttribute(a string) bool { return slices.Contains(p.Attributes, a) }
