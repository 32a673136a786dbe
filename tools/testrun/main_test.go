package main

import (
	"strings"
	"testing"
)

const events = `{"Action":"run","Package":"handler/function/tests/a","Test":"TestOne"}
{"Action":"output","Package":"handler/function/tests/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"handler/function/tests/a","Test":"TestOne","Output":"    a_test.go:3: no feed\n"}
{"Action":"skip","Package":"handler/function/tests/a","Test":"TestOne","Elapsed":0}
{"Action":"output","Package":"handler/function/tests/a","Test":"TestTwo","Output":"two is wrong\n"}
{"Action":"fail","Package":"handler/function/tests/a","Test":"TestTwo","Elapsed":0}
{"Action":"output","Package":"handler/function/tests/a","Test":"TestThree","Output":"never shown\n"}
{"Action":"pass","Package":"handler/function/tests/a","Test":"TestThree","Elapsed":0}
{"Action":"skip","Package":"handler/function/tests/none","Elapsed":0}
`

func TestSkips(t *testing.T) {
	for allowed, ok := range map[string]bool{
		"tests/a TestOne needs a feed # here": true,
		"tests/a TestTwo":                     false,
		"# tests/a TestOne":                   false,
	} {
		var b strings.Builder
		r := newRun(parseSkips(allowed), &b)
		if err := r.read(strings.NewReader(events)); err != nil {
			t.Fatal(err)
		}
		if r.finish() != ok {
			t.Errorf("%q: %s", allowed, b.String())
		}
		s := b.String()
		if !strings.Contains(s, "TestOne: a_test.go:3: no feed") || !strings.Contains(s, "two is wrong") ||
			strings.Contains(s, "never shown") || !strings.Contains(s, "1 passed, 1 failed, 1 skipped") {
			t.Error(s)
		}
	}
}
