// Package account says who is calling: it verifies account tokens, makes them,
// and signs people in with one-time codes.
//
// An account is a name (`sub`) that the identity provider, or our own sign-in,
// vouches for. It should stand for one verified person: a draw rewards many
// accounts otherwise.
package account

import (
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"handler/function/shared/problem"
)

// MaxIDLength is the longest account name, in characters (api/openapi.yaml, Common).
const MaxIDLength = 128

// House is the account of blocked and kept seats. No token may carry it.
const House = "house"

// Role is what an account may do beyond buying for itself.
type Role string

// The roles of api/openapi.yaml. A token without one, or with one not listed here, is a
// customer's.
const (
	Customer  Role = ""
	Organiser Role = "organiser"
	Seller    Role = "seller"
	Gate      Role = "gate"
)

// Account is the verified caller.
type Account struct {
	// ID is the token's `sub`: 1 to MaxIDLength characters, none of them a
	// control character, never House.
	ID string
	// Role is Customer unless the token names a role of ours.
	Role Role
	// Org is the organisation an organiser, seller or gate acts for; may be empty.
	Org string
	// Expires is the token's `exp`. Decisions about seats compare it in SQL.
	Expires time.Time
}

// Require returns nil if the account has one of the roles, else a `forbidden`
// problem.
func (a Account) Require(roles ...Role) error {
	if slices.Contains(roles, a.Role) {
		return nil
	}
	return problem.New(problem.Forbidden, "Your account may not do this")
}

// ValidID tells whether s may name an account.
func ValidID(s string) bool {
	if s == "" || s == House || !utf8.ValidString(s) || utf8.RuneCountInString(s) > MaxIDLength {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}
