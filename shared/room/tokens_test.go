package room

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"handler/function/shared/account"
	"handler/function/shared/clock"
	"handler/function/shared/problem"
)

const (
	key1 = "k1:1111111111111111111111111111111111111111111111111111111111111111"
	key2 = "k2:2222222222222222222222222222222222222222222222222222222222222222"
)

func TestTokensCarryWhatTheySay(t *testing.T) {
	tokens := NewTokens(ring(t, key1), nil)
	place := Place{Room: 7, Generation: 2, Account: "张伟", Late: 1 << 52}
	s, err := tokens.IssuePlace(place)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokens.VerifyPlace(s)
	place.Ends = got.Ends
	if err != nil || got != place {
		t.Fatalf("%+v %v", got, err)
	}
	now := time.Now().Truncate(time.Second)
	admit := Admit{Room: 7, Generation: 2, Account: "张伟", Admission: 9, For: ForHold, Issued: now, Ends: now.Add(time.Minute)}
	s, _ = tokens.IssueAdmit(admit)
	again, _ := tokens.IssueAdmit(admit)
	if s != again {
		t.Fatal("the same admission gives two tokens")
	}
	read, err := tokens.VerifyAdmit(s)
	if err != nil || !read.Ends.Equal(admit.Ends) || read.Admission != 9 || read.Account != "张伟" {
		t.Fatalf("%+v %v", read, err)
	}
}

func TestTokensAfterRotation(t *testing.T) {
	before := NewTokens(ring(t, key1), nil)
	during := NewTokens(ring(t, key2+"\n"+key1), nil)
	after := NewTokens(ring(t, key2), nil)
	s, _ := before.IssuePlace(Place{Room: 1, Generation: 1, Account: "a"})
	if _, err := during.VerifyPlace(s); err != nil {
		t.Fatalf("the older key still verifies: %v", err)
	}
	if _, err := after.VerifyPlace(s); !problem.Is(err, problem.BadToken) {
		t.Fatalf("a withdrawn key: %v", err)
	}
	s, _ = during.IssuePlace(Place{Room: 1, Generation: 1, Account: "a"})
	if _, err := after.VerifyPlace(s); err != nil {
		t.Fatalf("the newer key signs: %v", err)
	}
}

func TestTokensThatAreNot(t *testing.T) {
	now := time.Unix(2_000_000_000, 0)
	tick := func() time.Time { return now }
	keys := ring(t, key1)
	tokens := NewTokens(keys, clock.Func(tick))
	place, _ := tokens.IssuePlace(Place{Room: 1, Generation: 1, Account: "a"})
	admit, _ := tokens.IssueAdmit(Admit{Room: 1, Generation: 1, Account: "a", Admission: 1, For: ForHold, Issued: now, Ends: now.Add(time.Minute)})
	acc, _, err := account.Issue(keys, "", account.Account{ID: "a"}, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := NewTokens(ring(t, "k1:3333333333333333333333333333333333333333333333333333333333333333"), clock.Func(tick)).
		IssuePlace(Place{Room: 1, Generation: 1, Account: "a"})
	none := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "a", "aud": placeAudience, "room": 1, "gen": 1, "exp": now.Add(time.Hour).Unix()})
	none.Header["typ"], none.Header["kid"] = placeType, "k1"
	unsigned, _ := none.SignedString(jwt.UnsafeAllowNoneSignatureType)

	for name, s := range map[string]string{
		"empty": "", "nonsense": "a.b.c", "admit token": admit, "account token": acc, "forged": other, "alg none": unsigned,
		"changed": place[:len(place)-2] + "AA", "huge": strings.Repeat("a", 1<<20),
	} {
		if _, err := tokens.VerifyPlace(s); !problem.Is(err, problem.BadToken) {
			t.Errorf("place, %s: %v", name, err)
		}
	}
	for name, s := range map[string]string{"place token": place, "account token": acc, "nonsense": "x"} {
		if _, err := tokens.VerifyAdmit(s); !problem.Is(err, problem.BadToken) {
			t.Errorf("admit, %s: %v", name, err)
		}
	}
	if _, err := tokens.VerifyAdmit(""); !problem.Is(err, problem.AdmitRequired) {
		t.Errorf("no admit token: %v", err)
	}
	v, err := account.NewVerifier(t.Context(), account.Options{Keys: keys, Clock: clock.Func(tick)})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{"place": place, "admit": admit} {
		if _, err := v.Verify("Bearer " + s); err == nil {
			t.Errorf("a %s token passes for an account token", name)
		}
	}
	now = now.Add(time.Minute)
	if _, err := tokens.VerifyAdmit(admit); !problem.Is(err, problem.AdmitExpired) {
		t.Errorf("ended: %v", err)
	}
	now = now.Add(placeLife)
	if _, err := tokens.VerifyPlace(place); !problem.Is(err, problem.BadToken) {
		t.Errorf("an ended place token: %v", err)
	}
	if _, err := tokens.VerifyAdmit(admit[:len(admit)-2] + "AA"); !problem.Is(err, problem.BadToken) {
		t.Errorf("ended and forged: %v", err)
	}
}

func TestCheckOfAnAdmission(t *testing.T) {
	a := Admit{Room: 1, Account: "a", For: ForHold}
	if a.Check(1, "a", ForHold) != nil || a.Check(1, "a", ForStandby) != nil {
		t.Error("its own is refused")
	}
	for _, err := range []error{a.Check(2, "a", ForHold), a.Check(1, "b", ForHold), Admit{Room: 1, Account: "a", For: ForStandby}.Check(1, "a", ForHold)} {
		if !problem.Is(err, problem.AdmitOther) {
			t.Errorf("%v", err)
		}
	}
}
