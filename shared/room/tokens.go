package room

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/problem"
)

const (
	placeType = "place+jwt"
	admitType = "admit+jwt"

	placeAudience = "holdfast:join-room"
	admitAudience = "holdfast:hold" // hold and standby

	// placeLife is how long a place can be shown. A room that is still admitting
	// after it gives its people the same place again by their account.
	placeLife = 30 * 24 * time.Hour

	maxTokenBytes = 2 << 10 // ours have about 300
)

// What an admission is for.
const (
	ForHold    = "hold"
	ForStandby = "standby"
)

// Place is what a Place-Token says: who joined which room, and where they stand
// once the list is frozen.
type Place struct {
	Room, Generation int64
	Account          string
	// Late is the number among those after the list, from 1; their place is the
	// list's length + Late. 0: joined for the draw; the place is looked up in the
	// list.
	Late int64
	// Ends is when the token can no longer be shown, in whole seconds.
	Ends time.Time
}

// Admit is what an Admit-Token says.
type Admit struct {
	Room, Generation int64
	Account          string
	Admission        int64  // unique within the room
	For              string // ForHold or ForStandby
	// Issued and Ends are rounded down to whole seconds. The hold compares Ends
	// with the database's clock (law 2).
	Issued, Ends time.Time
}

// Tokens issues and verifies Place-Tokens and Admit-Tokens: HS256 under the keys
// of the secret `room-key`, the first of which signs. Each kind has a `typ` and
// an `aud` of its own, so neither passes for the other, nor for an account token.
type Tokens struct {
	keys  key.Ring
	clock clock.Clock
	place *jwt.Parser
	admit *jwt.Parser
}

// NewTokens makes Tokens from the ring `room-key`; a nil clock is the system's.
func NewTokens(keys key.Ring, c clock.Clock) *Tokens {
	if c == nil {
		c = clock.System
	}
	parser := func(audience string) *jwt.Parser {
		return jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(audience),
			jwt.WithExpirationRequired(), jwt.WithTimeFunc(c.Now))
	}
	return &Tokens{keys: keys, clock: c, place: parser(placeAudience), admit: parser(admitAudience)}
}

// claims of both kinds. Room and generation are numbers; `k` is Place.Late.
type claims struct {
	jwt.RegisteredClaims
	Room       int64  `json:"room"`
	Generation int64  `json:"gen"`
	Late       int64  `json:"k,omitempty"`
	Admission  int64  `json:"adm,omitempty"`
	For        string `json:"for,omitempty"`
}

// IssuePlace signs a Place-Token that ends 30 days from now.
func (t *Tokens) IssuePlace(p Place) (string, error) {
	return t.sign(placeType, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: p.Account, Audience: jwt.ClaimStrings{placeAudience},
			ExpiresAt: jwt.NewNumericDate(t.clock.Now().Add(placeLife)),
		},
		Room: p.Room, Generation: p.Generation, Late: p.Late,
	})
}

// VerifyPlace reads a Place-Token. A forged, ended or other kind of token is
// bad-token. The caller compares room, generation and account.
func (t *Tokens) VerifyPlace(token string) (Place, error) {
	c, err := t.verify(t.place, placeType, token)
	if err != nil || c.Late < 0 {
		return Place{}, problem.New(problem.BadToken, "The Place-Token is not accepted. Join again without it.").Because(err)
	}
	return Place{Room: c.Room, Generation: c.Generation, Account: c.Subject, Late: c.Late, Ends: c.ExpiresAt.Time}, nil
}

// IssueAdmit signs an Admit-Token. The same admission gives the same token as
// long as the same key signs.
func (t *Tokens) IssueAdmit(a Admit) (string, error) {
	return t.sign(admitType, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: a.Account, Audience: jwt.ClaimStrings{admitAudience},
			IssuedAt: jwt.NewNumericDate(a.Issued), ExpiresAt: jwt.NewNumericDate(a.Ends),
		},
		Room: a.Room, Generation: a.Generation, Admission: a.Admission, For: a.For,
	})
}

// VerifyAdmit reads an Admit-Token from its signature alone, without a call. No
// token is admit-required, one that has ended admit-expired, a forged or other
// kind of token bad-token. Whether its room and account are right is the
// caller's to say (admit-other): see Check.
func (t *Tokens) VerifyAdmit(token string) (Admit, error) {
	if token == "" {
		return Admit{}, problem.New(problem.AdmitRequired, "Join the waiting room first.")
	}
	c, err := t.verify(t.admit, admitType, token)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return Admit{}, problem.New(problem.AdmitExpired, "Your admission has ended. You can join again.")
	case err != nil || c.Admission <= 0 || !slices.Contains([]string{ForHold, ForStandby}, c.For) || c.IssuedAt == nil:
		return Admit{}, problem.New(problem.BadToken, "The Admit-Token is not accepted.").Because(err)
	}
	return Admit{
		Room: c.Room, Generation: c.Generation, Account: c.Subject, Admission: c.Admission, For: c.For,
		Issued: c.IssuedAt.Time, Ends: c.ExpiresAt.Time,
	}, nil
}

// Check says whether an admission lets this account do this (ForHold or
// ForStandby) in this room: nil or admit-other. A token for standby does not
// open hold; one for hold opens both.
func (a Admit) Check(room int64, account, what string) error {
	if a.Room != room || a.Account != account || (what == ForHold && a.For != ForHold) {
		return problem.New(problem.AdmitOther, "This admission is for another room, account or purpose.")
	}
	return nil
}

func (t *Tokens) sign(typ string, c claims) (string, error) {
	k := t.keys.Sign()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, c)
	token.Header["typ"], token.Header["kid"] = typ, k.ID
	return token.SignedString(k.Bytes)
}

func (t *Tokens) verify(p *jwt.Parser, typ, token string) (*claims, error) {
	if len(token) > maxTokenBytes {
		return nil, errors.New("room: a token of " + strconv.Itoa(len(token)) + " bytes")
	}
	var c claims
	_, err := p.ParseWithClaims(token, &c, func(tok *jwt.Token) (any, error) {
		if tok.Header["typ"] != typ {
			return nil, errors.New("room: typ")
		}
		kid, _ := tok.Header["kid"].(string)
		k, ok := t.keys.Find(kid)
		if !ok {
			return nil, errors.New("room: unknown kid")
		}
		return k.Bytes, nil
	})
	if err != nil {
		return nil, err
	}
	if c.Room <= 0 || c.Generation <= 0 || c.Subject == "" {
		return nil, errors.New("room: claims")
	}
	return &c, nil
}
