package catalog

import "math"

// Stock says how a class is counted.
type Stock string

// Numbered stock is seats with names.
const Numbered Stock = "numbered"

// Class is a seat class or room type with its fare.
type Class struct {
	ID    string `json:"class"`
	Title string `json:"title"`
	Stock Stock  `json:"stock"`
	Fare  Fare   `json:"fare"`
}

// FareKind says how the price of an interval is found.
type FareKind string

// The kinds of fare.
const (
	PerLeg   FareKind = "per_leg"
	Distance FareKind = "distance"
	Table    FareKind = "table"
)

// Fare prices an interval, per seat, in minor units of the sale's currency. Only
// the fields of its kind are set.
type Fare struct {
	Kind FareKind `json:"kind"`
	// Amounts has one price a leg (per_leg); an interval costs their sum.
	Amounts []int64 `json:"amounts,omitempty"`
	// Base + PerKm × kilometres, rounded half up to a minor unit, but at least
	// Minimum (distance). PerKm may have three decimals.
	Base    int64   `json:"base,omitempty"`
	PerKm   float64 `json:"per_km,omitempty"`
	Minimum int64   `json:"minimum,omitempty"`
	// Pairs are the only intervals sold (table).
	Pairs []FarePair `json:"pairs,omitempty"`
}

// FarePair is the price from one stop to a later one.
type FarePair struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// price of legs f..t (1-based, inclusive); false when the pair is not sold.
// All arithmetic is in integers: metres × thousandths of a minor unit a
// kilometre, so the same fare never differs by platform.
func (f Fare) price(stops []Stop, first, last int) (int64, bool) {
	switch f.Kind {
	case PerLeg:
		if last > len(f.Amounts) {
			return 0, false
		}
		var sum int64
		for _, a := range f.Amounts[first-1 : last] {
			sum += a
		}
		return sum, true
	case Distance:
		metres := stops[last].metres() - stops[first-1].metres()
		perKm := int64(math.Round(f.PerKm * 1000))
		return max(f.Base+(metres*perKm+500_000)/1_000_000, f.Minimum), true
	case Table:
		from, to := stops[first-1].ID, stops[last].ID
		for _, p := range f.Pairs {
			if p.From == from && p.To == to {
				return p.Amount, true
			}
		}
	}
	return 0, false
}
