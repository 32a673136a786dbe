// Package layout reads the files that say what a timetable does not: coaches,
// seats, classes, fares and the terms of sale. docs/layout.md describes them,
// docs/layout.schema.json and docs/hall.schema.json check them in an editor.
package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"handler/function/shared/catalog"

	"github.com/goccy/go-yaml"
)

// maxFile is what a layout or hall file may have; the sale document made of it
// is at most as large (api/openapi.yaml: imports 1 MiB).
const maxFile = 1 << 20

// Terms are the terms of sale, the same in a layout and in a hall.
type Terms struct {
	Currency            string   `yaml:"currency"`
	Test                bool     `yaml:"test"`
	Gateways            []string `yaml:"gateways"`
	OpensAt             string   `yaml:"opens_at"`
	OpensDaysBefore     *int     `yaml:"opens_days_before"`
	ClosesMinutesBefore *int     `yaml:"closes_minutes_before"`
	HoldSeconds         *int     `yaml:"hold_seconds"`
	ExtendSeconds       *int     `yaml:"extend_seconds"`
	BookingLimit        *int     `yaml:"booking_limit"`
	AccountLimit        *int     `yaml:"account_limit"`
	Room                *Room    `yaml:"room"`
}

// Room is the waiting room: a new one with these settings, or an existing one.
type Room struct {
	Room             string   `yaml:"room"`
	Mode             *string  `yaml:"mode"`
	DrawOpensAt      string   `yaml:"draw_opens_at"`
	DrawSeconds      *int     `yaml:"draw_seconds"`
	AdmitPerSecond   *float64 `yaml:"admit_per_second"`
	StandbyPerSecond *float64 `yaml:"standby_per_second"`
	LapseSeconds     *int     `yaml:"lapse_seconds"`
	AdmitSeconds     *int     `yaml:"admit_seconds"`
}

// Layout is a train's file.
type Layout struct {
	Terms   `yaml:",inline"`
	Classes []Class `yaml:"classes"`
	Coaches []Coach `yaml:"coaches"`
}

// Class is a seat class with its fare.
type Class struct {
	Class string `yaml:"class"`
	Title string `yaml:"title"`
	Fare  Fare   `yaml:"fare"`
}

// Fare is per_leg (amount, or amounts for each leg), distance or table, in minor
// units.
type Fare struct {
	Kind    string  `yaml:"kind"`
	Amount  *int64  `yaml:"amount"`
	Amounts []int64 `yaml:"amounts"`
	Base    int64   `yaml:"base"`
	PerKm   float64 `yaml:"per_km"`
	Minimum int64   `yaml:"minimum"`
	Pairs   []Pair  `yaml:"pairs"`
}

// Pair prices one pair of stops.
type Pair struct {
	From   string `yaml:"from"`
	To     string `yaml:"to"`
	Amount int64  `yaml:"amount"`
}

// Coach is one coach, or several alike, or a part of one.
type Coach struct {
	Coach      Names               `yaml:"coach"`
	Class      string              `yaml:"class"`
	Rows       Names               `yaml:"rows"`
	Pattern    string              `yaml:"pattern"`
	Skip       Names               `yaml:"skip"`
	Attributes map[string]Selected `yaml:"attributes"`
}

// Hall is a screening's file.
type Hall struct {
	Terms    `yaml:",inline"`
	Title    string      `yaml:"title"`
	Number   string      `yaml:"number"`
	Venue    string      `yaml:"venue"`
	Timezone string      `yaml:"timezone"`
	Starts   string      `yaml:"starts"`
	Ends     string      `yaml:"ends"`
	Classes  []HallClass `yaml:"classes"`
	Sections []Section   `yaml:"sections"`
}

// HallClass is a price class of a hall.
type HallClass struct {
	Class string `yaml:"class"`
	Title string `yaml:"title"`
	Price int64  `yaml:"price"`
}

// Section is a block of rows of a hall. Its name stands before the seat's:
// "Stalls-A7"; without one the seat is "A7".
type Section struct {
	Section     string              `yaml:"section"`
	Class       string              `yaml:"class"`
	Rows        Names               `yaml:"rows"`
	Seats       int                 `yaml:"seats"`
	AislesAfter []int               `yaml:"aisles_after"`
	Skip        Names               `yaml:"skip"`
	Attributes  map[string]Selected `yaml:"attributes"`
}

// Names is one name or a list; ranges such as 1-12 or A-M are spelled out where
// rows are meant. A YAML number counts as its text.
type Names []string

// Selected picks seats: by name (12A), by row (12) or by column (A).
type Selected = Names

