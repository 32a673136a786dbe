// Package gtfs_test makes sales of a real timetable.
package gtfs_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"handler/function/cmd/holdfast/gtfs"
	"handler/function/cmd/holdfast/layout"
	"handler/function/demo"
	"handler/function/shared/catalog"
	"handler/function/shared/clock"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// Every trip of VIA Rail's feed but one becomes a sale, on one date of service;
// that one repeats by frequency and is refused.
func TestVIA(t *testing.T) {
	t.Parallel()
	feed, err := gtfs.Open(harness.GTFS(t), "")
	if err != nil {
		t.Fatal(err)
	}
	coaches, err := layout.Parse("train.yaml", demo.Train())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	db := store.New(harness.DB(t).App)
	sales := catalog.NewReader(db)
	// The feed's calendar runs from 2024 to 2030; two trips only run in the days
	// of a diversion from 2026-09-29 to 10-01.
	service := catalog.NewService(db, sales, nil, clock.System, nil)

	trips := feed.Trips()
	if len(trips) != 85 {
		t.Errorf("%d trips", len(trips))
	}
	made, longest, over64, over32 := 0, 0, 0, 0
	for _, trip := range trips {
		date := feed.FirstDate(trip, "2026-07-09")
		doc, warnings, err := feed.Sale(trip, date, "2026-07-09")
		if trip == "554" {
			var fault *gtfs.Error
			if !errors.As(err, &fault) || fault.File != "frequencies.txt" || fault.Line != 2 || fault.Field != "trip_id" {
				t.Errorf("trip 554: %v", err)
			}
			continue
		}
		if err == nil {
			err = coaches.Apply(&doc)
		}
		if err != nil {
			t.Errorf("trip %s: %v", trip, err)
			continue
		}
		if len(warnings) > 0 && date <= "2026-11-07" {
			t.Errorf("trip %s on %s: %v", trip, date, warnings)
		}
		doc.State = catalog.Open
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		answer, err := service.Do(ctx, catalog.Caller{Account: "via", Org: "via", Key: trip, Hash: sum[:]},
			catalog.Request{Sale: &catalog.Target{Document: &doc}}, "")
		if err != nil {
			t.Errorf("trip %s: %v", trip, err)
			continue
		}
		made++
		check(ctx, t, sales, trip, doc, answer.Body)
		n := len(doc.Stops)
		longest = max(longest, n)
		if n > 32 {
			over32++
		}
		if n > 64 {
			over64++
		}
	}
	if made != 84 || longest != 71 || over32 != 18 || over64 != 4 {
		t.Errorf("%d sales, the longest of %d stops, %d above 32, %d above 64", made, longest, over32, over64)
	}
	again, _, err := sales.List(ctx, catalog.Filter{Date: "2026-09-29"})
	if err != nil || len(again) < 2 {
		t.Errorf("of 2026-09-29: %d, %v", len(again), err)
	}
}

// check compares the sale in Postgres with the document.
func check(ctx context.Context, t *testing.T, sales *catalog.Reader, trip string, doc catalog.Document, body json.RawMessage) {
	t.Helper()
	var made struct{ Sale string }
	if err := json.Unmarshal(body, &made); err != nil {
		t.Fatal(err)
	}
	sale, err := sales.Shown(ctx, made.Sale, false, "")
	if err != nil {
		t.Fatalf("trip %s: %v", trip, err)
	}
	if sale.Legs != len(doc.Stops)-1 || len(sale.Places) != 213 || sale.Number != doc.Number || sale.State != catalog.Open {
		t.Errorf("trip %s: %d legs, %d seats", trip, sale.Legs, len(sale.Places))
	}
	for i, stop := range doc.Stops {
		got := sale.Stops[i]
		if text(got) != text(stop) {
			t.Errorf("trip %s, stop %d:\n%s\n%s", trip, i, text(got), text(stop))
		}
	}
	f, to, err := sale.Interval(doc.Stops[0].ID, doc.Stops[sale.Legs].ID)
	if err != nil {
		t.Errorf("trip %s: the whole route: %v", trip, err)
		return
	}
	price, err := sale.Price("economy", f, to)
	if err != nil || price.Amount < 900 {
		t.Errorf("trip %s: %v %v", trip, price, err)
	}
}

// text shows a stop with its times as people read them.
func text(s catalog.Stop) string {
	show := func(t *time.Time) string {
		if t == nil {
			return "blank"
		}
		return t.Format(time.RFC3339)
	}
	return fmt.Sprintf("%s %s %s %s %s %s %s %.3f", s.ID, s.Name, s.Timezone, show(s.Arrives), show(s.Departs), s.Board, s.Alight, s.Km)
}

// Known times of the feed: train 1 leaves Toronto and is four days later in
// Vancouver, across the change of the clocks.
func TestVIATimes(t *testing.T) {
	t.Parallel()
	feed, err := gtfs.Open(harness.GTFS(t), "111")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, err := feed.Sale("111", "2026-10-28", "2026-10-28")
	if err != nil {
		t.Fatal(err)
	}
	first, last := doc.Stops[0], doc.Stops[len(doc.Stops)-1]
	if doc.Number != "1" || first.Name != "Toronto" || last.Name != "Vancouver" || last.Timezone != "America/Vancouver" {
		t.Errorf("%s: %s to %s (%s)", doc.Number, first.Name, last.Name, last.Timezone)
	}
	if first.Departs.Format(time.RFC3339) != "2026-10-28T09:55:00-04:00" {
		t.Errorf("leaves %s", first.Departs)
	}
	// Field case 53: 107:00 of this service day, 10:00 in Toronto.
	if last.Arrives.Format(time.RFC3339) != "2026-11-01T07:00:00-08:00" {
		t.Errorf("arrives %s", last.Arrives)
	}
}
