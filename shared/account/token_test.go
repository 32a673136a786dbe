package account

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/problem"
)

func ring(t testing.TB, kids ...string) key.Ring {
	t.Helper()
	var lines []string
	for _, kid := range kids {
		b := make([]byte, 32)
		_, _ = rand.Read(b)
		lines = append(lines, kid+":"+hex.EncodeToString(b))
	}
	r, err := key.Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func verifier(t testing.TB, o Options) *Verifier {
	t.Helper()
	v, err := NewVerifier(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestIssuedTokenVerifies(t *testing.T) {
	t.Parallel()
	keys := ring(t, "new", "old")
	v := verifier(t, Options{Keys: keys})
	now := time.Now()
	token, expires, err := Issue(keys, "", Account{ID: "张伟", Role: Organiser, Org: "via"}, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second from memory
		a, err := v.Verify("bearer " + token)
		if err != nil {
			t.Fatal(err)
		}
		if a.ID != "张伟" || a.Role != Organiser || a.Org != "via" || !a.Expires.Equal(expires) {
			t.Errorf("account %+v", a)
		}
	}
}

func TestRememberedTokenEnds(t *testing.T) {
	t.Parallel()
	keys, now := ring(t, "a"), time.Now()
	v := verifier(t, Options{Keys: keys, Clock: clock.Func(func() time.Time { return now })})
	token, _, err := Issue(keys, "", Account{ID: "ana"}, now, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify("Bearer " + token); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if _, err := v.Verify("Bearer " + token); !problem.Is(err, problem.BadToken) {
		t.Errorf("after its end: %v", err)
	}
}

// sign makes a token that may be wrong in any way.
func sign(t testing.TB, keys key.Ring, method jwt.SigningMethod, header, body map[string]any, secret any) string {
	t.Helper()
	tok := jwt.NewWithClaims(method, jwt.MapClaims(body))
	tok.Header["kid"] = keys.Sign().ID
	tok.Header["typ"] = tokenType
	for k, v := range header {
		tok.Header[k] = v
	}
	s, err := tok.SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	keys, other := ring(t, "a"), ring(t, "a")
	v := verifier(t, Options{Keys: keys})
	secret, in1h := keys.Sign().Bytes, time.Now().Add(time.Hour).Unix()
	good := func(change map[string]any) map[string]any {
		m := map[string]any{"sub": "ana", "aud": "holdfast", "exp": in1h}
		for k, v := range change {
			if v == nil {
				delete(m, k)
			} else {
				m[k] = v
			}
		}
		return m
	}
	hs := jwt.SigningMethodHS256
	if _, err := v.Verify("Bearer " + sign(t, keys, hs, nil, good(nil), secret)); err != nil {
		t.Fatalf("the pattern itself: %v", err)
	}
	for name, token := range map[string]string{
		"other key":     sign(t, keys, hs, nil, good(nil), other.Sign().Bytes),
		"unknown kid":   sign(t, keys, hs, map[string]any{"kid": "zz"}, good(nil), secret),
		"no kid":        sign(t, keys, hs, map[string]any{"kid": ""}, good(nil), secret),
		"alg none":      sign(t, keys, jwt.SigningMethodNone, nil, good(nil), jwt.UnsafeAllowNoneSignatureType),
		"HS512":         sign(t, keys, jwt.SigningMethodHS512, nil, good(nil), secret),
		"place token":   sign(t, keys, hs, map[string]any{"typ": "place+jwt"}, good(nil), secret),
		"plain typ":     sign(t, keys, hs, map[string]any{"typ": "JWT"}, good(nil), secret),
		"other aud":     sign(t, keys, hs, nil, good(map[string]any{"aud": "other"}), secret),
		"no aud":        sign(t, keys, hs, nil, good(map[string]any{"aud": nil}), secret),
		"ended":         sign(t, keys, hs, nil, good(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), secret),
		"no exp":        sign(t, keys, hs, nil, good(map[string]any{"exp": nil}), secret),
		"not yet":       sign(t, keys, hs, nil, good(map[string]any{"nbf": in1h}), secret),
		"no sub":        sign(t, keys, hs, nil, good(map[string]any{"sub": nil}), secret),
		"long sub":      sign(t, keys, hs, nil, good(map[string]any{"sub": strings.Repeat("é", MaxIDLength+1)}), secret),
		"control sub":   sign(t, keys, hs, nil, good(map[string]any{"sub": "a\x00b"}), secret),
		"house":         sign(t, keys, hs, nil, good(map[string]any{"sub": House}), secret),
		"role no text":  sign(t, keys, hs, nil, good(map[string]any{"role": 7}), secret),
		"cut off":       strings.TrimRight(sign(t, keys, hs, nil, good(nil), secret), "-_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
		"garbage":       "x.y.z",
		"very long":     strings.Repeat("a", maxTokenBytes+1),
		"provider kind": sign(t, keys, ecMethod(), nil, good(nil), ecKey(t)),
	} {
		if a, err := v.Verify("Bearer " + token); !problem.Is(err, problem.BadToken) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic YTpi", "token"} {
		if _, err := v.Verify(header); !problem.Is(err, problem.Unauthenticated) {
			t.Errorf("header %q: %v", header, err)
		}
	}
	// A role that is none of ours gives no right.
	a, err := v.Verify("Bearer " + sign(t, keys, hs, nil, good(map[string]any{"role": "admin", "org": "x"}), secret))
	if err != nil || a.Role != Customer || a.Org != "" {
		t.Errorf("unknown role: %+v, %v", a, err)
	}
	if err := a.Require(Organiser, Gate); !problem.Is(err, problem.Forbidden) {
		t.Errorf("require: %v", err)
	}
}

func ecMethod() jwt.SigningMethod { return jwt.SigningMethodES256 }

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestIdentityProvider(t *testing.T) {
	t.Parallel()
	private := ecKey(t)
	point, err := private.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	pad := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{{
			"kty": "EC", "crv": "P-256", "kid": "p1", "alg": "ES256", "use": "sig",
			"x": pad(point[1:33]), "y": pad(point[33:]),
		}}})
	}))
	t.Cleanup(provider.Close)
	keys := ring(t, "a")
	v := verifier(t, Options{Keys: keys, JWKS: provider.URL, Audience: "tickets"})
	claims := map[string]any{"sub": "oidc|7", "aud": []string{"tickets", "x"}, "exp": time.Now().Add(time.Hour).Unix(), "role": "gate"}
	good := sign(t, keys, ecMethod(), map[string]any{"kid": "p1", "typ": "at+jwt"}, claims, private)
	a, err := v.Verify("Bearer " + good)
	if err != nil || a.ID != "oidc|7" || a.Role != Gate {
		t.Fatalf("%+v, %v", a, err)
	}
	// The provider's keys do not sign for us, nor ours for it.
	for name, token := range map[string]string{
		"other key":     sign(t, keys, ecMethod(), map[string]any{"kid": "p1", "typ": "at+jwt"}, claims, ecKey(t)),
		"our typ":       sign(t, keys, ecMethod(), map[string]any{"kid": "p1"}, claims, private),
		"HMAC with kid": sign(t, keys, jwt.SigningMethodHS256, map[string]any{"kid": "p1", "typ": "at+jwt"}, claims, keys.Sign().Bytes),
	} {
		if _, err := v.Verify("Bearer " + token); !problem.Is(err, problem.BadToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	own, _, err := Issue(keys, "tickets", Account{ID: "ana"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify("Bearer " + own); err != nil {
		t.Errorf("our own beside the provider's: %v", err)
	}
}

func TestNeedsSomeKey(t *testing.T) {
	t.Parallel()
	if _, err := NewVerifier(context.Background(), Options{}); err == nil {
		t.Error("a verifier without any key")
	}
}

func TestIDOfAddress(t *testing.T) {
	t.Parallel()
	a, b := IDOfAddress("ana@example.org"), IDOfAddress("Ana@Example.org")
	if a != b || !ValidID(a) || strings.Contains(a, "ana") {
		t.Errorf("%q %q", a, b)
	}
}

func BenchmarkVerify(b *testing.B) {
	keys := ring(b, "a")
	v := verifier(b, Options{Keys: keys})
	token, _, _ := Issue(keys, "", Account{ID: "ana"}, time.Now(), time.Hour)
	b.Run("remembered", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Verify("Bearer " + token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parsed", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.parse(token); err != nil {
				b.Fatal(err)
			}
		}
	})
}
