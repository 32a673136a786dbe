// Package fn is the plumbing between OpenFaaS and the domain: it reads a
// request strictly, writes answers and problems, and holds the process's pools.
// It is the only package with process-wide state.
package fn

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"handler/function/shared/account"
	"handler/function/shared/problem"
	"handler/function/shared/text"

	handler "github.com/openfaas/templates-sdk/go-http"
)

// Limits of a request (api/openapi.yaml, Common).
const (
	MaxBody       = 64 << 10 // bytes of a JSON body
	MaxImportBody = 1 << 20  // bytes of an import or a webhook
	maxQuery      = 4 << 10  // bytes of a query string
	maxKey        = 128      // characters of an Idempotency-Key
	maxTraceID    = 64
	maxNames      = 64               // fields of one object that are looked at for a second mention
	longest       = 65 * time.Second // of any request: the longest exec_timeout of stack.yml and a little
)

// Request is what a handler sees: no path and no host (DESIGN section 3).
type Request struct {
	Method  string
	Query   url.Values
	Header  http.Header
	Body    []byte
	Lang    text.Lang
	TraceID string
	Client  netip.Addr // the customer's address; zero when no trusted proxy vouches for it
}

// Response is an answer. A zero Status is 200.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Func answers one method of a function.
type Func func(ctx context.Context, app *App, r *Request) (Response, error)

// Methods maps an HTTP method to what answers it.
type Methods map[string]Func

// Serve makes the Handle of a function. The returned Go error is always nil:
// OpenFaaS would make a bare 500 of it, and ours says more.
func Serve(name string, methods Methods) func(handler.Request) (handler.Response, error) {
	return func(raw handler.Request) (handler.Response, error) {
		started := time.Now()
		r, err := read(raw)
		var res Response
		if err == nil {
			res, err = answer(raw.Context(), r, methods)
		}
		if err != nil {
			res = refuse(name, r, err)
		}
		if res.Status == 0 {
			res.Status = http.StatusOK
		}
		if res.Header == nil {
			res.Header = http.Header{}
		}
		res.Header.Set("X-Trace-Id", r.TraceID)
		observe(name, res.Status, time.Since(started))
		return handler.Response{Body: res.Body, StatusCode: res.Status, Header: res.Header}, nil
	}
}

func answer(ctx context.Context, r *Request, methods Methods) (res Response, err error) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, traceKey{}, r.TraceID), longest)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	f, ok := methods[r.Method]
	if !ok {
		allowed := make([]string, 0, len(methods))
		for m := range methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		return Response{}, problem.Malformed("method", "must be one of %s", strings.Join(allowed, ", "))
	}
	app, err := Default()
	if err != nil {
		return Response{}, err
	}
	r.Client = app.clientOf(r.Header)
	return f(ctx, app, r)
}

func read(raw handler.Request) (*Request, error) {
	r := &Request{
		Method: raw.Method, Header: raw.Header, Body: raw.Body,
		Query: url.Values{}, Lang: text.English,
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.TraceID = traceOf(r.Header)
	r.Lang = text.Match(r.Header.Get("Accept-Language"))
	if len(raw.QueryString) > maxQuery {
		return r, problem.Malformed("query", "must be at most %d bytes", maxQuery)
	}
	q, err := url.ParseQuery(raw.QueryString)
	if err != nil {
		return r, problem.Malformed("query", "must be well-formed")
	}
	for name, values := range q {
		if len(values) > 1 {
			return r, problem.Malformed(printable(name), "must be given once")
		}
		if !clean(name) || !clean(values[0]) {
			return r, problem.Malformed(printable(name), "must be UTF-8 without control characters")
		}
	}
	r.Query = q
	return r, nil
}

// clean says whether text can be kept in Postgres and shown: UTF-8, no NUL.
func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// printable makes a caller's field name safe to repeat.
func printable(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60])
	}
	if strings.TrimSpace(s) == "" {
		s = strconv.Quote(s)
	}
	return s
}

type traceKey struct{}

// TraceID is the trace id of the request that ctx belongs to, "" for none.
func TraceID(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}

