package gtfs

import (
	"fmt"
	"math"
	"time"

	"handler/function/shared/catalog"
)

// earthKm is the mean radius of the earth.
const earthKm = 6371.0088

// Sale makes the run of a trip on a service date (YYYY-MM-DD) into a sale
// document with all its stops, without classes and terms: a layout gives those.
// today (YYYY-MM-DD) is what an ended feed is compared with. Warnings are for
// people to read.
func (f *Feed) Sale(tripID, date, today string) (doc catalog.Document, warnings []string, err error) {
	t, ok := f.trips[tripID]
	if !ok {
		return doc, nil, &Error{File: "trips.txt", Field: "trip_id", Detail: fmt.Sprintf("has no trip %q", tripID)}
	}
	if r, repeats := f.repeats[tripID]; repeats {
		return doc, nil, r.fault("trip_id", "trip %q repeats by frequency and has no single departure to sell", tripID)
	}
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return doc, nil, fmt.Errorf("date: must be a date like 2026-12-24: %q", date)
	}
	if !f.services[t.service].runs(day) {
		return doc, nil, t.row.fault("service_id", "trip %q does not run on %s%s", tripID, date, f.nextRun(tripID, date))
	}
	list := f.times[tripID]
	if len(list) < 2 {
		return doc, nil, t.row.fault("trip_id", "trip %q has fewer than two stops in stop_times.txt", tripID)
	}
	r := f.routes[t.route]
	zone := f.agencies[r.agency].zone
	doc = catalog.Document{Kind: catalog.Train, Number: firstOf(t.short, r.short, tripID), ServiceDate: date, Timezone: zone.String()}
	if doc.Stops, err = f.saleStops(list, day, zone); err != nil {
		return doc, nil, err
	}
	doc.Title = doc.Stops[0].Name + " – " + doc.Stops[len(list)-1].Name
	if warning := f.distances(list, doc.Stops); warning != "" {
		warnings = append(warnings, warning)
	}
	return doc, append(warnings, f.age(day, today)...), nil
}

func (f *Feed) nextRun(tripID, date string) string {
	if next := f.FirstDate(tripID, date); next != "" {
		return "; it runs next on " + next
	}
	return ""
}

// age warns of a feed used outside the time it was published for.
func (f *Feed) age(day time.Time, today string) (warnings []string) {
	if f.info == nil {
		return nil
	}
	date := day.Format(gtfsDate)
	now := ""
	if t, err := time.Parse(time.DateOnly, today); err == nil {
		now = t.Format(gtfsDate)
	}
	if end := f.info.end; end != "" && (end < date || end < now) {
		warnings = append(warnings, f.info.row.fault("feed_end_date", "the feed has ended (%s): the timetable may have changed", end).Error())
	}
	if start := f.info.start; start != "" && date < start {
		warnings = append(warnings, f.info.row.fault("feed_start_date", "the feed begins later (%s): the timetable may have been another", start).Error())
	}
	return warnings
}

// saleStops turns stop times into stops. GTFS counts from noon minus 12 hours in
// the agency's zone, so that a day of 23 or 25 hours keeps its times; each is
// then shown in the zone of its stop.
func (f *Feed) saleStops(list []stopTime, day time.Time, zone *time.Location) ([]catalog.Stop, error) {
	noon := time.Date(day.Year(), day.Month(), day.Day(), 12, 0, 0, 0, zone)
	start := noon.Add(-12 * time.Hour)
	ids := make(map[string]bool, len(list))
	stops := make([]catalog.Stop, 0, len(list))
	for i, t := range list {
		s := f.stops[t.stop]
		local, err := f.zoneOf(s, zone)
		if err != nil {
			return nil, t.row.fault("stop_id", "%s", err)
		}
		moment := func(seconds int) *time.Time {
			if seconds < 0 {
				return nil
			}
			at := start.Add(time.Duration(seconds) * time.Second).In(local)
			return &at
		}
		stop := catalog.Stop{
			ID: unique(ids, t.stop), Name: s.name, Timezone: local.String(),
			Arrives: moment(t.arrive), Departs: moment(t.depart),
			Board: call(t.pickUp), Alight: call(t.dropOff),
		}
		switch i {
		case 0:
			if stop.Departs == nil {
				if stop.Departs = stop.Arrives; stop.Departs == nil {
					return nil, t.row.fault("departure_time", "must not be blank at the first stop")
				}
			}
			stop.Arrives = nil
		case len(list) - 1:
			if stop.Arrives == nil {
				if stop.Arrives = stop.Departs; stop.Arrives == nil {
					return nil, t.row.fault("arrival_time", "must not be blank at the last stop")
				}
			}
			stop.Departs = nil
		}
		stops = append(stops, stop)
	}
	return stops, nil
}

