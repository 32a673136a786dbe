package wire

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestWire(t *testing.T) {
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		w.Header().Set("Retry-After", "2")
		if calls == 2 {
			w.Header().Set("Connection", "close")
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(r.Method + r.URL.String() + r.Header.Get("X-A") + b.String()))
	}))
	defer srv.Close()
	w, err := New(srv.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 4 {
		a, err := w.Do(context.Background(), "POST", "/f?x=1", []Header{{"X-A", "!"}}, []byte("body"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != 429 || string(a.Body) != "POST/f?x=1!body" || a.RetryAfter != 2*time.Second {
			t.Fatalf("%d %q %s", a.Status, a.Body, a.RetryAfter)
		}
	}
	srv.CloseClientConnections() // a kept connection that has gone is replaced
	if _, err := w.Do(context.Background(), "GET", "/", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.Do(ctx, "GET", "/", nil, nil, nil); err == nil {
		t.Fatal("an ended context was not noticed")
	}
}
