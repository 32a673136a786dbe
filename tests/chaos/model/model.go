// Package model is a seat as law 3 has it, once more, for a checker of
// linearizability: a strip of legs, each free, held by a booking until a moment,
// or booked. It knows nothing of the product and imports nothing of it.
//
// Time is part of it. A hold's end is no operation of anybody: a leg is free for
// whoever looks at it after that moment. So an operation happens at one moment
// between its call and its return, no earlier than the one before it, and the
// model takes the earliest that will do: ends that are needed past move it on,
// and ends that must be ahead are compared with it. Operations are tried in every
// order that their intervals allow, so the earliest is enough.
package model

import (
	"fmt"
	"math"
	"strings"

	"github.com/anishathalye/porcupine"
)

// MaxLegs is the longest strip. A strip is an array so that states compare.
const MaxLegs = 8

// Forever is the end of what is booked. Other moments are microseconds.
const Forever int64 = math.MaxInt64

// Leg is taken by Holder until Until; one whose end is past is free.
type Leg struct{ Holder, Until int64 }

// Strip is a seat at the moment Now. Legs beyond the sale's stay zero.
type Strip struct {
	Legs [MaxLegs]Leg
	Now  int64
}

// What is done to a seat or said of it.
type What int

// The operations. Hold, LetGo, Book and Free are the four moves of law 3.
const (
	Hold   What = iota // From..To are free, and held by Booking until Until
	Extend             // the hold's end becomes Until
	LetGo              // held, its end ahead: free
	Book               // held, its end ahead: booked
	Rescue             // free: booked in one move
	Free               // booked: free
	Swap               // booked: OldFrom..OldTo free and From..To booked, in one move; either may be 0 for none on this seat
	Taken              // said: a leg of From..To is taken
	Vacant             // said: all of From..To are free
	Read               // said: the whole strip is Strip
)

var names = []string{"hold", "extend", "let go", "book", "rescue", "free", "swap", "taken", "vacant", "read"}

func (w What) String() string { return names[w] }

// Op is an operation on one seat. Legs are 1-based and inclusive.
type Op struct {
	What           What
	Booking        int64
	From, To       int
	OldFrom, OldTo int   // of Swap
	Until          int64 // of Hold and Extend
	Call, Return   int64 // between which it happens
	Strip          Strip // of Read
}

func (o Op) String() string {
	s := fmt.Sprintf("%s %d..%d", o.What, o.From, o.To)
	if o.Booking != 0 {
		s += fmt.Sprintf(" booking %d", o.Booking)
	}
	if o.What == Swap {
		s += fmt.Sprintf(" for %d..%d", o.OldFrom, o.OldTo)
	}
	if o.Until != 0 {
		s += fmt.Sprintf(" until %d", o.Until)
	}
	if o.What == Read {
		s += " " + o.Strip.String()
	}
	return s
}

func (s Strip) String() string {
	var b strings.Builder
	for _, l := range s.Legs {
		switch {
		case l.Until == Forever:
			fmt.Fprintf(&b, "[%d]", l.Holder)
		case l.Until > s.Now:
			fmt.Fprintf(&b, "(%d until %d)", l.Holder, l.Until)
		default:
			b.WriteString("-")
		}
	}
	return b.String()
}

// Step does an operation. ok: it could happen in this state.
func Step(s Strip, o Op) (next Strip, ok bool) {
	s.Now = max(s.Now, o.Call)
	// free moves time on to the end of whatever stands on the legs.
	free := func(from, to int) bool {
		for _, l := range s.Legs[from-1 : to] {
			if l.Until > o.Return {
				return false
			}
			s.Now = max(s.Now, l.Until)
		}
		return true
	}
	all := func(from, to int, is func(Leg) bool) bool {
		for _, l := range s.Legs[from-1 : to] {
			if !is(l) {
				return false
			}
		}
		return true
	}
	set := func(from, to int, l Leg) {
		for i := from - 1; i < to; i++ {
			s.Legs[i] = l
		}
	}
	held := func(l Leg) bool { return l.Holder == o.Booking && l.Until > s.Now && l.Until != Forever }
	booked := func(l Leg) bool { return l.Holder == o.Booking && l.Until == Forever }

	switch o.What {
	case Hold:
		ok = free(o.From, o.To) && o.Until > s.Now
		set(o.From, o.To, Leg{o.Booking, o.Until})
	case Extend:
		// Its holder may have extended it before, which nobody saw: that its end is
		// past says nothing, that another has the legs does.
		ok = all(o.From, o.To, func(l Leg) bool { return l.Holder == o.Booking && l.Until != Forever && l.Until <= o.Until })
		set(o.From, o.To, Leg{o.Booking, o.Until})
	case LetGo:
		ok = all(o.From, o.To, held)
		set(o.From, o.To, Leg{})
	case Book:
		ok = all(o.From, o.To, held)
		set(o.From, o.To, Leg{o.Booking, Forever})
	case Rescue:
		ok = free(o.From, o.To)
		set(o.From, o.To, Leg{o.Booking, Forever})
	case Free:
		ok = all(o.From, o.To, booked)
		set(o.From, o.To, Leg{})
	case Swap:
		ok = true
		if o.OldFrom > 0 {
			ok = all(o.OldFrom, o.OldTo, booked)
			set(o.OldFrom, o.OldTo, Leg{})
		}
		if o.From > 0 {
			ok = ok && free(o.From, o.To)
			set(o.From, o.To, Leg{o.Booking, Forever})
		}
	case Taken:
		ok = !all(o.From, o.To, func(l Leg) bool { return l.Until <= s.Now })
	case Vacant:
		ok = free(o.From, o.To)
	case Read:
		ok = true
		for i, said := range o.Strip.Legs {
			is := s.Legs[i]
			if is.Until > o.Return || said.Until > o.Return {
				ok = ok && is == said
			}
		}
	}
	return s, ok && s.Now <= o.Return
}

// Of is the model of one seat as a checker takes it, from a strip on.
func Of(from Strip) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return from },
		Step: func(state, input, _ any) (bool, any) {
			next, ok := Step(state.(Strip), input.(Op))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return input.(Op).String() },
		DescribeState:     func(state any) string { return state.(Strip).String() },
	}
}
