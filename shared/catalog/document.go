package catalog

import (
	"math"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones must load in images that have none
	"unicode"
	"unicode/utf8"
)

// Limits of a sale document. The body of a catalog POST is at most 1 MiB
// (api/openapi.yaml), which is what bounds a single document first.
const (
	maxLegs         = 100    // DESIGN 1: numbered stock has at most 100 legs
	MaxSeats        = 20_000 // a large hall; the map of it is 5 kB
	maxClasses      = 20
	maxCoaches      = 400 // rows of sections, cars of a train
	maxPairs        = maxLegs * (maxLegs + 1) / 2
	maxText         = 200
	maxID           = 64
	maxStopID       = 100 // GTFS ids may be any text
	maxName         = 16  // coach and seat names: they stand on tickets
	maxRow          = 10_000
	maxAmount       = 10_000_000_000 // minor units a seat: keeps sums of 100 legs × 100 seats inside int64
	maxPerKm        = 1_000_000_000  // minor units: × maxKm in thousandths stays inside int64
	maxKm           = 100_000        // twice and a half around the earth
	maxHoldSeconds  = 3600           // rail preset is 1,800
	maxSeatsBooking = 100            // one booking
	maxSeatsAccount = 1000           // a seller's account
	defaultHold     = 300            // DESIGN 9
	defaultExtend   = 300
	defaultLimit    = 6
	minYear         = 2000 // RFC 3339 has four digits; what is older is a mistake
	maxYear         = minYear + 400
	maxFaults       = 20                  // errors named in one answer
	maxTripDays     = 31 * 24 * time.Hour // the longest train runs four days; a month is a mistake
)

// gateways that may be named; sandbox only by a test sale (DESIGN 7).
var gatewayNames = []string{"sandbox", "stripe", "razorpay"}

// Document is the sale as an importer writes it and POST catalog takes it.
// Seats are numbered 1… in the order of coaches.
type Document struct {
	Kind          Kind       `json:"kind"`
	Title         string     `json:"title"`
	Number        string     `json:"number"`
	ServiceDate   string     `json:"service_date"`
	Timezone      string     `json:"timezone"`
	State         State      `json:"state,omitempty"` // draft (default) or open
	Stops         []Stop     `json:"stops"`
	Classes       []Class    `json:"classes"`
	Coaches       []Coach    `json:"coaches,omitempty"`
	Currency      string     `json:"currency"`
	OpensAt       *time.Time `json:"opens_at,omitempty"`  // default: at once
	ClosesAt      *time.Time `json:"closes_at,omitempty"` // default: the last departure
	HoldSeconds   *int       `json:"hold_seconds,omitempty"`
	ExtendSeconds *int       `json:"extend_seconds,omitempty"`
	BookingLimit  *int       `json:"booking_limit,omitempty"`
	AccountLimit  *int       `json:"account_limit,omitempty"`
	Gateways      []string   `json:"gateways"`
	Test          bool       `json:"test,omitempty"`
	Room          *RoomWish  `json:"room,omitempty"` // nil: no waiting room
}

// Normalise fills what the document left out with its defaults and sorts
// attributes into their listed order, so that equal sales are equal documents.
func (d *Document) Normalise(now time.Time) {
	setDefault(&d.HoldSeconds, defaultHold)
	setDefault(&d.ExtendSeconds, defaultExtend)
	setDefault(&d.BookingLimit, defaultLimit)
	if d.AccountLimit == nil {
		limit := max(defaultLimit, *d.BookingLimit)
		d.AccountLimit = &limit
	}
	if d.State == "" {
		d.State = Draft
	}
	if d.ClosesAt == nil {
		if at := d.lastDeparture(); !at.IsZero() {
			d.ClosesAt = &at
		}
	}
	if d.OpensAt == nil {
		at := now.UTC().Truncate(time.Second)
		if d.ClosesAt != nil && !at.Before(*d.ClosesAt) {
			at = d.ClosesAt.AddDate(0, 0, -1) // a run of the past can be looked at
		}
		d.OpensAt = &at
	}
	for i := range d.Stops {
		if d.Stops[i].Board == "" {
			d.Stops[i].Board = CallYes
		}
		if d.Stops[i].Alight == "" {
			d.Stops[i].Alight = CallYes
		}
		if d.Stops[i].Timezone == "" {
			d.Stops[i].Timezone = d.Timezone
		}
	}
	for i := range d.Coaches {
		for j := range d.Coaches[i].Seats {
			slices.SortFunc(d.Coaches[i].Seats[j].Attributes, func(a, b string) int {
				return slices.Index(Attributes, a) - slices.Index(Attributes, b)
			})
		}
	}
}

