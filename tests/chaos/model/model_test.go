package model_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"handler/function/tests/chaos/model"
)

func check(ops ...model.Op) porcupine.CheckResult {
	var history []porcupine.Operation
	for i, o := range ops {
		history = append(history, porcupine.Operation{ClientId: i, Input: o, Call: o.Call, Return: o.Return})
	}
	return porcupine.CheckOperationsTimeout(model.Of(model.Strip{}), history, 10*time.Second)
}

// Histories that must pass, and ones that must not.
func TestModel(t *testing.T) {
	at := func(o model.Op, call, ret int64) model.Op { o.Call, o.Return = call, ret; return o }
	hold := func(b int64, from, to int, until int64) model.Op {
		return model.Op{What: model.Hold, Booking: b, From: from, To: to, Until: until}
	}
	of := func(w model.What, b int64, from, to int) model.Op {
		return model.Op{What: w, Booking: b, From: from, To: to}
	}
	read := func(legs ...model.Leg) model.Op {
		o := model.Op{What: model.Read}
		copy(o.Strip.Legs[:], legs)
		return o
	}
	for _, c := range []struct {
		name string
		ops  []model.Op
		ok   bool
	}{
		{"two on other legs", []model.Op{at(hold(1, 1, 2, 100), 1, 2), at(hold(2, 3, 4, 100), 3, 4)}, true},
		{"two on one leg", []model.Op{at(hold(1, 1, 2, 100), 1, 2), at(hold(2, 2, 3, 100), 3, 4)}, false},
		{"two at once on one leg", []model.Op{at(hold(1, 1, 2, 100), 1, 9), at(hold(2, 2, 3, 100), 2, 8)}, false},
		{"after the end", []model.Op{at(hold(1, 1, 2, 50), 1, 2), at(hold(2, 2, 3, 100), 40, 60)}, true},
		{"before the end", []model.Op{at(hold(1, 1, 2, 50), 1, 2), at(hold(2, 2, 3, 100), 40, 49)}, false},
		{"booked after the end", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(of(model.Book, 1, 1, 1), 51, 60)}, false},
		{"the end is past for one and ahead for the next", []model.Op{
			at(hold(1, 1, 1, 50), 1, 2), at(hold(2, 1, 1, 90), 40, 60), at(of(model.Book, 1, 1, 1), 61, 62)}, false},
		{"time goes on: the other leg's end is past too", []model.Op{
			at(hold(1, 1, 1, 50), 1, 2), at(hold(2, 2, 2, 50), 1, 2), at(hold(3, 1, 1, 90), 45, 55), at(of(model.Book, 2, 2, 2), 56, 57)}, false},
		{"booked, freed, held", []model.Op{at(hold(1, 1, 3, 50), 1, 2), at(of(model.Book, 1, 1, 3), 3, 4), at(of(model.Free, 1, 1, 3), 5, 9),
			at(hold(2, 2, 2, 90), 6, 8)}, true},
		{"held before it is freed", []model.Op{at(hold(1, 1, 3, 50), 1, 2), at(of(model.Book, 1, 1, 3), 3, 4), at(of(model.Free, 1, 1, 3), 7, 9),
			at(hold(2, 2, 2, 90), 5, 6)}, false},
		{"extended", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(model.Op{What: model.Extend, Booking: 1, From: 1, To: 1, Until: 80}, 3, 100),
			at(of(model.Book, 1, 1, 1), 60, 62)}, true},
		{"extended when another has it", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(hold(2, 1, 1, 90), 51, 52),
			at(model.Op{What: model.Extend, Booking: 1, From: 1, To: 1, Until: 80}, 53, 100)}, false},
		{"rescued", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(of(model.Rescue, 1, 1, 1), 60, 61), at(read(model.Leg{1, model.Forever}), 70, 71)}, true},
		{"rescued from another", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(hold(2, 1, 1, 90), 51, 52), at(of(model.Rescue, 1, 1, 1), 60, 61)}, false},
		{"exchanged on its own seat", []model.Op{at(hold(1, 1, 3, 50), 1, 2), at(of(model.Book, 1, 1, 3), 3, 4),
			at(model.Op{What: model.Swap, Booking: 1, OldFrom: 1, OldTo: 3, From: 2, To: 4}, 5, 6), at(hold(2, 1, 1, 50), 7, 8)}, true},
		{"exchanged for what another has", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(of(model.Book, 1, 1, 1), 3, 4), at(hold(2, 4, 4, 50), 1, 2),
			at(model.Op{What: model.Swap, Booking: 1, OldFrom: 1, OldTo: 1, From: 4, To: 4}, 5, 6)}, false},
		{"said to be taken", []model.Op{at(of(model.Taken, 0, 1, 2), 3, 9), at(hold(1, 2, 2, 50), 4, 8)}, true},
		{"said to be taken and is not", []model.Op{at(of(model.Taken, 0, 1, 1), 1, 9), at(hold(1, 2, 2, 50), 4, 8)}, false},
		{"read otherwise than it is", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(read(model.Leg{2, 50}), 10, 20)}, false},
		{"read free and is not", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(read(), 10, 20)}, false},
		{"read while it ends", []model.Op{at(hold(1, 1, 1, 15), 1, 2), at(read(), 10, 20)}, true},
		{"a move that nobody saw return", []model.Op{at(hold(1, 1, 1, 50), 1, 2), at(of(model.LetGo, 1, 1, 1), 3, 1000), at(hold(2, 1, 1, 90), 20, 21)}, true},
	} {
		want := porcupine.Illegal
		if c.ok {
			want = porcupine.Ok
		}
		if got := check(c.ops...); got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
}
