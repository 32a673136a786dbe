package gtfs

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"handler/function/demo"
	"handler/function/shared/catalog"
)

// small is a feed of one trip that calls twice at B; a test changes it.
func small() map[string]string {
	return map[string]string{
		"agency.txt":     "agency_id,agency_name,agency_url,agency_timezone\na,Line,https://example.org,America/Toronto\n",
		"stops.txt":      "stop_id,stop_name,stop_lat,stop_lon,location_type,parent_station,stop_timezone\nA,Alpha,45,-73,,,\nB,Bêta,46,-72,0,,America/Halifax\nC,Gamma,47,-71,0,S,America/Toronto\nS,Station,47,-71,1,,America/Winnipeg\n",
		"routes.txt":     "route_id,agency_id,route_short_name,route_long_name,route_type\nr,a,R,Route,2\n",
		"trips.txt":      "route_id,service_id,trip_id,trip_short_name\nr,s,t,15\n",
		"calendar.txt":   "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,start_date,end_date\ns,1,1,1,1,1,1,0,20260101,20261231\n",
		"stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence,pickup_type,drop_off_type\nt,10:00:00,10:00:00,A,1,0,1\nt,11:00:00,11:05:00,B,5,2,3\nt,,,C,7,,\nt,107:00:00,107:00:00,B,20,1,0\n",
	}
}

func open(files map[string]string) (*Feed, error) {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Read(m, "")
}

