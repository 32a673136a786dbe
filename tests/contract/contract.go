// Package contract checks answers of the functions against api/openapi.yaml.
package contract

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	handler "github.com/openfaas/templates-sdk/go-http"
)

// Load reads and validates the contract, once a process.
var Load = sync.OnceValues(func() (*openapi3.T, error) {
	_, here, _, _ := runtime.Caller(0)
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(filepath.Dir(here), "..", "..", "api", "openapi.yaml"))
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

var router = sync.OnceValues(func() (routers.Router, error) {
	doc, err := Load()
	if err != nil {
		return nil, err
	}
	return legacy.NewRouter(doc)
})

// Pages, scripts, papers and calendars are checked as bare text.
func init() {
	for _, kind := range []string{"text/html", "text/css", "text/javascript", "text/calendar", "image/svg+xml", "application/pdf"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
	}
}

// Transport passes requests on and checks each answer of a function against
// the contract. A breach goes to Breach, with the answer still given; codes of
// problems are counted.
type Transport struct {
	Next   http.RoundTripper
	Breach func(error)

	mu    sync.Mutex
	codes map[string]int
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	res, err := next.RoundTrip(r)
	if err != nil || !strings.HasPrefix(r.URL.Path, "/function/") {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	t.count(body)
	if err := Check(r.Method, r.URL.Path, r.URL.RawQuery, res.StatusCode, res.Header, body); err != nil && t.Breach != nil {
		t.Breach(err)
	}
	return res, nil
}

// Codes is how often each problem code was seen.
func (t *Transport) Codes() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]int{}
	for c, n := range t.codes {
		all[c] = n
	}
	return all
}

func (t *Transport) count(body []byte) {
	var p struct {
		Type, Code string
	}
	if json.Unmarshal(body, &p) != nil || !strings.HasPrefix(p.Type, "urn:holdfast:problem:") {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.codes == nil {
		t.codes = map[string]int{}
	}
	t.codes[p.Code]++
}

// Check says how an answer breaks the contract, nil if it does not.
func Check(method, path, query string, status int, header http.Header, body []byte) error {
	r, err := router()
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, path+"?"+query, nil)
	if err != nil {
		return err
	}
	route, params, err := r.FindRoute(req)
	if err != nil {
		if status == http.StatusNotFound || status == http.StatusBadRequest {
			return nil // a function or a method that is not in the contract was refused
		}
		return fmt.Errorf("%s %s answered %d and is not in the contract: %w", method, path, status, err)
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		return fmt.Errorf("%s %s answered %d %.300s, which breaks the contract: %w", method, path, status, body, err)
	}
	if (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) && header.Get("Retry-After") == "" {
		return fmt.Errorf("%s %s answered %d without Retry-After", method, path, status)
	}
	return nil
}

// Call calls a function's handler as OpenFaaS does and checks its answer against
// the contract. Errors of both end up in t.
func Call(t testing.TB, function string, handle func(handler.Request) (handler.Response, error), req handler.Request) handler.Response {
	t.Helper()
	res, err := handle(req)
	if err != nil {
		t.Fatalf("%s returned the Go error %v", function, err)
	}
	if err := Check(req.Method, "/function/"+function, req.QueryString, res.StatusCode, res.Header, plain(res)); err != nil {
		t.Errorf("contract: %v", err)
	}
	return res
}

// plain is the body of an answer, unpacked where it is sent packed.
func plain(res handler.Response) []byte {
	if res.Header.Get("Content-Encoding") != "gzip" {
		return res.Body
	}
	r, err := gzip.NewReader(bytes.NewReader(res.Body))
	if err != nil {
		return res.Body
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return res.Body
	}
	return b
}

// EmptySchemas lists the places of the contract whose schema says nothing.
func EmptySchemas(doc *openapi3.T) []string {
	var empty []string
	seen := map[*openapi3.Schema]bool{}
	var walk func(where string, ref *openapi3.SchemaRef)
	walk = func(where string, ref *openapi3.SchemaRef) {
		if ref == nil || ref.Value == nil {
			empty = append(empty, where)
			return
		}
		s := ref.Value
		if seen[s] {
			return
		}
		seen[s] = true
		if s.Type == nil && len(s.OneOf) == 0 && len(s.AnyOf) == 0 && len(s.AllOf) == 0 && len(s.Enum) == 0 {
			empty = append(empty, where)
		}
		if s.Type != nil && s.Type.Is("object") && len(s.Properties) == 0 && s.AdditionalProperties.Schema == nil {
			empty = append(empty, where)
		}
		if s.Type != nil && s.Type.Is("array") {
			walk(where+"[]", s.Items)
		}
		for name, p := range s.Properties {
			walk(where+"."+name, p)
		}
		for i, o := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
			walk(fmt.Sprintf("%s|%d", where, i), o)
		}
	}
	for name, s := range doc.Components.Schemas {
		walk(name, s)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			if op.RequestBody != nil && op.RequestBody.Value != nil {
				for kind, m := range op.RequestBody.Value.Content {
					walk(where+" body "+kind, m.Schema)
				}
			}
			for status, res := range op.Responses.Map() {
				for kind, m := range res.Value.Content {
					walk(where+" "+status+" "+kind, m.Schema)
				}
			}
			for _, p := range op.Parameters {
				walk(where+" "+p.Value.Name, p.Value.Schema)
			}
		}
	}
	return empty
}