func setDefault(field **int, value int) {
	if *field == nil {
		*field = &value
	}
}

// departure is the first published departure; of a stay, the end of its last
// night.
func (d *Document) departure() time.Time {
	if d.Kind == Stay {
		return d.end()
	}
	for _, s := range d.Stops {
		if s.Departs != nil {
			return *s.Departs
		}
	}
	return time.Time{}
}

// lastDeparture is when the last boarding stop is left: the latest that anything
// can be sold.
func (d *Document) lastDeparture() time.Time {
	for i := len(d.Stops) - 2; i >= 0 && d.Kind != Stay; i-- {
		if s := d.Stops[i]; s.Board != CallNo && s.Departs != nil {
			return *s.Departs
		}
	}
	return d.end()
}

// end is the last time of the sale.
func (d *Document) end() time.Time {
	for i := len(d.Stops) - 1; i >= 0; i-- {
		if at := d.Stops[i].Departs; at != nil {
			return *at
		}
		if at := d.Stops[i].Arrives; at != nil {
			return *at
		}
	}
	return time.Time{}
}

// Validate checks everything a document says; call Normalise first. The error
// is "invalid" and names each field at fault (the first 20).
func (d *Document) Validate() error {
	var f faults
	f.check(slices.Contains(Kinds, d.Kind), "kind", "must be train, show or stay")
	f.text("title", d.Title, 1, maxText)
	f.text("number", d.Number, 0, maxID)
	_, err := time.Parse(time.DateOnly, d.ServiceDate)
	f.check(err == nil, "service_date", "must be a date like 2026-12-24")
	f.check(validZone(d.Timezone), "timezone", "must be an IANA time zone")
	f.check(d.State == Draft || d.State == Open, "state", "must be draft or open")
	d.validateStops(&f)
	d.validateClasses(&f)
	d.validateCoaches(&f)
	d.validateTerms(&f)
	if d.Room != nil {
		d.Room.validate(f.at("room"))
	}
	return f.err()
}

func (d *Document) validateStops(f *faults) {
	if len(d.Stops) < 2 || len(d.Stops) > maxLegs+1 {
		f.add("stops", "must have 2 to %d entries", maxLegs+1)
		return
	}
	if d.Kind == Show {
		f.check(len(d.Stops) == 2, "stops", "must have 2 entries for a show")
	}
	seen := make(map[string]bool, len(d.Stops))
	var last time.Time
	var km float64
	boards, alights := false, false
	for i, s := range d.Stops {
		at := f.in("stops", i)
		at.text("id", s.ID, 1, maxStopID)
		at.check(!seen[s.ID], "id", "must be unique in the sale")
		seen[s.ID] = true
		at.text("name", s.Name, 1, maxText)
		at.check(validZone(s.Timezone), "timezone", "must be an IANA time zone")
		for _, t := range []struct {
			field string
			time  *time.Time
		}{{"arrives", s.Arrives}, {"departs", s.Departs}} {
			if t.time == nil {
				continue
			}
			at.check(validTime(*t.time), t.field, "must be between the years 2000 and 2399")
			at.check(last.IsZero() || !t.time.Before(last), t.field, "must not be before the time before it")
			at.check(last.IsZero() || d.Kind == Stay || t.time.Sub(last) <= maxTripDays, t.field, "must be within 31 days of the time before it")
			last = *t.time
		}
		at.call("board", s.Board)
		at.call("alight", s.Alight)
		boards = boards || (s.Board != CallNo && i < len(d.Stops)-1)
		alights = alights || (s.Alight != CallNo && i > 0)
		at.check(s.Km >= 0 && s.Km <= maxKm && !math.IsNaN(s.Km), "km", "must be 0 to %d", maxKm)
		at.check(s.Km >= km, "km", "must not be less than at the stop before")
		km = s.Km
	}
	f.check(boards, "stops", "must have a stop where one may board")
	f.check(alights, "stops", "must have a stop where one may alight")
	if d.departure().IsZero() {
		f.in("stops", 0).add("departs", "must be given: the sale ends with it")
	}
}