func must(t *testing.T, files map[string]string) *Feed {
	t.Helper()
	f, err := open(files)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Field case 53: times across the change of the clocks.
func TestSale(t *testing.T) {
	t.Parallel()
	doc, warnings, err := must(t, small()).Sale("t", "2026-10-28", "2026-10-01")
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	if doc.Title != "Alpha – Bêta" || doc.Number != "15" || doc.ServiceDate != "2026-10-28" || doc.Timezone != "America/Toronto" {
		t.Errorf("%+v", doc)
	}
	want := []struct {
		id, zone, arrives, departs string
		board, alight              catalog.Call
	}{
		{"A", "America/Toronto", "", "2026-10-28T10:00:00-04:00", "yes", "no"},
		{"B", "America/Halifax", "2026-10-28T12:00:00-03:00", "2026-10-28T12:05:00-03:00", "request", "request"},
		{"C", "America/Winnipeg", "", "", "yes", "yes"},
		{"B#2", "America/Halifax", "2026-11-01T11:00:00-04:00", "", "no", "yes"},
	}
	for i, w := range want {
		s := doc.Stops[i]
		if s.ID != w.id || s.Timezone != w.zone || show(s.Arrives) != w.arrives || show(s.Departs) != w.departs || s.Board != w.board || s.Alight != w.alight {
			t.Errorf("stop %d: %s %s %s %s %s %s", i, s.ID, s.Timezone, show(s.Arrives), show(s.Departs), s.Board, s.Alight)
		}
	}
	toronto := doc.Stops[3].Arrives.In(doc.Stops[0].Departs.Location())
	if show(&toronto) != "2026-11-01T10:00:00-05:00" {
		t.Errorf("107:00 of 2026-10-28 is %s", show(&toronto))
	}
	if doc.Stops[1].Km < 130 || doc.Stops[1].Km > 140 || doc.Stops[3].Km < doc.Stops[2].Km {
		t.Errorf("great circles: %v", doc.Stops)
	}
}

func show(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}

// In spring the day has 23 hours: noon minus 12 hours is 23:00 of the day before.
func TestSpring(t *testing.T) {
	t.Parallel()
	files := small()
	files["stop_times.txt"] = strings.ReplaceAll(files["stop_times.txt"], "t,10:00:00,10:00:00", "t,1:00:00,1:00:00")
	files["calendar.txt"] = strings.ReplaceAll(files["calendar.txt"], "1,0,2026", "1,1,2026")
	doc, _, err := must(t, files).Sale("t", "2026-03-08", "2026-03-01")
	if err != nil || show(doc.Stops[0].Departs) != "2026-03-08T00:00:00-05:00" || show(doc.Stops[1].Arrives) != "2026-03-08T12:00:00-03:00" {
		t.Errorf("%v %s %s", err, show(doc.Stops[0].Departs), show(doc.Stops[1].Arrives))
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for name, perKm := range map[string]float64{"km": 1, "metres": 1000, "miles": 0.621371, "feet": 3280.84} {
		for _, detour := range []float64{1.0, 1.2, 1.5} {
			if name == "miles" && detour == 1.5 {
				continue // 0.93: still told apart by 0.98
			}
			if got := unitsPerKm(perKm * detour); got != perKm {
				t.Errorf("%s with a detour of %v is taken for %v a km", name, detour, got)
			}
		}
	}
}

func TestServices(t *testing.T) {
	t.Parallel()
	files := small()
	files["calendar_dates.txt"] = "service_id,date,exception_type\ns,20261024,2\ns,20261025,1\n"
	f := must(t, files)
	for date, runs := range map[string]bool{
		"2026-10-23": true, "2026-10-24": false, "2026-10-25": true, // a Sunday
		"2026-11-01": false, "2025-12-31": false, "2026-12-31": true, "2027-01-01": false,
	} {
		_, _, err := f.Sale("t", date, "2026-10-01")
		if (err == nil) != runs {
			t.Errorf("%s: %v", date, err)
		}
	}
	_, _, err := f.Sale("t", "2026-10-24", "2026-10-01")
	wantFault(t, err, "trips.txt", 2, "service_id", "it runs next on 2026-10-25")
	delete(files, "calendar.txt")
	if _, _, err := must(t, files).Sale("t", "2026-10-25", "2026-10-01"); err != nil {
		t.Errorf("calendar_dates.txt alone: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	files := small()
	files["feed_info.txt"] = "feed_publisher_name,feed_publisher_url,feed_lang,feed_start_date,feed_end_date\nX,https://example.org,en,20260601,20261101\n"
	for _, c := range []struct{ date, today, want string }{
		{"2026-10-28", "2026-10-01", ""},
		{"2026-11-02", "2026-10-01", "feed_info.txt:2: feed_end_date"},
		{"2026-10-28", "2026-11-02", "feed_info.txt:2: feed_end_date"},
		{"2026-05-28", "2026-10-01", "feed_info.txt:2: feed_start_date"},
	} {
		_, warnings, err := must(t, files).Sale("t", c.date, c.today)
		if got := strings.Join(warnings, "; "); err != nil || !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s asked on %s: %q, %v", c.date, c.today, got, err)
		}
	}
}

func wantFault(t *testing.T, err error, file string, line int, field, detail string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.File != file || e.Line != line || e.Field != field || !strings.Contains(e.Detail, detail) {
		t.Errorf("want %s:%d: %s: …%s…, got %v", file, line, field, detail, err)
	}
}

// Every kind of bad feed is refused with file, line and field.
func TestBadFeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file, from, to string
		wantFile             string
		line                 int
		field, detail        string
	}{
		{"no file", "stop_times.txt", "", "", "stop_times.txt", 0, "", "is missing"},
		{"no agency", "agency.txt", "", "", "agency.txt", 0, "", "is missing"},
		{"no calendar", "calendar.txt", "", "", "trips.txt", 2, "service_id", "is in neither"},
		{"empty", "stops.txt", "*", "", "stops.txt", 1, "", "has no header"},
		{"column missing", "stop_times.txt", "stop_sequence", "sequence", "stop_times.txt", 1, "stop_sequence", "missing"},
		{"column twice", "stop_times.txt", "pickup_type", "stop_id", "stop_times.txt", 1, "stop_id", "twice"},
		{"field missing", "stop_times.txt", "t,11:00:00,11:05:00,B,5,2,3", "t,11:00:00,11:05:00,B,5,2", "stop_times.txt", 3, "", "has 6 fields"},
		{"field too many", "stops.txt", "B,Bêta,", "B,Bê,ta,", "stops.txt", 3, "", "has 8 fields"},
		{"minutes", "stop_times.txt", "11:05:00", "11:65:00", "stop_times.txt", 3, "departure_time", "25:10:00"},
		{"no seconds", "stop_times.txt", "11:00:00", "11:00", "stop_times.txt", 3, "arrival_time", "25:10:00"},
		{"negative", "stop_times.txt", "11:00:00", "-1:00:00", "stop_times.txt", 3, "arrival_time", "25:10:00"},
		{"am", "stop_times.txt", "11:00:00", "11:00:00 AM", "stop_times.txt", 3, "arrival_time", "25:10:00"},
		{"a year long", "stop_times.txt", "107:00:00,107", "900:00:00,900", "stop_times.txt", 5, "arrival_time", "25:10:00"},
		{"leaves before it comes", "stop_times.txt", "11:05:00", "10:55:00", "stop_times.txt", 3, "departure_time", "before the arrival"},
		{"comes before the last", "stop_times.txt", "107:00:00,107:00:00", "11:04:00,107:00:00", "stop_times.txt", 5, "arrival_time", "before the time at the stop before"},
		{"stop unknown", "stop_times.txt", "11:05:00,B", "11:05:00,X", "stop_times.txt", 3, "stop_id", `"X"`},
		{"stop is a station", "stop_times.txt", "11:05:00,B", "11:05:00,S", "stop_times.txt", 3, "stop_id", "location_type 0"},
		{"trip unknown", "stop_times.txt", "t,11:00", "u,11:00", "stop_times.txt", 3, "trip_id", `"u"`},
		{"sequence twice", "stop_times.txt", "C,7", "C,5", "stop_times.txt", 4, "stop_sequence", "twice"},
		{"sequence no number", "stop_times.txt", "C,7", "C,x", "stop_times.txt", 4, "stop_sequence", "whole number"},
		{"pickup", "stop_times.txt", "B,5,2", "B,5,4", "stop_times.txt", 3, "pickup_type", "0 to 3"},
		{"drop-off", "stop_times.txt", "5,2,3", "5,2,x", "stop_times.txt", 3, "drop_off_type", "0 to 3"},
		{"zone", "agency.txt", "America/Toronto", "America/Gotham", "agency.txt", 2, "agency_timezone", "Gotham"},
		{"stop zone", "stops.txt", "America/Halifax", "UTC+3", "stops.txt", 3, "stop_timezone", "UTC+3"},
		{"latitude", "stops.txt", "Bêta,46", "Bêta,146", "stops.txt", 3, "stop_lat", "-90 to 90"},
		{"longitude", "stops.txt", "46,-72", "46,west", "stops.txt", 3, "stop_lon", "-180 to 180"},
		{"stop twice", "stops.txt", "C,Gamma", "B,Gamma", "stops.txt", 4, "stop_id", "twice"},
		{"no name", "stops.txt", "C,Gamma", "C,", "stops.txt", 4, "stop_name", "empty"},
		{"no stop id", "stops.txt", "C,Gamma", ",Gamma", "stops.txt", 4, "stop_id", "empty"},
		{"route unknown", "trips.txt", "r,s,t", "q,s,t", "trips.txt", 2, "route_id", `"q"`},
		{"service unknown", "trips.txt", "r,s,t", "r,q,t", "trips.txt", 2, "service_id", `"q"`},
		{"trip twice", "trips.txt", "r,s,t,15\n", "r,s,t,15\nr,s,t,16\n", "trips.txt", 3, "trip_id", "twice"},
		{"agency unknown", "routes.txt", "r,a", "r,b", "routes.txt", 2, "agency_id", `"b"`},
		{"day", "calendar.txt", "s,1,1", "s,1,2", "calendar.txt", 2, "tuesday", "0 or 1"},
		{"date", "calendar.txt", "20261231", "20261331", "calendar.txt", 2, "end_date", "20261224"},
		{"not UTF-8", "stops.txt", "Bêta", "B\xeata", "stops.txt", 3, "stop_name", "UTF-8"},
		{"quote", "stops.txt", "Bêta", "\"Bêta", "stops.txt", 3, "", "is not CSV"},
		{"bare quote", "stops.txt", "Bêta", "B\"ta", "stops.txt", 3, "", "is not CSV"},
	} {
		files := small()
		switch {
		case c.from == "":
			delete(files, c.file)
		case c.from == "*":
			files[c.file] = c.to
		case !strings.Contains(files[c.file], c.from):
			t.Fatalf("%s: the feed has no %q", c.name, c.from)
		default:
			files[c.file] = strings.Replace(files[c.file], c.from, c.to, 1)
		}
		_, err := open(files)
		t.Run(c.name, func(t *testing.T) { wantFault(t, err, c.wantFile, c.line, c.field, c.detail) })
	}
}

// Faults that only the run of a trip shows.
func TestBadTrips(t *testing.T) {
	t.Parallel()
	files := small()
	files["frequencies.txt"] = "trip_id,start_time,end_time,headway_secs\nt,07:00:00,23:00:00,1800\n"
	_, _, err := must(t, files).Sale("t", "2026-10-28", "2026-10-01")
	wantFault(t, err, "frequencies.txt", 2, "trip_id", "repeats by frequency")
	_, _, err = must(t, small()).Sale("none", "2026-10-28", "2026-10-01")
	wantFault(t, err, "trips.txt", 0, "trip_id", "none")
	for from, want := range map[string]struct {
		to    string
		line  int
		field string
	}{
		"t,10:00:00,10:00:00":   {"t,,", 2, "departure_time"},
		"t,107:00:00,107:00:00": {"t,,", 5, "arrival_time"},
	} {
		files := small()
		files["stop_times.txt"] = strings.Replace(files["stop_times.txt"], from, want.to, 1)
		_, _, err := must(t, files).Sale("t", "2026-10-28", "2026-10-01")
		wantFault(t, err, "stop_times.txt", want.line, want.field, "must not be blank")
	}
	files = small()
	files["stops.txt"] = strings.Replace(files["stops.txt"], "0,S,", "0,X,", 1)
	_, _, err = must(t, files).Sale("t", "2026-10-28", "2026-10-01")
	wantFault(t, err, "stop_times.txt", 4, "stop_id", "parent_station")
	files["stop_times.txt"] = "trip_id,arrival_time,departure_time,stop_id,stop_sequence\nt,10:00:00,10:00:00,A,1\n"
	_, _, err = must(t, files).Sale("t", "2026-10-28", "2026-10-01")
	wantFault(t, err, "trips.txt", 2, "trip_id", "fewer than two stops")
}

// A byte order mark, CRLF, quotes, spaces, blank lines and columns nobody knows
// change nothing.
func TestDress(t *testing.T) {
	t.Parallel()
	files := small()
	for name, text := range files {
		files[name] = "\xef\xbb\xbf" + strings.ReplaceAll(text, "\n", "\r\n") + "\r\n"
	}
	files["stops.txt"] = strings.Replace(files["stops.txt"], "Bêta", `"Bêta, ""la"" gare"`, 1)
	files["stops.txt"] = strings.Replace(files["stops.txt"], "stop_id,", " stop_id ,", 1)
	files["stop_times.txt"] = strings.Replace(files["stop_times.txt"], "10:00:00", " 10:00:00", 1)
	doc, _, err := must(t, files).Sale("t", "2026-10-28", "2026-10-01")
	if err != nil || doc.Stops[1].Name != `Bêta, "la" gare` {
		t.Errorf("%v %+v", err, doc.Stops)
	}
}

func TestZip(t *testing.T) {
	t.Parallel()
	pack := func(files map[string]string, folder string) string {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, text := range files {
			w, err := z.Create(folder + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "feed.zip")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f, err := Open(pack(small(), ""), "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Sale("t", "2026-10-28", "2026-10-01"); err != nil {
		t.Error(err)
	}
	_, err = Open(pack(small(), "my feed/"), "t")
	wantFault(t, err, "agency.txt", 0, "", "it is in a folder, my feed/agency.txt")
	bomb := small()
	bomb["stops.txt"] += strings.Repeat("a", 3*maxRecordBytes)
	_, err = Open(pack(bomb, ""), "t")
	wantFault(t, err, "stops.txt", 0, "", "a row of more than 1 MiB")
	if _, err := Open(filepath.Join(t.TempDir(), "none.zip"), "t"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "feed.zip")
	if err := os.WriteFile(path, []byte("PK no"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, ""); err == nil || !strings.Contains(err.Error(), "neither a folder nor a zip") {
		t.Error(err)
	}
}

func TestFileSize(t *testing.T) {
	t.Parallel()
	c := &counting{from: strings.NewReader("x"), total: maxFileBytes + 1}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errFileSize) {
		t.Error(err)
	}
}

// The demo feed: accents, a blank time, a halt on request, a night train.
func TestDemo(t *testing.T) {
	t.Parallel()
	f, err := Read(demo.Feed(), "")
	if err != nil {
		t.Fatal(err)
	}
	day, warnings, err := f.Sale("day", "2026-12-24", "2026-12-01")
	if err != nil || len(warnings) > 0 || len(day.Stops) != 9 || day.Stops[4].Arrives != nil || day.Stops[4].Board != catalog.CallRequest || day.Stops[8].Km != 641 {
		t.Errorf("%v %v %+v", err, warnings, day.Stops)
	}
	night, _, err := f.Sale("night", "2026-12-24", "2026-12-01")
	if err != nil || show(night.Stops[2].Departs) != "2026-12-25T01:20:00-05:00" || night.Stops[5].Km < 400 {
		t.Errorf("%v %+v", err, night.Stops)
	}
	if next := f.FirstDate("day", "2026-12-25"); next != "2026-12-26" {
		t.Errorf("runs next on %s", next)
	}
}

func FuzzTime(f *testing.F) {
	for _, s := range []string{"", "1:00:00", "25:10:00", "107:00:00", "::", "99999999999:00:00", "１:00:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := seconds(s)
		if err == nil && (n < -1 || n > (maxHours+1)*3600) {
			t.Errorf("%q is %d", s, n)
		}
	})
}

// Whatever the bytes, reading gives a feed or a fault that names its file.
func FuzzFeed(f *testing.F) {
	for _, text := range small() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name := range small() {
			files := small()
			files[name] = text
			feed, err := open(files)
			var e *Error
			if err != nil && !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			}
			if feed != nil && err == nil {
				_, _, _ = feed.Sale("t", "2026-10-28", "2026-10-01")
			}
		}
	})
}
