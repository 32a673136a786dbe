// Package gtfs_test reads real and broken timetables.
package gtfs_test

import (
	"os"
	"testing"

	"handler/function/cmd/holdfast/gtfs"
)

func TestVIA(t *testing.T) {
	path := os.Getenv("HOLDFAST_TEST_GTFS")
	f, err := gtfs.Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, id := range f.Trips() {
		d := f.FirstDate(id, "2026-12-01")
		doc, w, err := f.Sale(id, d, "2026-12-01")
		if err != nil {
			t.Log(id, d, err)
			continue
		}
		n++
		t.Log(id, d, doc.Title, doc.Number, len(doc.Stops), doc.Stops[len(doc.Stops)-1].Km, w)
	}
	t.Log(n)
}
