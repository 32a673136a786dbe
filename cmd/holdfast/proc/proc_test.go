package proc

import "testing"

func TestParseStat(t *testing.T) {
	p, ok := parseStat(7, "7 (a (b) c) S 3 7 7 0 -1 0 0 0 0 0 150 50 20 5 20 0 9 0 100 0 0")
	if !ok || p.Parent != 3 || p.Name != "a (b) c" || p.Own != 2 || p.Ended != 0.25 {
		t.Fatalf("%+v %v", p, ok)
	}
}
