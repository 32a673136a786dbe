// Package money is amounts in a currency's minor unit.
package money

import (
	"fmt"
	"strings"

	"golang.org/x/text/currency"
)

// Amount is a sum in minor units (cents, yen) of an ISO 4217 currency.
// A negative amount occurs only as a difference, never in the API.
type Amount struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Exponent is the number of decimal digits of a currency (JPY 0, CAD 2,
// KWD 3). It is an error for a code that ISO 4217 does not know.
func Exponent(code string) (int, error) {
	unit, err := currency.ParseISO(code)
	if err != nil || unit.String() != code {
		return 0, fmt.Errorf("money: %q is not an ISO 4217 currency", code)
	}
	scale, _ := currency.Standard.Rounding(unit)
	return scale, nil
}

// String writes the amount for people, with its true exponent: "CAD 129.00",
// "JPY 1935".
func (a Amount) String() string {
	exp, err := Exponent(a.Currency)
	if err != nil {
		return fmt.Sprintf("%s %d", a.Currency, a.Amount)
	}
	if exp == 0 {
		return fmt.Sprintf("%s %d", a.Currency, a.Amount)
	}
	sign, n := "", a.Amount
	if n < 0 {
		sign, n = "-", -n
	}
	digits := fmt.Sprintf("%0*d", exp+1, n)
	cut := len(digits) - exp
	return strings.TrimSpace(fmt.Sprintf("%s %s%s.%s", a.Currency, sign, digits[:cut], digits[cut:]))
}
