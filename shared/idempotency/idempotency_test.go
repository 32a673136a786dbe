package idempotency

import (
	"encoding/json"
	"errors"
	"testing"

	"handler/function/shared/problem"
)

func TestKeptRefusal(t *testing.T) {
	t.Parallel()
	p := problem.Invalid("gateway", "must be one of %s, at most %d", "sandbox", 3)
	b, err := json.Marshal(refusal{p.Code, p.Format, p.Args, p.Fields})
	if err != nil {
		t.Fatal(err)
	}
	a, err := row{Answer{Status: 422, Body: b}}.answer()
	var again *problem.Error
	if !a.Replay || !errors.As(err, &again) || again.Error() != p.Error() {
		t.Errorf("kept %v, came back %v", p, err)
	}
}

func TestFinal(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{200: false, 400: true, 409: true, 422: true, 429: false, 500: false, 503: false} {
		if final(status) != want {
			t.Errorf("%d: want %v", status, want)
		}
	}
}
