package standby

import "testing"

func TestMoves(t *testing.T) {
	t.Parallel()
	legal := 0
	for _, from := range States {
		for _, to := range States {
			if !from.MayBecome(to) {
				continue
			}
			legal++
			if from.Ended() {
				t.Errorf("%s has ended and may become %s", from, to)
			}
			if to.Waits() && !from.Waits() && from != Authorising {
				t.Errorf("%s has left the queue and may become %s", from, to)
			}
		}
	}
	if legal != 18 {
		t.Errorf("%d legal moves", legal)
	}
	for _, c := range []struct {
		from, to State
		want     bool
	}{
		{Authorising, Matched, false}, {Authorising, Booked, false}, {Queued, Booked, false}, {Matched, Expired, false},
		{Matched, Cancelling, false}, {Matched, Queued, false}, {Cancelling, Expired, false}, {Pending, Queued, true}, {Queued, Pending, true},
	} {
		if got := c.from.MayBecome(c.to); got != c.want {
			t.Errorf("%s to %s: %v", c.from, c.to, got)
		}
	}
}
