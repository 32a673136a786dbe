// Package gtfs reads a public transport timetable (GTFS Schedule,
// https://gtfs.org/documentation/schedule/reference/) and makes one run of a
// trip into a sale document.
//
// The whole feed is checked as it is read: a fault is an *Error with file, line
// and field, and nothing is made of a feed that has one.
package gtfs

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxZipEntries = 10_000
	maxHours      = 31 * 24 // a trip that runs longer than a month is a mistake
	maxDistance   = 1e9     // in whatever unit the feed measures
)

// Feed is what was read of a timetable.
type Feed struct {
	agencies  map[string]agency
	stops     map[string]stop
	routes    map[string]route
	trips     map[string]tripRow
	tripOrder []string
	times     map[string][]stopTime
	services  map[string]service
	repeats   map[string]row // frequencies.txt by trip
	info      *feedInfo
}

type agency struct {
	name string
	zone *time.Location
}

type stop struct {
	name, zone, parent string
	kind               string // location_type
	lat, lon           float64
	placed             bool // has coordinates
}

type route struct{ agency, short, long string }

type tripRow struct {
	route, service, short string
	row                   row
}

type stopTime struct {
	row             row
	stop            string
	sequence        int
	arrive, depart  int // seconds from noon minus 12 hours; -1 = blank
	pickUp, dropOff int
	distance        float64 // -1 = blank
}

type service struct {
	from, to string // YYYYMMDD, inclusive
	days     [7]bool
	dates    map[string]bool // calendar_dates.txt: added true, removed false
}

type feedInfo struct {
	row        row
	start, end string
}

// Open reads a feed from a zip file or a folder. With a trip only that trip's
// stop times are kept; "" keeps all.
func Open(path, trip string) (*Feed, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("feed: %w", err)
	}
	if info.IsDir() {
		return Read(os.DirFS(path), trip)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		return nil, &Error{File: path, Detail: "is neither a folder nor a zip file: " + err.Error()}
	}
	defer archive.Close()
	if len(archive.File) > maxZipEntries {
		return nil, &Error{File: path, Detail: fmt.Sprintf("has more than %d entries", maxZipEntries)}
	}
	seen := make(map[string]bool, len(archive.File))
	for _, f := range archive.File {
		if seen[f.Name] {
			return nil, &Error{File: f.Name, Detail: "stands twice in the zip file"}
		}
		seen[f.Name] = true
	}
	return Read(archive, trip)
}

// Read reads a feed from a file system; see Open.
func Read(fsys fs.FS, trip string) (*Feed, error) {
	f := &Feed{
		agencies: map[string]agency{}, stops: map[string]stop{}, routes: map[string]route{},
		trips: map[string]tripRow{}, times: map[string][]stopTime{}, services: map[string]service{},
		repeats: map[string]row{},
	}
	for _, table := range []struct {
		name     string
		must     bool
		required []string
		each     func(row) error
	}{
		{"agency.txt", true, []string{"agency_name", "agency_timezone"}, f.addAgency},
		{"stops.txt", true, []string{"stop_id"}, f.addStop},
		{"routes.txt", true, []string{"route_id"}, f.addRoute},
		{"calendar.txt", false, []string{"service_id", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "start_date", "end_date"}, f.addCalendar},
		{"calendar_dates.txt", false, []string{"service_id", "date", "exception_type"}, f.addDate},
		{"trips.txt", true, []string{"route_id", "service_id", "trip_id"}, f.addTrip},
		{"stop_times.txt", true, []string{"trip_id", "arrival_time", "departure_time", "stop_id", "stop_sequence"}, func(r row) error { return f.addTime(r, trip) }},
		{"frequencies.txt", false, []string{"trip_id"}, f.addFrequency},
		{"feed_info.txt", false, nil, f.addInfo},
	} {
		found, err := read(fsys, table.name, table.required, table.each)
		if err != nil {
			return nil, err
		}
		if !found && table.must {
			return nil, &Error{File: table.name, Detail: "is missing" + elsewhere(fsys, table.name)}
		}
	}
	if len(f.services) == 0 {
		return nil, &Error{File: "calendar.txt", Detail: "has no service, nor has calendar_dates.txt"}
	}
	return f, f.sortTimes()
}

// elsewhere hints at a feed packed with its folder, the common mistake.
func elsewhere(fsys fs.FS, name string) string {
	found, _ := fs.Glob(fsys, "*/"+name)
	if len(found) == 0 {
		return ""
	}
	return " (it is in a folder, " + found[0] + "; the files must be at the top)"
}

func (f *Feed) addAgency(r row) error {
	id := r.get("agency_id")
	if _, twice := f.agencies[id]; twice {
		return r.fault("agency_id", "stands twice: %q", id)
	}
	name, err := r.need("agency_timezone")
	if err != nil {
		return err
	}
	zone, err := loadZone(name)
	if err != nil {
		return r.fault("agency_timezone", "is not a time zone: %q", name)
	}
	f.agencies[id] = agency{name: r.get("agency_name"), zone: zone}
	return nil
}