func (d *Document) validateClasses(f *faults) {
	if len(d.Classes) < 1 || len(d.Classes) > maxClasses {
		f.add("classes", "must have 1 to %d entries", maxClasses)
		return
	}
	index := make(map[string]int, len(d.Stops))
	for i, s := range d.Stops {
		index[s.ID] = i
	}
	seen := make(map[string]bool, len(d.Classes))
	for i, c := range d.Classes {
		at := f.in("classes", i)
		at.id("class", c.ID)
		at.check(!seen[c.ID], "class", "must be unique in the sale")
		seen[c.ID] = true
		at.text("title", c.Title, 1, maxText)
		at.check(c.Stock == Numbered, "stock", "must be numbered")
		c.Fare.validate(at.sub("fare"), d.Stops, index)
	}
}

func (fare Fare) validate(f faultsAt, stops []Stop, index map[string]int) {
	perLeg, distance, table := len(fare.Amounts) > 0, fare.Base != 0 || fare.PerKm != 0 || fare.Minimum != 0, len(fare.Pairs) > 0
	switch fare.Kind {
	case PerLeg:
		f.check(!distance && !table, "kind", "must have amounts alone when per_leg")
		f.check(len(fare.Amounts) == len(stops)-1, "amounts", "must have one entry a leg: %d", len(stops)-1)
		for i, a := range fare.Amounts {
			f.in("amounts", i).amount("", a)
		}
	case Distance:
		f.check(!perLeg && !table, "kind", "must have base, per_km and minimum alone when distance")
		f.amount("base", fare.Base)
		f.amount("minimum", fare.Minimum)
		f.check(fare.PerKm >= 0 && fare.PerKm <= maxPerKm, "per_km", "must be 0 to %d", maxPerKm)
		if n := len(stops); n > 0 && fare.PerKm >= 0 && stops[n-1].Km >= 0 {
			f.check(float64(fare.Base)+fare.PerKm*stops[n-1].Km <= maxAmount, "per_km", "makes the whole route cost more than %d", maxAmount)
			f.check(fare.PerKm == 0 || stops[n-1].Km > 0, "kind", "needs km at the stops")
		}
	case Table:
		f.check(!perLeg && !distance, "kind", "must have pairs alone when table")
		if len(fare.Pairs) == 0 || len(fare.Pairs) > maxPairs {
			f.add("pairs", "must have 1 to %d entries", maxPairs)
			return
		}
		seen := make(map[FarePair]bool, len(fare.Pairs))
		for i, p := range fare.Pairs {
			at := f.in("pairs", i)
			from, known := index[p.From]
			at.check(known, "from", "must be the id of a stop of this sale")
			to, alsoKnown := index[p.To]
			at.check(alsoKnown, "to", "must be the id of a stop of this sale")
			at.check(!known || !alsoKnown || from < to, "to", "must be a later stop than from")
			at.amount("amount", p.Amount)
			pair := FarePair{From: p.From, To: p.To}
			at.check(!seen[pair], "to", "has a price for this pair already")
			seen[pair] = true
		}
	default:
		f.add("kind", "must be per_leg, distance or table")
	}
}

func (d *Document) validateCoaches(f *faults) {
	seats := make(map[string]int)
	for _, c := range d.Classes {
		seats[c.ID] = 0
	}
	validateCoaches(f.at(""), d.Coaches, seats, 0, nil)
	for i, c := range d.Classes {
		f.in("classes", i).check(seats[c.ID] > 0 || len(d.Coaches) > maxCoaches, "class", "must have seats in the coaches")
	}
}

// validateCoaches counts the seats of each class into seats, whose keys are the
// classes there are. There are already total seats, and taken says which shown
// names they have.
func validateCoaches(f faultsAt, list []Coach, seats map[string]int, total int, taken func(string) bool) {
	if len(list) < 1 || len(list) > maxCoaches {
		f.add("coaches", "must have 1 to %d entries", maxCoaches)
		return
	}
	names := make(map[string]bool)
	for i, c := range list {
		if total = validateCoach(f.in("coaches", i), c, seats, total, names, taken); total > MaxSeats {
			return
		}
	}
}

