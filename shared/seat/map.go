// Package seat owns the map of a sale: which legs of which seats are free, as
// read from the strips in Postgres at most once a second, what is left by it,
// and which seats to offer to who asks for any. It decides nothing: the SQL
// functions of migrations/00002_seat.sql do.
package seat

import (
	"time"
)

// Map is the seats of one sale at one moment. It is shared and never written.
type Map struct {
	AsOf  time.Time // by the database's clock, before the strips were read
	Stale bool      // Postgres is away and this is the last map known
}

// IntervalLeft is what is left of a class on one interval that is sold.
type IntervalLeft struct {
	LegFrom, LegTo int // 1-based, inclusive
	Left           int
}

// Left is how many seats of a class the open sale may take on legs f..t, 1-based
// and inclusive; 0 for an unknown class or legs outside the sale.
func (m *Map) Left(class string, f, t int) int { panic("not yet") }

// LeftAny is how many seats of a class have at least one interval that is sold
// and that the open sale may take.
func (m *Map) LeftAny(class string) int { panic("not yet") }

// Busiest lists at most n intervals of a class that are sold, the fewest left
// first, the shorter and then the earlier first among equals.
func (m *Map) Busiest(class string, n int) []IntervalLeft { panic("not yet") }
