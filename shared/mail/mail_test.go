package mail

import (
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		" ana@Example.ORG ":      "ana@example.org",
		"Ana.B+x@example.org":    "Ana.B+x@example.org",
		"张伟@例子.公司":               "张伟@例子.公司",
		"ana@localhost":          "ana@localhost",
		"ana":                    "",
		"":                       "",
		"@example.org":           "",
		"ana@":                   "",
		"ana@nowhere":            "",
		"Ana <ana@example.org>":  "",
		"ana@example.org\r\nBcc": "",
		"a@b.org, c@d.org":       "",
		"ana@[127.0.0.1]":        "",
		strings.Repeat("a", 250) + "@example.org": "",
	} {
		got, ok := Address(in)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", in, got, ok)
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"smtp://127.0.0.1:2525": true,
		"smtps://u:p@mail.example.org?from=Holdfast%20%3Ct@example.org%3E": true,
		"smtp://mail.example.org?from=t@example.org&tls=none":              true,
		"smtp://mail.example.org":                                          false, // no sender
		"smtp://mail.example.org?from=t@x.org&tls=maybe":                   false,
		"https://mail.example.org?from=t@x.org":                            false,
		"":                                                                 false,
	} {
		if _, err := New(url); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := New("smtp://u:secret@:0?"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a password in an error: %v", err)
	}
}