func (f *Feed) addStop(r row) error {
	id, err := r.need("stop_id")
	if err != nil {
		return err
	}
	if _, twice := f.stops[id]; twice {
		return r.fault("stop_id", "stands twice: %q", id)
	}
	s := stop{name: r.get("stop_name"), zone: r.get("stop_timezone"), parent: r.get("parent_station"), kind: r.get("location_type")}
	if s.kind == "" {
		s.kind = "0"
	}
	if len(s.kind) != 1 || s.kind < "0" || s.kind > "4" {
		return r.fault("location_type", "must be 0 to 4")
	}
	if s.name == "" && s.kind < "3" {
		return r.fault("stop_name", "must not be empty")
	}
	if s.zone != "" {
		if _, err := loadZone(s.zone); err != nil {
			return r.fault("stop_timezone", "is not a time zone: %q", s.zone)
		}
	}
	lat, lon := r.get("stop_lat"), r.get("stop_lon")
	if lat != "" || lon != "" {
		if s.lat, err = number(lat, -90, 90); err != nil {
			return r.fault("stop_lat", "must be -90 to 90")
		}
		if s.lon, err = number(lon, -180, 180); err != nil {
			return r.fault("stop_lon", "must be -180 to 180")
		}
		s.placed = true
	}
	f.stops[id] = s
	return nil
}

func (f *Feed) addRoute(r row) error {
	id, err := r.need("route_id")
	if err != nil {
		return err
	}
	if _, twice := f.routes[id]; twice {
		return r.fault("route_id", "stands twice: %q", id)
	}
	a := r.get("agency_id")
	if a == "" && len(f.agencies) == 1 {
		for a = range f.agencies {
		}
	}
	if _, ok := f.agencies[a]; !ok {
		return r.fault("agency_id", "is not in agency.txt: %q", a)
	}
	f.routes[id] = route{agency: a, short: r.get("route_short_name"), long: r.get("route_long_name")}
	return nil
}

func (f *Feed) addCalendar(r row) error {
	id, err := r.need("service_id")
	if err != nil {
		return err
	}
	if _, twice := f.services[id]; twice {
		return r.fault("service_id", "stands twice: %q", id)
	}
	s := service{dates: map[string]bool{}, from: r.get("start_date"), to: r.get("end_date")}
	if !validDate(s.from) {
		return r.fault("start_date", "must be a date like 20261224")
	}
	if !validDate(s.to) {
		return r.fault("end_date", "must be a date like 20261224")
	}
	for i, day := range []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"} {
		switch r.get(day) {
		case "1":
			s.days[i] = true
		case "0":
		default:
			return r.fault(day, "must be 0 or 1")
		}
	}
	f.services[id] = s
	return nil
}

func (f *Feed) addDate(r row) error {
	id, err := r.need("service_id")
	if err != nil {
		return err
	}
	date := r.get("date")
	if !validDate(date) {
		return r.fault("date", "must be a date like 20261224")
	}
	kind := r.get("exception_type")
	if kind != "1" && kind != "2" {
		return r.fault("exception_type", "must be 1 or 2")
	}
	s, ok := f.services[id]
	if !ok {
		s = service{dates: map[string]bool{}}
		f.services[id] = s
	}
	if _, twice := s.dates[date]; twice {
		return r.fault("date", "stands twice for service %q", id)
	}
	s.dates[date] = kind == "1"
	return nil
}

func (f *Feed) addTrip(r row) error {
	id, err := r.need("trip_id")
	if err != nil {
		return err
	}
	if _, twice := f.trips[id]; twice {
		return r.fault("trip_id", "stands twice: %q", id)
	}
	t := tripRow{route: r.get("route_id"), service: r.get("service_id"), short: r.get("trip_short_name"), row: r}
	if _, ok := f.routes[t.route]; !ok {
		return r.fault("route_id", "is not in routes.txt: %q", t.route)
	}
	if _, ok := f.services[t.service]; !ok {
		return r.fault("service_id", "is in neither calendar.txt nor calendar_dates.txt: %q", t.service)
	}
	f.trips[id] = t
	f.tripOrder = append(f.tripOrder, id)
	return nil
}

