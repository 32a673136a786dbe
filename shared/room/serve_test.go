package room

import (
	"testing"
	"time"
)

func TestServingMovesByTheRate(t *testing.T) {
	p := progress{}
	for range 600 { // ten minutes at ten a minute, a tick a second
		p = p.advance(time.Second, 10.0/60, 1_000, time.Hour, nil)
	}
	if p.serving < 99 || p.serving > 100 {
		t.Fatalf("serving %d after ten minutes of 10 a minute", p.serving)
	}
	if p.runningMS != 600_000 {
		t.Fatalf("ran for %d ms", p.runningMS)
	}
}

func TestServingStaysInTheLine(t *testing.T) {
	p := progress{serving: 95}.advance(time.Second, 100, 100, time.Hour, nil)
	if p.serving != 100 || p.part != 0 {
		t.Fatalf("%+v", p)
	}
	// A Redis that forgot how long the line is does not move anyone back.
	p = p.advance(time.Second, 100, 40, time.Hour, nil)
	if p.serving != 100 {
		t.Fatalf("serving went back to %d", p.serving)
	}
}

func TestAnOutageIsNotMadeUpFor(t *testing.T) {
	if p := (progress{}).advance(time.Hour, 100, 1e6, time.Hour, nil); p.serving != 200 {
		t.Fatalf("serving jumped to %d", p.serving)
	}
	if p := (progress{}).advance(-time.Hour, 100, 1e6, time.Hour, nil); p.serving != 0 || p.runningMS != 0 {
		t.Fatalf("a clock that went back: %+v", p)
	}
}

func TestPlacesLapseByRunningTime(t *testing.T) {
	trail := []trailPoint{{1_000, 100}, {6_000, 600}, {11_000, 1_100}}
	p := progress{serving: 1_200, runningMS: 14_000}.advance(time.Second, 0.001, 1e6, 10*time.Second, trail)
	if p.lapsed != 100 {
		t.Fatalf("lapsed %d after 15 s of running and a lapse of 10 s, want 100", p.lapsed)
	}
	p = p.advance(2*time.Second, 0.001, 1e6, 10*time.Second, trail)
	if p.lapsed != 600 {
		t.Fatalf("lapsed %d after 17 s, want 600", p.lapsed)
	}
}

func TestBoostIsBounded(t *testing.T) {
	for _, c := range []struct {
		served, came int64
		want         float64
	}{{0, 0, 1}, {10, 0, 1}, {100, 100, 1}, {100, 120, 1}, {100, 80, 1.25}, {100, 50, 2}, {100, 3, 2}, {100, 0, 2}} {
		if got := boost(c.served, c.came); got != c.want {
			t.Errorf("%d came of %d: %v, want %v", c.came, c.served, got, c.want)
		}
	}
}

func TestWindowLeavesOutWhoMayStillCome(t *testing.T) {
	trail := []trailPoint{{5_000, 50}, {60_000, 600}, {90_000, 900}, {97_000, 970}}
	after, upTo := window(progress{runningMS: 100_000}, trail)
	// 12 s are two polls: served before 88 s; and not before 28 s.
	if after != 50 || upTo != 600 {
		t.Fatalf("(%d, %d]", after, upTo)
	}
}
