package alert

import (
	"strings"
	"testing"
	"time"
)

func TestSayings(t *testing.T) {
	t.Parallel()
	var s sayings
	now := time.Unix(1_800_000_000, 0)
	if !s.first(1, "outbox", "ticket", now) || s.first(1, "outbox", "ticket", now.Add(quiet/2)) {
		t.Error("want one line a minute")
	}
	if !s.first(2, "outbox", "ticket", now) || !s.first(1, "outbox", "ticket", now.Add(quiet)) {
		t.Error("another sale, or a minute later, is to be said")
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	if got := cut(strings.Repeat("席", maxText+1)); got != strings.Repeat("席", maxText) {
		t.Errorf("%d characters", len([]rune(got)))
	}
}
