package contract

import (
	"net/http"
	"slices"
	"testing"

	"handler/function/shared/problem"
)

func TestContractIsWhole(t *testing.T) {
	doc, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if empty := EmptySchemas(doc); len(empty) > 0 {
		t.Errorf("schemas that say nothing: %q", empty)
	}
	codes := doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum
	for _, c := range problem.Codes() {
		if !slices.Contains(codes, any(string(c))) {
			t.Errorf("the code %s is not in the contract", c)
		}
	}
	if len(codes) != len(problem.Codes()) {
		t.Errorf("the contract has %d codes, the table %d", len(codes), len(problem.Codes()))
	}
}

// A check that cannot fail checks nothing.
func TestCheckFindsBreaches(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json"}, "X-Trace-Id": {"t"}}
	for name, c := range map[string]struct {
		status int
		body   string
		header http.Header
		ok     bool
	}{
		"right":           {200, `{"received":true}`, json, true},
		"another field":   {200, `{"received":true,"more":1}`, json, false},
		"a missing field": {200, `{}`, json, false},
		"no trace id":     {200, `{"received":true}`, http.Header{"Content-Type": {"application/json"}}, false},
		"another type":    {200, `{"received":true}`, http.Header{"Content-Type": {"text/plain"}, "X-Trace-Id": {"t"}}, false},
		"a bare 503":      {503, `{"type":"urn:holdfast:problem:unavailable","title":"t","status":503,"detail":"d","code":"unavailable","trace_id":"t"}`, http.Header{"Content-Type": {"application/problem+json"}, "X-Trace-Id": {"t"}}, false},
		"unknown code":    {400, `{"type":"urn:holdfast:problem:x","title":"t","status":400,"detail":"d","code":"x","trace_id":"t"}`, http.Header{"Content-Type": {"application/problem+json"}, "X-Trace-Id": {"t"}}, false},
	} {
		if err := Check("POST", "/function/confirm", "gateway=sandbox", c.status, c.header, []byte(c.body)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