// validateCoach checks one coach and returns the seats there are with it.
func validateCoach(at faultsAt, c Coach, seats map[string]int, total int, names map[string]bool, taken func(string) bool) int {
	at.label("coach", c.Coach, 0)
	_, ok := seats[c.Class]
	at.check(ok, "class", "must be a class of this sale")
	total += len(c.Seats)
	if len(c.Seats) == 0 || total > MaxSeats {
		at.add("seats", "must have at least 1 entry, and the sale at most %d seats", MaxSeats)
		return total
	}
	if ok {
		seats[c.Class] += len(c.Seats)
	}
	for j, s := range c.Seats {
		seat := at.in("seats", j)
		seat.label("seat", s.Seat, 1)
		name := SeatPlace{Coach: c.Coach, Seat: s.Seat}.Name()
		seat.check(!names[name] && (taken == nil || !taken(name)), "seat", "must be unique in the sale")
		names[name] = true
		seat.check(s.Row >= 0 && s.Row <= maxRow, "row", "must be 0 to %d", maxRow)
		seat.label("column", s.Column, 0)
		for k, a := range s.Attributes {
			if !slices.Contains(Attributes, a) || slices.Contains(s.Attributes[:k], a) {
				seat.add("attributes", "must be different ones of %s", strings.Join(Attributes, ", "))
				break
			}
		}
	}
	return total
}

func (d *Document) validateTerms(f *faults) {
	f.check(validCurrency(d.Currency), "currency", "must be an ISO 4217 code")
	last := d.lastDeparture()
	if d.OpensAt != nil && d.ClosesAt != nil {
		validateWindow(f.at(""), *d.OpensAt, *d.ClosesAt, last)
	} else if d.ClosesAt == nil && !last.IsZero() {
		f.add("closes_at", "must be given")
	}
	validateNumbers(f.at(""), d.HoldSeconds, d.ExtendSeconds, d.BookingLimit, d.AccountLimit)
	validateGateways(f.at(""), d.Gateways, d.Test)
}

func validateNumbers(f faultsAt, hold, extend, booking, account *int) {
	f.between("hold_seconds", hold, 1, maxHoldSeconds)
	f.between("extend_seconds", extend, 0, maxHoldSeconds)
	f.between("booking_limit", booking, 1, maxSeatsBooking)
	f.between("account_limit", account, 1, maxSeatsAccount)
	f.check(booking == nil || account == nil || *account >= *booking, "account_limit", "must be at least booking_limit")
}

func validateWindow(f faultsAt, opens, closes, last time.Time) {
	f.check(validTime(opens), "opens_at", "must be between the years 2000 and 2399")
	f.check(validTime(closes), "closes_at", "must be between the years 2000 and 2399")
	f.check(opens.Before(closes), "closes_at", "must be after opens_at")
	f.check(last.IsZero() || !closes.After(last), "closes_at", "must not be after the last departure")
}

func validateGateways(f faultsAt, list []string, test bool) {
	if len(list) == 0 || len(list) > len(gatewayNames) {
		f.add("gateways", "must have 1 to %d entries", len(gatewayNames))
		return
	}
	for i, g := range list {
		if !slices.Contains(gatewayNames, g) || slices.Contains(list[:i], g) {
			f.add("gateways", "must be different ones of %s", strings.Join(gatewayNames, ", "))
			break
		}
		f.check(g != "sandbox" || test, "gateways", "may name sandbox only when test is true")
	}
}

func validTime(t time.Time) bool { return t.Year() >= minYear && t.Year() < maxYear }

// validZone refuses what LoadLocation takes but is no IANA name.
func validZone(name string) bool {
	if name == "" || name == "Local" || len(name) > maxID {
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

// validText: trimmed, printable UTF-8 of min to most runes. Control characters
// would break mails and tickets; joiners inside scripts are kept.
func validText(s string, least, most int) bool {
	n := utf8.RuneCountInString(s)
	return utf8.ValidString(s) && n >= least && n <= most && s == strings.TrimSpace(s) &&
		!strings.ContainsFunc(s, unicode.IsControl)
}

// validID is what a class or coach may be called: printable, without spaces or
// braces, as it stands in Redis keys.
func validID(s string) bool {
	return validText(s, 1, maxID) && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || r == '{' || r == '}'
	})
}

// Sale builds the sale a valid document describes, without ids: for prices and
// intervals before it is stored, and for tests.
func (d *Document) Sale() *Sale {
	s := &Sale{
		Kind: d.Kind, Title: d.Title, Number: d.Number, ServiceDate: d.ServiceDate, Timezone: d.Timezone,
		State: d.State, Stops: d.Stops, Classes: d.Classes, Places: places(d.Coaches, 1), Currency: d.Currency,
		OpensAt: *d.OpensAt, ClosesAt: *d.ClosesAt, DepartsAt: d.departure(),
		HoldSeconds: *d.HoldSeconds, ExtendSeconds: *d.ExtendSeconds,
		BookingLimit: *d.BookingLimit, AccountLimit: *d.AccountLimit,
		Gateways: d.Gateways, Test: d.Test, Version: 1,
	}
	s.index()
	return s
}
