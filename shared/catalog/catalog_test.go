package catalog

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/text"

	"pgregory.net/rapid"
)

func line(n int) []Stop {
	at := time.Date(2026, 12, 24, 10, 0, 0, 0, time.UTC)
	stops := make([]Stop, n)
	for i := range stops {
		t := at.Add(time.Duration(i) * time.Hour)
		stops[i] = Stop{ID: string(rune('A' + i)), Name: "Stop", Timezone: "UTC", Departs: &t, Board: CallYes, Alight: CallYes, Km: float64(i) * 10.5}
	}
	return stops
}

func sale(stops []Stop, classes ...Class) *Sale {
	s := &Sale{Kind: Train, Currency: "JPY", State: Open, Stops: stops, Classes: classes}
	s.index()
	return s
}

func TestPrice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fare  Fare
		f, t  int
		want  int64
		field string // of the refusal
	}{
		{"per leg, one", Fare{Kind: PerLeg, Amounts: []int64{1, 20, 300}}, 2, 2, 20, ""},
		{"per leg, all", Fare{Kind: PerLeg, Amounts: []int64{1, 20, 300}}, 1, 3, 321, ""},
		{"distance, 10.5 km at 12.5", Fare{Kind: Distance, Base: 500, PerKm: 12.5}, 1, 1, 631, ""}, // 631.25
		{"distance, half goes up", Fare{Kind: Distance, PerKm: 0.333}, 1, 1, 3, ""},                // 3.4965
		{"distance, half goes up exactly", Fare{Kind: Distance, PerKm: 1}, 1, 1, 11, ""},           // 10.5
		{"distance, minimum", Fare{Kind: Distance, Base: 5, PerKm: 1, Minimum: 900}, 1, 3, 900, ""},
		{"table", Fare{Kind: Table, Pairs: []FarePair{{"A", "C", 700}}}, 1, 2, 700, ""},
		{"table, pair not sold", Fare{Kind: Table, Pairs: []FarePair{{"A", "C", 700}}}, 1, 3, 0, "to"},
		{"legs beyond", Fare{Kind: PerLeg, Amounts: []int64{1, 20, 300}}, 1, 4, 0, "to"},
		{"field case 55: yen have no cents", Fare{Kind: PerLeg, Amounts: []int64{1935, 0, 0}}, 1, 1, 1935, ""},
	} {
		got, err := sale(line(4), Class{ID: "x", Fare: c.fare}).Price("x", c.f, c.t)
		if c.field != "" {
			wantField(t, err, c.field)
			continue
		}
		if err != nil || got.Amount != c.want {
			t.Errorf("%s: %v, %v; want %d", c.name, got, err, c.want)
		}
	}
	got, _ := sale(line(2), Class{ID: "x", Fare: Fare{Kind: PerLeg, Amounts: []int64{1935}}}).Price("x", 1, 1)
	if got.String() != "JPY 1935" {
		t.Errorf("field case 55: %s", got)
	}
	_, err := sale(line(2)).Price("y", 1, 1)
	wantField(t, err, "class")
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var p *problem.Error
	if !errors.As(err, &p) || len(p.Fields) == 0 || p.Fields[0].Field != field {
		t.Errorf("want a fault of %s, got %v", field, err)
	}
}

// An interval costs the sum of its parts per leg, and no more than that by
// distance but for the base of each part.
func TestPriceAdds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOfN(rapid.Int64Range(0, maxAmount), 100, 100).Draw(t, "amounts")
		stops := make([]Stop, 101)
		for i := range stops {
			stops[i].ID = time.Duration(i).String()
		}
		s := sale(stops, Class{ID: "x", Fare: Fare{Kind: PerLeg, Amounts: amounts}})
		f := rapid.IntRange(1, 99).Draw(t, "f")
		to := rapid.IntRange(f+1, 100).Draw(t, "t")
		cut := rapid.IntRange(f, to-1).Draw(t, "cut")
		whole, err := s.Price("x", f, to)
		left, err1 := s.Price("x", f, cut)
		right, err2 := s.Price("x", cut+1, to)
		if err != nil || err1 != nil || err2 != nil || whole.Amount != left.Amount+right.Amount {
			t.Fatalf("%d..%d cut after %d: %v %v %v", f, to, cut, whole, left, right)
		}
	})
}

func TestInterval(t *testing.T) {
	t.Parallel()
	stops := line(5)
	stops[1].Board, stops[3].Alight, stops[2].Board = CallNo, CallNo, CallRequest
	s := sale(stops)
	for _, c := range []struct {
		from, to, field string
		f, t            int
	}{
		{"A", "E", "", 1, 4}, {"A", "B", "", 1, 1}, {"C", "E", "", 3, 4}, {"D", "E", "", 4, 4},
		{"B", "E", "from", 0, 0}, {"A", "D", "to", 0, 0}, {"E", "A", "to", 0, 0}, {"A", "A", "to", 0, 0},
		{"Z", "A", "from", 0, 0}, {"A", "Z", "to", 0, 0}, {"", "", "from", 0, 0}, {"A", "", "to", 0, 0},
	} {
		f, to, err := s.Interval(c.from, c.to)
		if c.field != "" {
			wantField(t, err, c.field)
		} else if err != nil || f != c.f || to != c.t {
			t.Errorf("%s to %s: %d..%d, %v", c.from, c.to, f, to, err)
		}
	}
	if f, to, err := sale(line(2)).Interval("", ""); err != nil || f != 1 || to != 1 {
		t.Errorf("a sale of one leg needs no stops: %d..%d, %v", f, to, err)
	}
}

