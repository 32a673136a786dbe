package payment

import (
	"strings"
	"testing"
	"time"

	"handler/function/shared/problem"
)

func TestRequestValidate(t *testing.T) {
	t.Parallel()
	cases := []struct {
		gateway, url, field string
	}{
		{"sandbox", "", ""},
		{"sandbox", "https://tickets.example/back?x=1", ""},
		{"", "", "gateway"},
		{strings.Repeat("g", 41), "", "gateway"},
		{"sandbox", "javascript:alert(1)", "return_url"},
		{"sandbox", "//tickets.example", "return_url"},
		{"sandbox", "https://", "return_url"},
		{"sandbox", "https://tickets.example/" + strings.Repeat("席", maxURL), "return_url"},
	}
	for _, c := range cases {
		err := Request{Gateway: c.gateway, ReturnURL: c.url}.Validate()
		if c.field == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if p := problem.From(err); p.Code != problem.Unprocessable || p.Fields[0].Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAskWait(t *testing.T) {
	t.Parallel()
	for i, want := range []time.Duration{5, 10, 20, 40, 60, 60, 60} {
		if got := askWait(i); got != want*time.Second {
			t.Errorf("after %d questions: %s", i, got)
		}
	}
	if askWait(1<<30) != askMost {
		t.Error("after very many questions")
	}
}

// Every standing of the closing rule that can refuse a payer has its code.
func TestRefusal(t *testing.T) {
	t.Parallel()
	want := map[string]problem.Code{
		"ended": problem.HoldEnded, "late": problem.HoldEnded, "closed": problem.HoldEnded,
		"departed": problem.SaleClosed, "cancelled": problem.SaleClosed,
		"booked": problem.WrongState, "let-go": problem.WrongState, "lost": problem.WrongState,
		"not-found": problem.NotFound, "gateway": problem.Unprocessable, "too-many": problem.TooManyRequests,
	}
	for standing, code := range want {
		if err := refusal(standing); !problem.Is(err, code) {
			t.Errorf("%s: %v, want %s", standing, err, code)
		}
	}
}