func traceOf(h http.Header) string {
	if p := strings.Split(h.Get("Traceparent"), "-"); len(p) == 4 && len(p[1]) == 32 && isToken(p[1]) {
		return p[1]
	}
	if id := h.Get("X-Call-Id"); id != "" && len(id) <= maxTraceID && isToken(id) {
		return id
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isToken(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// Params refuses a query parameter that is not known, naming it.
func (r *Request) Params(known ...string) error {
	for name := range r.Query {
		if !slices.Contains(known, name) {
			return problem.Malformed(printable(name), "is not known here; known are: %s", strings.Join(known, ", "))
		}
	}
	return nil
}

// Decode reads the JSON body, at most MaxBody bytes, into v, a pointer to a
// struct. An unknown field, a wrong type, text after the object or a NUL in a
// text is a bad-request that names the field.
func (r *Request) Decode(v any) error { return r.DecodeMax(v, MaxBody) }

// DecodeMax is Decode with another limit, in bytes.
func (r *Request) DecodeMax(v any, limit int) error {
	if len(r.Query) > 0 {
		if err := r.Params(); err != nil {
			return err
		}
	}
	if len(r.Body) > limit {
		return problem.Malformed("body", "must be at most %d bytes", limit)
	}
	if !utf8.Valid(r.Body) {
		return problem.Malformed("body", "must be UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return decodeProblem(err, r.Body)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problem.Malformed("body", "must be one JSON object and nothing after it")
	}
	if err := checkNames(r.Body); err != nil {
		return err
	}
	if bytes.Contains(r.Body, []byte(`\u0000`)) {
		if path, bad := nulIn(reflect.ValueOf(v), ""); bad {
			return problem.Malformed(path, "must not hold the character NUL")
		}
	}
	return nil
}

// nulIn finds a text with a NUL, which Postgres cannot keep.
func nulIn(v reflect.Value, path string) (string, bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return nulIn(v.Elem(), path)
		}
	case reflect.String:
		return path, strings.IndexByte(v.String(), 0) >= 0
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return path, v.Kind() == reflect.Slice && bytes.Contains(v.Bytes(), []byte(`\u0000`))
		}
		for i := range v.Len() {
			if p, bad := nulIn(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); bad {
				return p, true
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			if k.Kind() == reflect.String && strings.IndexByte(k.String(), 0) >= 0 {
				return path, true
			}
			if p, bad := nulIn(v.MapIndex(k), join(path, fmt.Sprint(k.Interface()))); bad {
				return p, true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if f.Anonymous {
				name = ""
			}
			if p, bad := nulIn(v.Field(i), join(path, name)); bad {
				return p, true
			}
		}
	}
	return "", false
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// checkNames refuses what encoding/json lets pass: a field's name in other
// letters (every name of the contract is small) and a field given twice. body is
// valid JSON.
func checkNames(body []byte) error {
	var objects [][]string // the names seen of each object we are in; nil for a list
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{':
			objects = append(objects, []string{})
		case '[':
			objects = append(objects, nil)
		case '}', ']':
			objects = objects[:len(objects)-1]
		case '"':
			start := i + 1
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			name, after := string(body[start:i]), i+1
			for after < len(body) && (body[after] == ' ' || body[after] == '\n' || body[after] == '\r' || body[after] == '\t') {
				after++
			}
			if after == len(body) || body[after] != ':' {
				continue // a text, not a name
			}
			in := len(objects) - 1
			switch {
			case strings.ToLower(name) != name || strings.IndexByte(name, '\\') >= 0:
				return problem.Malformed(printable(name), "is not a field of this request")
			case slices.Contains(objects[in], name):
				return problem.Malformed(printable(name), "must be given once")
			case len(objects[in]) < maxNames:
				objects[in] = append(objects[in], name)
			}
		}
	}
	return nil
}

// named is a field's path without the parts that are Go's embedded structs, of
// which the caller knows nothing.
func named(path string, body []byte) string {
	parts := strings.Split(path, ".")
	parts = slices.DeleteFunc(parts, func(p string) bool { return !bytes.Contains(body, []byte(strconv.Quote(p))) })
	if len(parts) == 0 {
		return "body"
	}
	return strings.Join(parts, ".")
}

// valueOf is the name of the first field that has this text as its value.
func valueOf(text string, body []byte) string {
	quoted := regexp.QuoteMeta(strconv.Quote(text))
	if m := regexp.MustCompile(`"([a-z0-9_]+)"\s*:\s*` + quoted).FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return "body"
}

func decodeProblem(err error, body []byte) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	var when *time.ParseError
	var p *problem.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &wrong):
		return problem.Malformed(printable(named(wrong.Field, body)), "must be %s, not %s", jsonKind(wrong.Type), wrong.Value)
	case errors.As(err, &when):
		text := when.Value
		if unquoted, err := strconv.Unquote(text); err == nil {
			text = unquoted
		}
		return problem.Malformed(valueOf(text, body), "must be a time as RFC 3339 writes it, with an offset")
	case errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return problem.Malformed("body", "must be a JSON object")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if unquoted, err := strconv.Unquote(name); err == nil {
			name = unquoted
		}
		return problem.Malformed(printable(name), "is not a field of this request")
	}
	return problem.Malformed("body", "must be a JSON object as the contract describes it").Because(err)
}