func TestOpenAt(t *testing.T) {
	t.Parallel()
	s := sale(line(4))
	first := *s.Stops[0].Departs
	s.Stops[1].Departs = nil
	s.OpensAt, s.ClosesAt, s.DepartsAt = first.Add(-time.Hour), first.Add(150*time.Minute), first
	for _, c := range []struct {
		state State
		after time.Duration // of the first departure
		leg   int
		want  problem.Code
	}{
		{Open, -2 * time.Hour, 1, problem.NotOpenYet},
		{Open, -time.Hour, 1, ""},
		{Open, 0, 1, problem.SaleClosed},
		{Open, 0, 3, ""},                                 // under way: a later stop can still be boarded
		{Open, time.Minute, 2, problem.SaleClosed},       // its time is blank: the last known before counts
		{Open, 150 * time.Minute, 3, problem.SaleClosed}, // closes_at
		{Draft, 0, 3, problem.NotOpenYet},
		{Paused, 0, 3, problem.Paused},
		{Paused, -2 * time.Hour, 3, problem.NotOpenYet},
		{Closed, 0, 3, problem.SaleClosed},
		{Cancelled, 0, 3, problem.SaleClosed},
	} {
		s.State = c.state
		err := s.OpenAt(first.Add(c.after), c.leg)
		if c.want == "" && err != nil || c.want != "" && !problem.Is(err, c.want) {
			t.Errorf("%s, %s after departure, leg %d: %v, want %q", c.state, c.after, c.leg, err, c.want)
		}
	}
}

// places and coaches are each other's inverse.
func TestCoaches(t *testing.T) {
	t.Parallel()
	in := []Coach{
		{Coach: "1", Class: "a", Seats: []Seat{{Seat: "1A", Row: 1, Column: "A"}, {Seat: "1B", Row: 1, Column: "B", Attributes: []string{Aisle}}}},
		{Coach: "1", Class: "b", Seats: []Seat{{Seat: "2A", Row: 2, Column: "A"}}},
		{Coach: "", Class: "b", Seats: []Seat{{Seat: "C7", Row: 3, Column: "7"}}},
	}
	list := places(in, 1)
	if !sameJSON(coaches(list), in) {
		t.Errorf("%+v", coaches(list))
	}
	if list[0].Name() != "1-1A" || list[3].Name() != "C7" || list[3].Number != 4 {
		t.Errorf("%+v", list)
	}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, id, kind, fault string }{
		{`"7"`, "7", "id", ""},
		{`{"kind":"show","title":"x"}`, "", "document", ""},
		{`{"sale":"7","title":"x","room":null}`, "7", "view", ""},
		{`{"kind":"show","nonsense":1}`, "", "", `json: unknown field "nonsense"`},
		{`{"sale":"7","nonsense":1}`, "", "", `json: unknown field "nonsense"`},
		{`{"kind":"show","stops":[{"nonsense":1}]}`, "", "", `json: unknown field "nonsense"`},
	} {
		var target Target
		err := json.Unmarshal([]byte(c.in), &target)
		if c.fault != "" {
			if err == nil || err.Error() != c.fault {
				t.Errorf("%s: %v", c.in, err)
			}
			continue
		}
		kind := "id"
		if target.Document != nil {
			kind = "document"
		} else if target.View != nil {
			kind = "view"
		}
		if err != nil || target.ID != c.id || kind != c.kind {
			t.Errorf("%s: %s %q, %v", c.in, kind, target.ID, err)
		}
	}
	var wish RoomWish
	if err := json.Unmarshal([]byte(`"12"`), &wish); err != nil || wish.Room != "12" {
		t.Errorf("a room by its id: %+v, %v", wish, err)
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "0", "01", "-1", "+1", "1.0", "x", "１", "9999999999999999999"} {
		if n, ok := ParseID(bad); ok {
			t.Errorf("%q is %d", bad, n)
		}
	}
	if n, ok := ParseID("42"); !ok || n != 42 {
		t.Error("42")
	}
}

func TestCursor(t *testing.T) {
	t.Parallel()
	s := &Sale{ID: 7, DepartsAt: time.UnixMicro(123456789)}
	at, id, ok := readCursor(cursor(s))
	if !ok || id != 7 || at != 123456789 || after(s, at, id) || !after(&Sale{ID: 8, DepartsAt: s.DepartsAt}, at, id) {
		t.Error(at, id, ok)
	}
	if _, _, ok := readCursor("bad"); ok {
		t.Error("a made-up cursor was read")
	}
}

// Every text of the catalog's own has a Chinese one.
func TestTexts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`"((?:must|nobody|cannot|has a price|is needed|makes|needs|this class) [^"]*|[A-Z][^"]*\.)"`)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range said.FindAllSubmatch(b, -1) {
			found++
			if s := string(m[1]); !text.Translated(s) {
				t.Errorf("%s: no Chinese for %q", name, s)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d texts found", found)
	}
}