// zoneOf: a stop in a station has the station's zone (stops.txt, stop_timezone).
func (f *Feed) zoneOf(s stop, agency *time.Location) (*time.Location, error) {
	name := s.zone
	if s.parent != "" {
		parent, ok := f.stops[s.parent]
		if !ok {
			return nil, fmt.Errorf("its parent_station is not in stops.txt: %q", s.parent)
		}
		if parent.zone != "" {
			name = parent.zone
		}
	}
	if name == "" {
		return agency, nil
	}
	return loadZone(name)
}

// unique keeps stop ids apart where a route calls twice: X, X#2, X#3.
func unique(taken map[string]bool, id string) string {
	name := id
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s#%d", id, n)
	}
	taken[name] = true
	return name
}

// call maps pickup_type and drop_off_type: 2 is "phone the agency", 3 "tell the
// driver"; both are sold and shown as on request.
func call(kind int) catalog.Call {
	switch kind {
	case 1:
		return catalog.CallNo
	case 2, 3:
		return catalog.CallRequest
	}
	return catalog.CallYes
}

// distances fills Km from shape_dist_traveled, else from great circles between
// the stops. GTFS leaves the unit of shape_dist_traveled open; a way is never
// shorter and seldom more than twice as long as the great circle, which tells
// miles, kilometres, metres and feet apart.
func (f *Feed) distances(list []stopTime, stops []catalog.Stop) (warning string) {
	circle := make([]float64, len(list))
	placed := true
	for i, t := range list {
		s := f.stops[t.stop]
		placed = placed && s.placed
		if i > 0 {
			circle[i] = circle[i-1] + greatCircle(f.stops[list[i-1].stop], s)
		}
	}
	shape, measured := shapeDistances(list)
	total := circle[len(list)-1]
	switch {
	case measured && placed && total > 0:
		perKm := unitsPerKm(shape[len(list)-1] / total)
		for i := range stops {
			stops[i].Km = roundKm(shape[i] / perKm)
		}
	case placed:
		for i := range stops {
			stops[i].Km = roundKm(circle[i])
		}
	default:
		return list[0].row.fault("stop_id", "a stop has no stop_lat and stop_lon: no fare by distance is possible").Error()
	}
	return ""
}

// shapeDistances are complete and growing, or not used. The first stop's may be
// blank: it is where measuring begins.
func shapeDistances(list []stopTime) ([]float64, bool) {
	out := make([]float64, len(list))
	first := max(list[0].distance, 0)
	for i, t := range list {
		if i == 0 {
			continue
		}
		if out[i] = t.distance - first; t.distance < 0 || out[i] < out[i-1] {
			return nil, false
		}
	}
	return out, out[len(list)-1] > 0
}

func unitsPerKm(ratio float64) float64 {
	switch {
	case ratio < 0.98:
		return 0.621371 // miles
	case ratio < 50:
		return 1
	case ratio < 2400:
		return 1000
	}
	return 3280.84 // feet
}

func roundKm(km float64) float64 { return math.Round(km*1000) / 1000 }

func greatCircle(a, b stop) float64 {
	rad := func(deg float64) float64 { return deg * math.Pi / 180 }
	dLat, dLon := rad(b.lat-a.lat), rad(b.lon-a.lon)
	h := math.Pow(math.Sin(dLat/2), 2) + math.Cos(rad(a.lat))*math.Cos(rad(b.lat))*math.Pow(math.Sin(dLon/2), 2)
	return 2 * earthKm * math.Asin(math.Sqrt(min(1, h)))
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}
