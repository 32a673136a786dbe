package room

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

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

// Tokens issues and verifies Place-Tokens and Admit-Tokens: JWTs, HS256 under the
// keys of the secret `room-key`, the first of which signs. Each kind has a `typ`
// and an `aud` of its own, so neither passes for the other, nor for an account
// token.
//
// They are written and read here and not by a JWT library: these are our own, so
// a header is right only if it is byte for byte the one we write (no algorithm is
// ever taken from a token), and a waiting crowd shows one with every poll
// (docs/decisions/place-tokens.md).
type Tokens struct {
	clock        clock.Clock
	place, admit []signer // the signing one first
}

// signer is one key with the header of the tokens it signs.
type signer struct {
	header string // base64, with the dot behind it
	key    []byte
}

// NewTokens makes Tokens from the ring `room-key`; a nil clock is the system's.
func NewTokens(keys key.Ring, c clock.Clock) *Tokens {
	if c == nil {
		c = clock.System
	}
	signers := func(typ string) (all []signer) {
		for _, k := range keys.All() {
			head, _ := json.Marshal(map[string]string{"alg": "HS256", "kid": k.ID, "typ": typ})
			all = append(all, signer{base64.RawURLEncoding.EncodeToString(head) + ".", k.Bytes})
		}
		return all
	}
	return &Tokens{clock: c, place: signers(placeType), admit: signers(admitType)}
}

// claims of both kinds. Times are in seconds since 1970; `k` is Place.Late.
type claims struct {
	Subject    string `json:"sub"`
	Audience   string `json:"aud"`
	Issued     int64  `json:"iat,omitempty"`
	Ends       int64  `json:"exp"`
	Room       int64  `json:"room"`
	Generation int64  `json:"gen"`
	Late       int64  `json:"k,omitempty"`
	Admission  int64  `json:"adm,omitempty"`
	For        string `json:"for,omitempty"`
}

var (
	errForged = errors.New("room: the token is not one of ours")
	errEnded  = errors.New("room: the token has ended")
)

// IssuePlace signs a Place-Token that ends 30 days from now.
func (t *Tokens) IssuePlace(p Place) (string, error) {
	return t.place[0].sign(claims{
		Subject: p.Account, Audience: placeAudience, Ends: t.clock.Now().Add(placeLife).Unix(),
		Room: p.Room, Generation: p.Generation, Late: p.Late,
	})
}

// VerifyPlace reads a Place-Token. A forged, ended or other kind of token is
// bad-token. The caller compares room, generation and account.
func (t *Tokens) VerifyPlace(token string) (Place, error) {
	c, err := t.verify(t.place, placeAudience, token)
	if err != nil || c.Late < 0 {
		return Place{}, problem.New(problem.BadToken, "The Place-Token is not accepted. Join again without it.").Because(err)
	}
	return Place{Room: c.Room, Generation: c.Generation, Account: c.Subject, Late: c.Late, Ends: time.Unix(c.Ends, 0)}, nil
}

// IssueAdmit signs an Admit-Token. The same admission gives the same token as
// long as the same key signs.
func (t *Tokens) IssueAdmit(a Admit) (string, error) {
	return t.admit[0].sign(claims{
		Subject: a.Account, Audience: admitAudience, Issued: a.Issued.Unix(), Ends: a.Ends.Unix(),
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
	c, err := t.verify(t.admit, admitAudience, token)
	switch {
	case errors.Is(err, errEnded):
		return Admit{}, problem.New(problem.AdmitExpired, "Your admission has ended. You can join again.")
	case err != nil || c.Admission <= 0 || (c.For != ForHold && c.For != ForStandby) || c.Issued <= 0:
		return Admit{}, problem.New(problem.BadToken, "The Admit-Token is not accepted.").Because(err)
	}
	return Admit{
		Room: c.Room, Generation: c.Generation, Account: c.Subject, Admission: c.Admission, For: c.For,
		Issued: time.Unix(c.Issued, 0), Ends: time.Unix(c.Ends, 0),
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

func (s signer) sign(c claims) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	b := make([]byte, 0, len(s.header)+2*len(body)+48)
	b = append(b, s.header...)
	b = base64.RawURLEncoding.AppendEncode(b, body)
	h := hmac.New(sha256.New, s.key)
	h.Write(b)
	b = append(b, '.')
	return string(base64.RawURLEncoding.AppendEncode(b, h.Sum(nil))), nil
}

// verify checks header, signature, audience and end, in this order: what is not
// signed by us is not looked into.
func (t *Tokens) verify(signers []signer, audience, token string) (c claims, err error) {
	dot := strings.LastIndexByte(token, '.')
	if len(token) > maxTokenBytes || dot < 0 {
		return c, errForged
	}
	for _, s := range signers {
		body, ours := strings.CutPrefix(token[:dot], s.header)
		if !ours {
			continue
		}
		h := hmac.New(sha256.New, s.key)
		h.Write([]byte(token[:dot]))
		sum, err := base64.RawURLEncoding.Strict().DecodeString(token[dot+1:])
		if err != nil || !hmac.Equal(sum, h.Sum(nil)) {
			return c, errForged
		}
		plain, err := base64.RawURLEncoding.Strict().DecodeString(body)
		if err != nil || json.Unmarshal(plain, &c) != nil {
			return c, errForged
		}
		if c.Audience != audience || c.Room <= 0 || c.Generation <= 0 || c.Subject == "" {
			return c, errForged
		}
		if t.clock.Now().Unix() >= c.Ends {
			return c, errEnded
		}
		return c, nil
	}
	return c, errForged
}