// UnmarshalYAML takes a scalar or a list of scalars.
func (n *Names) UnmarshalYAML(unmarshal func(any) error) error {
	var v any
	if err := unmarshal(&v); err != nil {
		return err
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		switch e := e.(type) {
		case string:
			*n = append(*n, e)
		case uint64, int64, int:
			*n = append(*n, fmt.Sprint(e))
		default:
			return fmt.Errorf("must be a name, a whole number or a list of them, not %v", e)
		}
	}
	return nil
}

// Read reads a train's layout file.
func Read(path string) (l Layout, err error) { return l, readFile(path, &l) }

// ReadHall reads a hall file.
func ReadHall(path string) (h Hall, err error) { return h, readFile(path, &h) }

// Parse is Read from bytes; name stands in errors.
func Parse(name string, data []byte) (l Layout, err error) { return l, parse(name, data, &l) }

// ParseHall is ReadHall from bytes.
func ParseHall(name string, data []byte) (h Hall, err error) { return h, parse(name, data, &h) }

func readFile(path string, into any) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	return parse(path, data, into)
}

func parse(name string, data []byte, into any) error {
	if len(data) > maxFile {
		return fmt.Errorf("%s: is larger than 1 MiB", name)
	}
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(into)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: is empty", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return nil
}

// Apply adds the layout's classes, coaches and terms to the document of a run.
func (l Layout) Apply(doc *catalog.Document) error {
	for i, c := range l.Classes {
		fare, err := c.Fare.forLegs(len(doc.Stops) - 1)
		if err != nil {
			return fmt.Errorf("classes[%d].fare: %w", i, err)
		}
		doc.Classes = append(doc.Classes, catalog.Class{ID: c.Class, Title: c.Title, Stock: catalog.Numbered, Fare: fare})
	}
	for i, c := range l.Coaches {
		seats, err := c.seats()
		if err != nil {
			return fmt.Errorf("coaches[%d]: %w", i, err)
		}
		names := c.Coach
		if len(names) == 0 {
			names = Names{""}
		}
		for _, name := range names {
			doc.Coaches = append(doc.Coaches, catalog.Coach{Coach: name, Class: c.Class, Seats: seats})
		}
	}
	return l.Terms.apply(doc, *doc.Stops[0].Departs)
}

func (f Fare) forLegs(legs int) (catalog.Fare, error) {
	fare := catalog.Fare{Kind: catalog.FareKind(f.Kind), Amounts: f.Amounts, Base: f.Base, PerKm: f.PerKm, Minimum: f.Minimum}
	if f.Amount != nil {
		if f.Kind != string(catalog.PerLeg) || len(f.Amounts) > 0 {
			return fare, errors.New("amount is for kind per_leg, in place of amounts")
		}
		for range legs {
			fare.Amounts = append(fare.Amounts, *f.Amount)
		}
	}
	for _, p := range f.Pairs {
		fare.Pairs = append(fare.Pairs, catalog.FarePair{From: p.From, To: p.To, Amount: p.Amount})
	}
	return fare, nil
}

func (t Terms) apply(doc *catalog.Document, departs time.Time) error {
	doc.Currency, doc.Test, doc.Gateways = t.Currency, t.Test, t.Gateways
	doc.HoldSeconds, doc.ExtendSeconds = t.HoldSeconds, t.ExtendSeconds
	doc.BookingLimit, doc.AccountLimit = t.BookingLimit, t.AccountLimit
	if t.OpensAt != "" && t.OpensDaysBefore != nil {
		return errors.New("opens_days_before: give it or opens_at, not both")
	}
	opens, err := moment("opens_at", t.OpensAt)
	if err != nil {
		return err
	}
	doc.OpensAt = opens
	if n := t.OpensDaysBefore; n != nil {
		if *n < 0 || *n > 3650 {
			return errors.New("opens_days_before: must be 0 to 3650")
		}
		at := departs.AddDate(0, 0, -*n)
		doc.OpensAt = &at
	}
	if n := t.ClosesMinutesBefore; n != nil {
		if *n < 0 || *n > 365*24*60 {
			return errors.New("closes_minutes_before: must be 0 to 525600")
		}
		at := departs.Add(-time.Duration(*n) * time.Minute)
		doc.ClosesAt = &at
	}
	if r := t.Room; r != nil {
		draw, err := moment("room.draw_opens_at", r.DrawOpensAt)
		if err != nil {
			return err
		}
		doc.Room = &catalog.RoomWish{
			Room: r.Room,
			RoomSettings: catalog.RoomSettings{
				Mode: r.Mode, DrawOpensAt: draw, DrawSeconds: r.DrawSeconds, AdmitPerSecond: r.AdmitPerSecond,
				StandbyPerSecond: r.StandbyPerSecond, LapseSeconds: r.LapseSeconds, AdmitSeconds: r.AdmitSeconds,
			},
		}
	}
	return nil
}

func moment(field, s string) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, fmt.Errorf("%s: must be a time like 2026-12-24T10:00:00-05:00: %q", field, s)
	}
	return &t, nil
}
