package outbox

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 10 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute}
	for i, w := range want {
		if got := Wait(i + 1); got != w {
			t.Errorf("after %d failures: %s, want %s", i+1, got, w)
		}
	}
	if got := Wait(1 << 20); got != longest {
		t.Errorf("after very many failures: %s", got)
	}
}

func TestDown(t *testing.T) {
	t.Parallel()
	cause := errors.New("no route")
	if !IsDown(fmt.Errorf("sending: %w", Down(cause))) || !errors.Is(Down(cause), cause) {
		t.Error("Down is lost when wrapped, or loses its cause")
	}
	if IsDown(cause) || Down(nil) != nil {
		t.Error("Down where there is none")
	}
}
