package catalog

import (
	"fmt"

	"handler/function/shared/money"
	"handler/function/shared/problem"
)

// faults collects what is wrong with a document, field by field, so that an
// organiser sees all of it at once.
type faults struct {
	found *problem.Error
}

// err is nil without faults.
func (f *faults) err() error {
	if f.found == nil {
		return nil
	}
	return f.found
}

func (f *faults) add(field, format string, args ...any) {
	switch {
	case f.found == nil:
		f.found = problem.Invalid(field, format, args...)
	case len(f.found.Fields) < maxFaults:
		f.found.And(field, format, args...)
	}
}

func (f *faults) at(field string) faultsAt { return faultsAt{f, field} }
func (f *faults) in(field string, i int) faultsAt {
	return f.at(fmt.Sprintf("%s[%d]", field, i))
}
func (f *faults) check(ok bool, field, format string, args ...any) {
	f.at("").check(ok, field, format, args...)
}
func (f *faults) text(field, s string, least, most int) { f.at("").text(field, s, least, most) }

// faultsAt names fields below one place of the document: stops[3].id.
type faultsAt struct {
	faults *faults
	prefix string
}

func (f faultsAt) name(field string) string {
	switch {
	case f.prefix == "":
		return field
	case field == "":
		return f.prefix
	}
	return f.prefix + "." + field
}

func (f faultsAt) sub(field string) faultsAt { return faultsAt{f.faults, f.name(field)} }
func (f faultsAt) in(field string, i int) faultsAt {
	return faultsAt{f.faults, fmt.Sprintf("%s[%d]", f.name(field), i)}
}

func (f faultsAt) add(field, format string, args ...any) {
	f.faults.add(f.name(field), format, args...)
}

func (f faultsAt) check(ok bool, field, format string, args ...any) {
	if !ok {
		f.add(field, format, args...)
	}
}

func (f faultsAt) text(field, s string, least, most int) {
	f.check(validText(s, least, most), field, "must be %d to %d printable characters without spaces around", least, most)
}

func (f faultsAt) id(field, s string) {
	f.check(validID(s), field, "must be 1 to %d printable characters without spaces or braces", maxID)
}

// label is the name of a coach, seat or column: it stands on tickets and, with a
// hyphen between, in the shown name of a seat.
func (f faultsAt) label(field, s string, least int) {
	f.check(s == "" && least == 0 || validID(s) && validText(s, least, maxName), field, "must be %d to %d printable characters without spaces or braces", least, maxName)
}

func (f faultsAt) amount(field string, a int64) {
	f.check(a >= 0 && a <= maxAmount, field, "must be 0 to %d minor units", int64(maxAmount))
}

func (f faultsAt) between(field string, n *int, least, most int) {
	f.check(n == nil || *n >= least && *n <= most, field, "must be %d to %d", least, most)
}

func (f faultsAt) call(field string, c Call) {
	f.check(c == CallYes || c == CallNo || c == CallRequest, field, "must be yes, no or request")
}

func validCurrency(code string) bool {
	_, err := money.Exponent(code)
	return err == nil
}
