package layout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"handler/function/demo"
	"handler/function/shared/catalog"
)

func document(stops int) catalog.Document {
	at := time.Date(2026, 12, 24, 10, 0, 0, 0, time.UTC)
	d := catalog.Document{Kind: catalog.Train, Title: "T", ServiceDate: "2026-12-24", Timezone: "UTC"}
	for i := range stops {
		t := at.Add(time.Duration(i) * time.Hour)
		d.Stops = append(d.Stops, catalog.Stop{ID: string(rune('A' + i)), Name: "S", Departs: &t, Km: float64(i)})
	}
	return d
}

func seatNames(d catalog.Document) (names []string) {
	for _, c := range d.Coaches {
		for _, s := range c.Seats {
			names = append(names, catalog.SeatPlace{Coach: c.Coach, Seat: s.Seat}.Name())
		}
	}
	return names
}

func TestDemoTrain(t *testing.T) {
	t.Parallel()
	l, err := Parse("train.yaml", demo.Train())
	if err != nil {
		t.Fatal(err)
	}
	d := document(9)
	if err := l.Apply(&d); err != nil {
		t.Fatal(err)
	}
	d.Normalise(time.Now())
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	if n := len(seatNames(d)); n != 35+64+64+50 {
		t.Errorf("%d seats", n)
	}
	one, four := d.Coaches[0], d.Coaches[3]
	if s := one.Seats[0]; s.Seat != "1A" || s.Row != 1 || s.Column != "A" || !slices.Equal(s.Attributes, []string{"window", "aisle", "table"}) {
		t.Errorf("%+v", s)
	}
	if !slices.Contains(four.Seats[0].Attributes, "accessible") || four.Seats[1].Seat != "1D" {
		t.Errorf("%+v", four.Seats[:2])
	}
	if d.Coaches[1].Coach != "2" || d.Coaches[2].Coach != "3" || d.Coaches[1].Seats[48].Seat != "14A" {
		t.Errorf("%+v", d.Coaches[1].Seats[48])
	}
	if got := d.ClosesAt.Sub(*d.Stops[0].Departs); got != -5*time.Minute {
		t.Errorf("closes %s after departure", got)
	}
}

func TestDemoHall(t *testing.T) {
	t.Parallel()
	h, err := ParseHall("hall.yaml", demo.Hall())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 1, 5, 20, 0, 0, 0, time.UTC)
	if err := h.Begin(at); err != nil {
		t.Fatal(err)
	}
	d, err := h.Document()
	if err != nil {
		t.Fatal(err)
	}
	d.Normalise(time.Now())
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	names := seatNames(d)
	if len(names) != 13*18-2+4*16 || names[0] != "S-A2" || !slices.Contains(names, "B-D16") || d.ServiceDate != "2027-01-05" {
		t.Errorf("%d seats, %s first, on %s", len(names), names[0], d.ServiceDate)
	}
	if d.Stops[1].Arrives.Sub(at) != 125*time.Minute {
		t.Errorf("ends %s", d.Stops[1].Arrives)
	}
	if s := d.Sale(); s.Legs != 1 {
		t.Errorf("%d legs", s.Legs)
	}
}

const plain = `
currency: CAD
gateways: [stripe]
classes: [{class: c, title: C, fare: {kind: per_leg, amount: 100}}]
coaches: [{coach: 1, class: c, rows: 1-2, pattern: A-B}]
`

func TestFares(t *testing.T) {
	t.Parallel()
	for fare, want := range map[string]int64{
		"{kind: per_leg, amount: 100}":                        300,
		"{kind: per_leg, amounts: [1, 2, 3]}":                 6,
		"{kind: distance, base: 10, per_km: 2.5}":             18,
		"{kind: distance, base: 1, per_km: 1, minimum: 50}":   50,
		"{kind: table, pairs: [{from: A, to: D, amount: 7}]}": 7,
	} {
		l, err := Parse("x", []byte(strings.Replace(plain, "{kind: per_leg, amount: 100}", fare, 1)))
		if err != nil {
			t.Fatal(err)
		}
		d := document(4)
		if err := l.Apply(&d); err != nil {
			t.Fatal(err)
		}
		d.Normalise(time.Now())
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Sale().Price("c", 1, 3); err != nil || got.Amount != want {
			t.Errorf("%s: %v %v", fare, got, err)
		}
	}
}

// What is wrong is refused, with its place.
func TestBadLayouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{"currency: CAD", "colour: red", "colour"},
		{"currency: CAD", "currency: [CAD", "x:"},
		{"rows: 1-2", "rows: 2-1", "coaches[0]: rows: must be a rising range"},
		{"rows: 1-2", "rows: 1-9999", "coaches[0]: rows: must be a rising range of at most"},
		{"rows: 1-2", "rows: ''", "coaches[0]: rows"},
		{"rows: 1-2", "rows: {a: 1}", "must be a name"},
		{"pattern: A-B", "pattern: '--'", "coaches[0]: pattern"},
		{"pattern: A-B", "pattern: A B", "coaches[0]: pattern"},
		{"pattern: A-B", "pattern: A-B, skip: 9Z", `coaches[0]: skip: no seat, row or column is "9Z"`},
		{"pattern: A-B", "pattern: A-B, skip: [A, B]", "coaches[0]: has no seats"},
		{"pattern: A-B", "pattern: A-B, attributes: {jacuzzi: 1A}", "coaches[0]: attributes: must be of"},
		{"pattern: A-B", "pattern: A-B, attributes: {window: 7}", `coaches[0]: attributes.window: no seat, row or column is "7"`},
		{"amount: 100", "amount: 100, amounts: [1]", "classes[0].fare: amount is for"},
		{"gateways: [stripe]", "gateways: [stripe]\nopens_at: tomorrow", "opens_at: must be a time"},
		{"gateways: [stripe]", "gateways: [stripe]\nopens_at: 2026-01-01T00:00:00Z\nopens_days_before: 3", "opens_days_before"},
		{"gateways: [stripe]", "gateways: [stripe]\ncloses_minutes_before: -1", "closes_minutes_before"},
		// What the platform refuses too, by its own rules.
		{"class: c, rows", "class: d, rows", "coaches[0].class"},
		{"currency: CAD", "currency: XXY", "currency"},
		{"gateways: [stripe]", "gateways: [sandbox]", "gateways"},
		{"rows: 1-2", "rows: '1, 1'", "coaches[0].seats[2].seat"},
		{"gateways: [stripe]", "gateways: [stripe]\nroom: {mode: maybe}", "room.mode"},
	} {
		text := strings.Replace(plain, c.from, c.to, 1)
		if text == plain {
			t.Fatalf("the layout has no %q", c.from)
		}
		l, err := Parse("x", []byte(text))
		d := document(4)
		if err == nil {
			err = l.Apply(&d)
		}
		if err == nil {
			d.Normalise(time.Now())
			err = d.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v; want %q", c.to, c.from, err, c.want)
		}
	}
	for _, text := range []string{"", "# nothing\n", "just text", strings.Repeat("a", maxFile+1)} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "x.yaml: ") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1-3": "1 2 3", "A-C": "A B C", "1-2, 14,16-17": "1 2 14 16 17", "7": "7", "AA": "AA",
	} {
		got, err := spell(Names{in})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func FuzzLayout(f *testing.F) {
	f.Add(string(demo.Train()))
	f.Add(plain)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse("x", []byte(text))
		if err != nil {
			return
		}
		d := document(4)
		if l.Apply(&d) == nil {
			d.Normalise(time.Now())
			_ = d.Validate()
		}
	})
}
