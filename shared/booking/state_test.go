package booking

import "testing"

func TestMoves(t *testing.T) {
	legal := map[[2]State]bool{
		{Held, Booked}: true, {Held, Released}: true, {Held, Expired}: true,
		{Booked, Cancelled}: true, {Expired, Booked}: true, {Expired, Lost}: true,
	}
	for _, from := range States {
		if !from.Valid() || from.Live() != (from == Held || from == Booked) {
			t.Errorf("%s: valid %t, live %t", from, from.Valid(), from.Live())
		}
		for _, to := range States {
			if from.MayBecome(to) != legal[[2]State{from, to}] {
				t.Errorf("%s to %s: %t", from, to, from.MayBecome(to))
			}
		}
	}
	if State("sold").Valid() || State("").Live() {
		t.Error("an unknown state passes")
	}
}
