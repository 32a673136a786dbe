package sandbox

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"handler/function/shared/key"
	"handler/function/shared/payment"
)

func ring(t *testing.T, file string) key.Ring {
	t.Helper()
	r, err := key.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSignature(t *testing.T) {
	t.Parallel()
	old := "old:" + strings.Repeat("ab", 32)
	both := ring(t, "new:"+strings.Repeat("cd", 32)+"\n"+old)
	body, now := []byte(`{"id":"e1"}`), time.Unix(1_800_000_000, 0)
	good := Sign(ring(t, old).Sign(), now, body)
	cases := []struct {
		name   string
		header string
		body   string
		now    time.Time
		ok     bool
	}{
		{"an older key of the ring", good, string(body), now, true},
		{"two signatures, one right", good + ",v1=" + strings.Repeat("00", 32), string(body), now, true},
		{"five minutes old", good, string(body), now.Add(MaxAge), true},
		{"older", good, string(body), now.Add(MaxAge + time.Second), false},
		{"from the future", good, string(body), now.Add(-MaxAge - time.Second), false},
		{"another body", good, `{"id":"e2"}`, now, false},
		{"none", "", string(body), now, false},
		{"no time", strings.TrimPrefix(good, "t=1800000000,"), string(body), now, false},
		{"another time", strings.Replace(good, "t=1800000000", "t=1800000001", 1), string(body), now, false},
		{"not hex", "t=1800000000,v1=zz", string(body), now, false},
		{"empty tag", "t=1800000000,v1=", string(body), now, false},
	}
	for _, c := range cases {
		err := CheckSignature(both, c.header, []byte(c.body), c.now)
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, payment.ErrSignature)) {
			t.Errorf("%s: %v, want ok %v", c.name, err, c.ok)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	r := ring(t, "k1:"+strings.Repeat("ab", 32))
	c, err := New("http://127.0.0.1:1/dev/gateway/", r)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	body := []byte(`{"id":"e1","type":"payment.succeeded","payment":{"reference":"sb_1","amount":1935,"currency":"JPY","metadata":{"payment":"P1"}}}`)
	h := http.Header{SignatureHeader: {Sign(r.Sign(), now, body)}}
	e, err := c.Verify(h, body, now)
	if err != nil || e.Gateway != "sandbox" || e.ID != "e1" || e.Type != payment.PaymentSucceeded || e.Payment != "P1" || e.Amount.Amount != 1935 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{`{`, `{"id":"","type":"x","payment":{"reference":"r"}}`, `{"id":"e","type":"x","payment":{}}`} {
		h.Set(SignatureHeader, Sign(r.Sign(), now, []byte(bad)))
		if _, err := c.Verify(h, []byte(bad), now); err == nil || errors.Is(err, payment.ErrSignature) {
			t.Errorf("%s: %v, want an error about the body", bad, err)
		}
	}
	if _, err := New("dev/gateway", r); err == nil {
		t.Error("an address without host was taken")
	}
}
