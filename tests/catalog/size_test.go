package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"handler/function/shared/catalog"
)

// The largest sale a document can make (1 MiB of JSON) is made and read well
// within a function's time.
func TestLargest(t *testing.T) {
	w := setup(t)
	d := w.train(func(d *catalog.Document) {
		last := d.Stops[4]
		d.Stops = d.Stops[:4]
		for i := range 96 {
			d.Stops = append(d.Stops, catalog.Stop{ID: fmt.Sprint("s", i), Name: fmt.Sprint("Halt ", i), Km: 300})
		}
		last.Km = 400
		d.Stops = append(d.Stops, last)
		d.Classes[0].Fare = catalog.Fare{Kind: catalog.Distance, PerKm: 1}
		d.Coaches[1].Seats = nil
		for i := range 19_998 {
			d.Coaches[1].Seats = append(d.Coaches[1].Seats, catalog.Seat{Seat: fmt.Sprint(i), Row: i / 40, Column: fmt.Sprint(i % 40)})
		}
	})
	body := w.body(d)
	if len(body) > 1<<20 || len(body) < 700_000 {
		t.Fatalf("%d bytes", len(body))
	}
	start := time.Now()
	id := w.must(body)["sale"].(string)
	made := time.Since(start)
	s := w.load(id)
	if s.Legs != 100 || len(s.Places) != catalog.MaxSeats {
		t.Errorf("%d legs, %d places", s.Legs, len(s.Places))
	}
	t.Logf("made in %s, read in %s", made, time.Since(start)-made)
	if made > 9*time.Second {
		t.Errorf("took %s", made)
	}
}
