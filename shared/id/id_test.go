package id

import (
	"reflect"
	"strings"
	"testing"

	"handler/function/shared/key"
)

func ring(t *testing.T, lines ...string) key.Ring {
	t.Helper()
	r, err := key.Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	first  = "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	second = "k2:202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	m := New(ring(t, first))
	for _, r := range []OrderRef{
		{Sale: 1, Number: 1, From: 1, To: 1, Classes: []int{0}, Account: TagOf("a")},
		{Sale: 1<<32 - 1, Number: 1 << 60, From: 1, To: 100, Classes: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, Account: TagOf(strings.Repeat("é", 64))},
		{Sale: 300, Number: 128, From: 84, To: 84, Classes: []int{200, 0}, Account: TagOf("a")},
	} {
		s := m.Order(r)
		got, err := m.ParseOrder(s)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %q and %+v, %v", r, s, got, err)
		}
		if !strings.HasPrefix(s, "O") || len(s) > 100 {
			t.Errorf("%q is no order id of at most 100 characters", s)
		}
		// A key is added, never replaced.
		if _, err := New(ring(t, second, first)).ParseOrder(s); err != nil {
			t.Errorf("with a key added: %v", err)
		}
		for what, bad := range map[string]string{
			"another key": New(ring(t, second)).Order(r), "cut": s[:len(s)-1], "longer": s + "0", "of a booking": "B" + s[1:],
			"lower case": strings.ToLower(s), "empty": "", "a letter": "O",
		} {
			if got, err := m.ParseOrder(bad); err == nil {
				t.Errorf("%s: %q is read as %+v", what, bad, got)
			}
		}
	}
	r, _ := m.ParseOrder(m.Order(OrderRef{Sale: 1, Number: 1, From: 1, To: 1, Classes: []int{0}, Account: TagOf("a")}))
	if !r.Of("a") || r.Of("b") {
		t.Error("whose it is is not told")
	}
	// One without a class, or with legs the wrong way round, is none, whoever signed it.
	for _, r := range []OrderRef{{Sale: 1, Number: 1, From: 1, To: 1}, {Sale: 1, Number: 1, From: 2, To: 1, Classes: []int{0}}, {Number: 1, From: 1, To: 1, Classes: []int{0}}} {
		if _, err := m.ParseOrder(m.Order(r)); err == nil {
			t.Errorf("%+v is read", r)
		}
	}
}
