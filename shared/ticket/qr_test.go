package ticket

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"handler/function/shared/key"
)

func testSigner(t testing.TB, kids ...string) *Signer {
	t.Helper()
	var lines []string
	for _, kid := range kids {
		seed := make([]byte, 32)
		_, _ = rand.Read(seed)
		lines = append(lines, kid+":"+hex.EncodeToString(seed))
	}
	ring, err := key.Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(ring)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCodeRoundTrip(t *testing.T) {
	t.Parallel()
	s := testSigner(t, "a")
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.IntRange(1, 100).Draw(t, "first")
		p := Pass{
			KeyID: "a", Sale: rapid.Int64Range(1, 1<<40).Draw(t, "sale"), Booking: rapid.Int64Range(1, 1<<22-1).Draw(t, "booking"),
			Serial: rapid.IntRange(1, 10_000).Draw(t, "serial"), Seat: rapid.IntRange(0, 100_000).Draw(t, "seat"),
			SeatName: rapid.StringMatching(`[0-9A-Z张-]{0,12}`).Draw(t, "name"), FirstLeg: first, LastLeg: first + rapid.IntRange(0, 99).Draw(t, "legs"),
			ServiceDate: rapid.SampledFrom([]string{"2000-01-01", "2026-12-24", "2028-02-29"}).Draw(t, "date"),
		}
		code, err := s.Sign(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Verify(s.Public(), " "+strings.ToLower(code)+"\n")
		if err != nil || got != p {
			t.Fatalf("%+v, %v, want %+v", got, err, p)
		}
	})
}

func TestForgedCodes(t *testing.T) {
	t.Parallel()
	old := testSigner(t, "a")
	other := testSigner(t, "a") // the same kid, another key
	p := Pass{Sale: 12, Booking: 345, Serial: 1, Seat: 40, SeatName: "3-12A", FirstLeg: 1, LastLeg: 9, ServiceDate: "2026-12-24"}
	code, err := old.Sign(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(code) > 165 {
		t.Errorf("a code has %d characters, a QR of version 7 holds 178", len(code))
	}
	if _, err := Verify(other.Public(), code); !errors.Is(err, ErrCode) {
		t.Errorf("another key: %v", err)
	}
	if _, err := Verify(nil, code); !errors.Is(err, ErrCode) {
		t.Errorf("no key: %v", err)
	}
	// Every single changed character, and every cut, is noticed.
	for i := range code {
		for _, c := range "A7" {
			if changed := code[:i] + string(c) + code[i+1:]; changed != code {
				if _, err := Verify(old.Public(), changed); !errors.Is(err, ErrCode) {
					t.Fatalf("character %d as %c: %v", i, c, err)
				}
			}
		}
		if _, err := Verify(old.Public(), code[:i]); !errors.Is(err, ErrCode) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := Verify(old.Public(), code+"A"); !errors.Is(err, ErrCode) {
		t.Error("something after it")
	}
}

func TestRotatedKeysBothVerify(t *testing.T) {
	t.Parallel()
	s := testSigner(t, "new", "old")
	code, err := s.Sign(Pass{Sale: 1, Booking: 1, Serial: 1, FirstLeg: 1, LastLeg: 1, ServiceDate: "2026-12-24"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Verify(s.Public(), code)
	if err != nil || p.KeyID != "new" || len(s.Public()) != 2 {
		t.Errorf("%+v %v", p, err)
	}
}

func FuzzVerify(f *testing.F) {
	s := testSigner(f, "a")
	code, _ := s.Sign(Pass{Sale: 1, Booking: 1, Serial: 1, FirstLeg: 1, LastLeg: 1, ServiceDate: "2026-12-24"})
	f.Add(code)
	f.Add("HF1")
	f.Fuzz(func(t *testing.T, given string) {
		if p, err := Verify(s.Public(), given); err == nil && strings.ToUpper(strings.TrimSpace(given)) != code {
			t.Errorf("%q passes as %+v", given, p)
		}
	})
}
