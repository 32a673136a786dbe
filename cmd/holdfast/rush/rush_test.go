package rush

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestMostArriveEarly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 10_000
	early := 0
	for range n {
		at := arrival(r, time.Minute)
		if at < 0 || at >= time.Minute {
			t.Fatalf("arrival %s is outside the window", at)
		}
		if at < 20*time.Second {
			early++
		}
	}
	if early < n*6/10 || early > n*3/4 {
		t.Errorf("%d of %d came in the first third, want about two thirds", early, n)
	}
}

func TestDraftHasEveryKind(t *testing.T) {
	crowd := draft(rand.New(rand.NewPCG(1, 1)), 2000, 4, 20*time.Second, time.Minute, 0.3)
	var script, doubler, chooser, unpaid, sleeps, leaves int
	for _, c := range crowd {
		if c.from < 0 || c.to <= c.from || c.to > 4 {
			t.Fatalf("interval %d to %d", c.from, c.to)
		}
		for _, k := range []struct {
			is bool
			n  *int
		}{{c.script, &script}, {c.doubler, &doubler}, {c.chooser, &chooser}, {c.unpaid, &unpaid}, {c.sleeps > 0, &sleeps}, {c.leaves > 0, &leaves}} {
			if k.is {
				*k.n++
			}
		}
	}
	for name, n := range map[string]int{"script": script, "doubler": doubler, "chooser": chooser, "sleeper": sleeps, "leaver": leaves} {
		if n == 0 {
			t.Errorf("no %s among 2,000 people", name)
		}
	}
	if unpaid < 500 || unpaid > 700 {
		t.Errorf("%d of 2,000 do not pay, want about 600", unpaid)
	}
}

func TestJudgeCountsOversoldLegs(t *testing.T) {
	var j judge
	j.add(ticketed{"a", "1", "1-1A", 0, 2}, ticketed{"b", "2", "1-1A", 2, 4}, ticketed{"c", "3", "1-1B", 0, 4})
	if sold, over, _ := j.verdict(); sold != 3 || over != 0 {
		t.Fatalf("sold %d, oversold %d; want 3 and 0", sold, over)
	}
	j.add(ticketed{"d", "4", "1-1A", 1, 3})
	sold, over, clashes := j.verdict()
	if sold != 4 || over != 2 || len(clashes) != 2 {
		t.Fatalf("sold %d, oversold %d, %v; want 4 and two legs", sold, over, clashes)
	}
}

func TestLineJudge(t *testing.T) {
	l := newLineJudge()
	l.told("a", 1)
	l.told("a", 1)
	l.told("b", 2)
	if _, changed, twice := l.verdict(); len(changed)+len(twice) != 0 {
		t.Fatalf("a quiet line: %v %v", changed, twice)
	}
	l.told("a", 3)
	l.told("c", 2)
	if _, changed, twice := l.verdict(); len(changed) != 1 || len(twice) != 1 {
		t.Fatalf("changed %v, twice %v; want one each", changed, twice)
	}
	l.left("b")
	l.told("b", 9)
	turn, known := l.asking("b")
	if !known {
		t.Fatal("b has a place again")
	}
	l.left("b")
	l.toldAgain("b", 9, turn)
	if _, changed, _ := l.verdict(); len(changed) != 1 {
		t.Fatalf("a new place that was asked for is no change: %v", changed)
	}
}

func TestSeatsOfMap(t *testing.T) {
	// Seats 0, 1, 4 free; 2 held, 3 booked.
	free := freeSeats([]byte{0b10_01_00_00, 0}, 5)
	if len(free) != 3 || free[2] != 4 {
		t.Fatalf("free %v", free)
	}
	names := []string{"A", "B", "C", "D", "E"}
	for start := range free {
		got := pickSeats(free, names, 2, func(int) int { return start })
		if strings.Join(got, "") != "AB" {
			t.Errorf("from %d: %v, want the two neighbours", start, got)
		}
	}
	if got := pickSeats(free, names, 4, func(int) int { return 0 }); got != nil {
		t.Errorf("four of three: %v", got)
	}
	if got := pickSeats([]int{0, 2, 4}, names, 2, func(int) int { return 2 }); len(got) != 2 || got[0] == got[1] {
		t.Errorf("no neighbours: %v", got)
	}
}

func TestSaleDocumentIsValid(t *testing.T) {
	for _, legs := range []int{1, 5} {
		d := saleDocument(Options{Seats: 163, Party: 2, Legs: legs, Admit: 100, Hold: 20 * time.Second, Draw: 10 * time.Second}, time.Now())
		d.Normalise(time.Now())
		if err := d.Validate(); err != nil {
			t.Errorf("%d legs: %v", legs, err)
		}
		if names := seatNames(d); len(names) != 163 || names[0] != "1-1A" {
			t.Errorf("%d seats, first %s", len(names), names[0])
		}
	}
}

func TestReportStandsAlone(t *testing.T) {
	ms := int64(1500)
	res := &Result{People: 10, SoldOutAfterMS: &ms, Story: []string{"a < b"}, seconds: []point{{second: 0, requests: 3}, {second: 1, requests: 5, sold: 2}}}
	var b bytes.Buffer
	if err := res.Report(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if strings.Contains(page, "http://") || strings.Contains(page, "https://") || strings.Contains(page, "<script") {
		t.Error("the report fetches something")
	}
	if !strings.Contains(page, "a &lt; b") || !strings.Contains(page, "polyline") {
		t.Error("the report lacks its story or its curves")
	}
}
