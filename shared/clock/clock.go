// Package clock is the time of day as an argument. Decisions about seats and
// money use the database's clock instead.
package clock

import "time"

// Clock tells the time.
type Clock interface{ Now() time.Time }

// System is the machine's clock.
var System Clock = system{}

type system struct{}

func (system) Now() time.Time { return time.Now() }

// Func makes a Clock of a function; tests use it.
type Func func() time.Time

// Now calls the function.
func (f Func) Now() time.Time { return f() }
