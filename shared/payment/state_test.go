package payment

import "testing"

func TestMoves(t *testing.T) {
	t.Parallel()
	legal := map[[2]State]bool{
		{StatePending, StateFailed}:           true,
		{StatePending, StateSucceeded}:        true,
		{StateFailed, StatePending}:           true,
		{StateFailed, StateSucceeded}:         true, // field case 15: failed is not final
		{StateSucceeded, StatePartlyRefunded}: true,
		{StateSucceeded, StateRefunded}:       true,
		{StatePartlyRefunded, StateRefunded}:  true,
	}
	for _, from := range States {
		for _, to := range States {
			want := from == to || legal[[2]State{from, to}]
			if got := from.MayBecome(to); got != want {
				t.Errorf("%s to %s: %v, want %v", from, to, got, want)
			}
		}
	}
}