func (f *Feed) addTime(r row, only string) error {
	id, err := r.need("trip_id")
	if err != nil {
		return err
	}
	if _, ok := f.trips[id]; !ok {
		return r.fault("trip_id", "is not in trips.txt: %q", id)
	}
	t := stopTime{row: r, stop: r.get("stop_id"), distance: -1}
	s, ok := f.stops[t.stop]
	if !ok {
		return r.fault("stop_id", "is not in stops.txt: %q", t.stop)
	}
	if s.kind != "0" {
		return r.fault("stop_id", "must be a stop or platform (location_type 0): %q", t.stop)
	}
	if t.sequence, err = strconv.Atoi(r.get("stop_sequence")); err != nil || t.sequence < 0 {
		return r.fault("stop_sequence", "must be a whole number from 0")
	}
	if t.arrive, err = seconds(r.get("arrival_time")); err != nil {
		return r.fault("arrival_time", "%s", err)
	}
	if t.depart, err = seconds(r.get("departure_time")); err != nil {
		return r.fault("departure_time", "%s", err)
	}
	if t.arrive >= 0 && t.depart >= 0 && t.depart < t.arrive {
		return r.fault("departure_time", "is before the arrival")
	}
	if t.pickUp, err = callType(r.get("pickup_type")); err != nil {
		return r.fault("pickup_type", "%s", err)
	}
	if t.dropOff, err = callType(r.get("drop_off_type")); err != nil {
		return r.fault("drop_off_type", "%s", err)
	}
	if d := r.get("shape_dist_traveled"); d != "" {
		if t.distance, err = number(d, 0, maxDistance); err != nil {
			return r.fault("shape_dist_traveled", "must be a number from 0")
		}
	}
	if only == "" || only == id {
		t.row.fields, t.row.column = nil, nil
		f.times[id] = append(f.times[id], t)
	}
	return nil
}

func (f *Feed) addFrequency(r row) error {
	id, err := r.need("trip_id")
	if err != nil {
		return err
	}
	if _, ok := f.trips[id]; !ok {
		return r.fault("trip_id", "is not in trips.txt: %q", id)
	}
	if _, twice := f.repeats[id]; !twice {
		f.repeats[id] = r
	}
	return nil
}

func (f *Feed) addInfo(r row) error {
	if f.info != nil {
		return r.fault("", "must be the only row")
	}
	i := &feedInfo{row: r, start: r.get("feed_start_date"), end: r.get("feed_end_date")}
	if i.start != "" && !validDate(i.start) {
		return r.fault("feed_start_date", "must be a date like 20261224")
	}
	if i.end != "" && !validDate(i.end) {
		return r.fault("feed_end_date", "must be a date like 20261224")
	}
	f.info = i
	return nil
}

// sortTimes puts each trip's stop times into order and checks it.
func (f *Feed) sortTimes() error {
	for _, id := range f.tripOrder {
		list := f.times[id]
		slices.SortStableFunc(list, func(a, b stopTime) int { return cmp.Compare(a.sequence, b.sequence) })
		last := -1
		for i, t := range list {
			if i > 0 && t.sequence == list[i-1].sequence {
				return t.row.fault("stop_sequence", "stands twice in trip %q: %d", id, t.sequence)
			}
			if t.arrive >= 0 && t.arrive < last {
				return t.row.fault("arrival_time", "is before the time at the stop before")
			}
			last = max(last, t.arrive)
			if t.depart >= 0 && t.depart < last {
				return t.row.fault("departure_time", "is before the time before it")
			}
			last = max(last, t.depart)
		}
	}
	return nil
}

// Trips lists the trip ids in the order of trips.txt.
func (f *Feed) Trips() []string { return slices.Clone(f.tripOrder) }

// FirstDate is the first service date of a trip on or after a date (both
// YYYY-MM-DD), empty if it does not run within two years of it.
func (f *Feed) FirstDate(tripID, from string) string {
	t, ok := f.trips[tripID]
	day, err := time.Parse(time.DateOnly, from)
	if !ok || err != nil {
		return ""
	}
	for range 2 * 366 {
		if f.services[t.service].runs(day) {
			return day.Format(time.DateOnly)
		}
		day = day.AddDate(0, 0, 1)
	}
	return ""
}

func (s service) runs(day time.Time) bool {
	date := day.Format(gtfsDate)
	if added, listed := s.dates[date]; listed {
		return added
	}
	return s.from != "" && s.from <= date && date <= s.to && s.days[day.Weekday()]
}

const gtfsDate = "20060102"

func validDate(s string) bool {
	_, err := time.Parse(gtfsDate, s)
	return err == nil
}

func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, errors.New("no zone")
	}
	return time.LoadLocation(name)
}

func number(s string, least, most float64) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err == nil && (math.IsNaN(n) || n < least || n > most) {
		err = strconv.ErrRange
	}
	return n, err
}

// seconds reads a GTFS time: H:MM:SS from noon minus 12 hours of the service
// day, hours past 24 allowed; blank is -1.
func seconds(s string) (int, error) {
	if s == "" {
		return -1, nil
	}
	wrong := fmt.Errorf("must be a time like 25:10:00: %q", s)
	parts := strings.Split(s, ":")
	if len(parts) != 3 || len(parts[0]) < 1 || len(parts[0]) > 3 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return 0, wrong
	}
	var n [3]int
	for i, p := range parts {
		if strings.Trim(p, "0123456789") != "" {
			return 0, wrong
		}
		n[i], _ = strconv.Atoi(p)
	}
	if n[0] > maxHours || n[1] > 59 || n[2] > 59 {
		return 0, wrong
	}
	return n[0]*3600 + n[1]*60 + n[2], nil
}

func callType(s string) (int, error) {
	switch s {
	case "", "0":
		return 0, nil
	case "1", "2", "3":
		return int(s[0] - '0'), nil
	}
	return 0, errors.New("must be 0 to 3")
}
