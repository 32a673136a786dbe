package sms

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

type got struct {
	header http.Header
	body   string
}

func provider(t *testing.T, status int) (string, chan got) {
	t.Helper()
	c := make(chan got, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		c <- got{r.Header, string(b)}
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, c
}

func TestSendJSON(t *testing.T) {
	t.Parallel()
	address, c := provider(t, http.StatusAccepted)
	s, err := New(strings.Replace(address, "http://", "http://u:p@", 1) + "/send?sender=Holdfast")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), "id-1", "00 1 (902) 555-0100", "座位"); err != nil {
		t.Fatal(err)
	}
	g := <-c
	var m map[string]string
	if err := json.Unmarshal([]byte(g.body), &m); err != nil || m["to"] != "+19025550100" || m["text"] != "座位" || m["sender"] != "Holdfast" {
		t.Errorf("%s %v", g.body, err)
	}
	if g.header.Get("Idempotency-Key") != "id-1" || !strings.HasPrefix(g.header.Get("Authorization"), "Basic ") {
		t.Errorf("%v", g.header)
	}
}

func TestSendForm(t *testing.T) {
	t.Parallel()
	address, c := provider(t, http.StatusCreated)
	s, err := New(address + "/Messages?format=form&to_field=To&text_field=Body&From=%2B1555")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), "id-1", "+8613800000000", strings.Repeat("长", 500)); err != nil {
		t.Fatal(err)
	}
	v, err := url.ParseQuery((<-c).body)
	if err != nil || v.Get("To") != "+8613800000000" || v.Get("From") != "+1555" || len([]rune(v.Get("Body"))) != MaxText || len(v) != 3 {
		t.Errorf("%v %v", v, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{http.StatusBadRequest: ErrRefused, http.StatusTooManyRequests: ErrDown, http.StatusFound: ErrDown, 503: ErrDown} {
		address, _ := provider(t, status)
		s, err := New(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(t.Context(), "i", "+19025550100", "x"); !errors.Is(err, want) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	s, err := New("http://127.0.0.1:1/")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), "i", "+19025550100", "x"); !errors.Is(err, ErrDown) {
		t.Errorf("nobody there: %v", err)
	}
	if err := s.Send(t.Context(), "i", "911", "x"); !errors.Is(err, ErrRefused) {
		t.Errorf("a short number: %v", err)
	}
	for _, bad := range []string{"", "ftp://x", "https://x?format=xml"} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q is an sms-url", bad)
		}
	}
}