func jsonKind(t reflect.Type) string {
	if t == nil {
		return "another type"
	}
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number in range"
	default:
		return "a number"
	}
}

// IdempotencyKey is the request's key, 1 to 128 visible ASCII characters; a
// missing or wrong one is a 422.
func (r *Request) IdempotencyKey() (string, error) {
	k := r.Header.Get("Idempotency-Key")
	if k == "" || len(k) > maxKey {
		return "", problem.Invalid("Idempotency-Key", "must be given in the header, 1 to %d characters", maxKey)
	}
	for i := range len(k) {
		if k[i] < 0x21 || k[i] > 0x7e {
			return "", problem.Invalid("Idempotency-Key", "must be visible ASCII characters")
		}
	}
	return k, nil
}

// Account is the caller, from the Authorization header; unauthenticated or
// bad-token when there is none.
func (r *Request) Account(app *App) (account.Account, error) {
	v, err := app.Verifier()
	if err != nil {
		return account.Account{}, err
	}
	return v.Verify(r.Header.Get("Authorization"))
}

// JSON is an answer with a JSON body.
func JSON(status int, v any) Response {
	b, err := json.Marshal(v)
	if err != nil {
		panic("fn: an answer that is no JSON: " + err.Error())
	}
	return Bytes(status, "application/json", b)
}

// Bytes is an answer with any body.
func Bytes(status int, contentType string, b []byte) Response {
	return Response{Status: status, Header: http.Header{"Content-Type": {contentType}}, Body: b}
}

// With sets a header.
func (res Response) With(name, value string) Response {
	res.Header.Set(name, value)
	return res
}

type problemBody struct {
	Type    string         `json:"type"`
	Title   string         `json:"title"`
	Status  int            `json:"status"`
	Detail  string         `json:"detail"`
	Code    problem.Code   `json:"code"`
	TraceID string         `json:"trace_id"`
	Errors  []problemField `json:"errors,omitempty"`
}

type problemField struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func refuse(name string, r *Request, err error) Response {
	p := problem.From(err)
	if p.Code == problem.Internal && errors.Is(err, context.Canceled) {
		// The caller has gone, or the function is told to stop.
		p = problem.New(problem.Unavailable, "System busy, please wait").Because(err)
	}
	if p.Code == problem.Internal {
		slog.Error("internal", "function", name, "trace_id", r.TraceID, "error", err)
	} else if p.Cause != nil {
		slog.Warn("refused", "function", name, "trace_id", r.TraceID, "error", err)
	}
	body := problemBody{
		Type: "urn:holdfast:problem:" + string(p.Code), Title: text.Sprintf(r.Lang, p.Code.Title()),
		Status: p.Code.Status(), Detail: text.Sprintf(r.Lang, p.Format, p.Args...), Code: p.Code, TraceID: r.TraceID,
	}
	if p.Format == "" {
		body.Detail = body.Title
	}
	for _, f := range p.Fields {
		body.Errors = append(body.Errors, problemField{Field: f.Field, Detail: text.Sprintf(r.Lang, f.Format, f.Args...)})
	}
	b, _ := json.Marshal(body)
	res := Bytes(body.Status, "application/problem+json", b).With("Cache-Control", "no-store")
	if p.Replay {
		res.Header.Set("Idempotent-Replay", "true")
	}
	if body.Status == http.StatusTooManyRequests || body.Status == http.StatusServiceUnavailable {
		after := max(1, int(math.Ceil(p.RetryAfter.Seconds())))
		res.Header.Set("Retry-After", strconv.Itoa(after))
	}
	return res
}
