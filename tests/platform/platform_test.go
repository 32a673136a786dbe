// Package platform tests that `holdfast up` behaves as the real gateway,
// watchdog and connectors do (DESIGN section 3), with functions made for it: in
// one process and with a process for each function.
package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/smtp"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/cmd/holdfast/platform"
	"handler/function/tests/harness"
)

const stackYML = `
version: 1.0
provider: {name: openfaas, gateway: "http://127.0.0.1:8080"}
functions:
  echo:
    lang: golang-http
    handler: ./echo
    image: echo
    environment: {read_timeout: 5s, exec_timeout: 1s, write_timeout: 3s, max_inflight: "2"}
    secrets: [room-key]
  plain:
    lang: golang-http
    handler: ./plain
    image: plain
  tick:
    lang: golang-http
    handler: ./tick
    image: tick
    annotations: {topic: cron-function, schedule: "@every 1s"}
  six:
    lang: golang-http
    handler: ./six
    image: six
    annotations: {topic: cron-function, schedule: "*/1 * * * * *"}
  nudged:
    lang: golang-http
    handler: ./nudged
    image: nudged
    annotations: {topic: "made.0,made.1"}
`

// seen is what a function tells about the request it got.
type seen struct {
	Method  string      `json:"method"`
	Query   string      `json:"query"`
	Host    string      `json:"host"`
	Header  http.Header `json:"header"`
	Body    string      `json:"body"`
	Pid     int         `json:"pid"`
	Secrets []string    `json:"secrets"`
}

// gates hold functions of the in-process platform until a test lets them go.
var (
	entered   = make(chan string, 1024) // bodies of calls that have begun
	release   = make(chan struct{}, 1024)
	cancelled = make(chan error, 16)
	runs      sync.Map // function → *atomic.Int64
)

func count(name string) *atomic.Int64 {
	n, _ := runs.LoadOrStore(name, new(atomic.Int64))
	return n.(*atomic.Int64)
}

var functions = map[string]platform.Handle{
	"echo": func(r handler.Request) (handler.Response, error) {
		switch string(r.Body) {
		case "fail":
			return handler.Response{StatusCode: 422, Body: []byte("not seen")}, errors.New("a Go error")
		case "panic":
			panic("in the function")
		case "wait":
			entered <- "wait"
			<-release
		case "sleep":
			select {
			case <-r.Context().Done():
				cancelled <- r.Context().Err()
			case <-time.After(10 * time.Second):
				cancelled <- nil
			}
		case "slow": // longer than a kill takes
			time.Sleep(900 * time.Millisecond)
		}
		s := seen{Method: r.Method, Query: r.QueryString, Host: r.Host, Header: r.Header, Body: string(r.Body), Pid: os.Getpid()}
		files, _ := os.ReadDir(os.Getenv("HOLDFAST_SECRETS"))
		for _, f := range files {
			s.Secrets = append(s.Secrets, f.Name())
		}
		b, err := json.Marshal(s)
		return handler.Response{StatusCode: 201, Body: b, Header: http.Header{"Content-Type": {"application/json"}, "X-Mine": {"a", "b"}}}, err
	},
	"plain": func(handler.Request) (handler.Response, error) {
		return handler.Response{Body: []byte("<html>")}, nil
	},
	"tick": func(handler.Request) (handler.Response, error) {
		n := count("tick").Add(1)
		if n == 1 {
			entered <- "tick"
			<-release // the first run outlasts the second: runs overlap
		}
		return handler.Response{}, nil
	},
	"six": func(handler.Request) (handler.Response, error) {
		count("six").Add(1)
		return handler.Response{}, nil
	},
	"nudged": func(r handler.Request) (handler.Response, error) {
		entered <- r.Header.Get("X-Topic") + " " + string(r.Body) + " " + r.Header.Get("Mine")
		<-release
		if string(r.Body) == "bad" {
			return handler.Response{StatusCode: 500}, nil
		}
		return handler.Response{Body: []byte("an answer nobody gets")}, nil
	},
}

// TestMain is also the process of one function and of the NATS server, as the
// hidden commands of holdfast are.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Getenv("PLATFORM_TEST_CHILD") == "1" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		var err error
		switch os.Args[1] {
		case "function":
			var l platform.Limits
			if l, err = platform.LimitsOf(env()); err == nil {
				err = platform.RunFunction(ctx, functions[os.Args[2]], l)
			}
		case "nats":
			err = platform.RunNATS(ctx, os.Args[3], 0)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func env() map[string]string {
	m := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}

// start starts the platform on services of the test's own.
func start(t *testing.T, o platform.Options) *platform.Running {
	t.Helper()
	s := harness.New(t)
	stack, err := platform.ParseStack([]byte(stackYML))
	if err != nil {
		t.Fatal(err)
	}
	o.Stack, o.Functions, o.Data = stack, functions, t.TempDir()
	o.PostgresURL, o.PostgresAppURL, o.RedisURL, o.NATSURL = s.DB.OwnerURL, s.DB.AppURL, s.Redis.URL, s.NATS.URL
	o.Env = map[string]string{"PLATFORM_TEST_CHILD": "1"}
	p, err := platform.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// call makes a request and returns the status, the headers and the body.
func call(t *testing.T, method, url, body string, header http.Header) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

// The gateway's habits, the same whether a function runs inside or outside.
func TestGateway(t *testing.T) {
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
			p := start(t, platform.Options{Processes: processes, NoTriggers: true})
			echo := p.URL + "/function/echo"

			t.Run("request", func(t *testing.T) {
				status, h, body := call(t, "POST", echo+"/a/path?x=1&y=%20z", "hello", http.Header{
					"X-Own": {"1", "2"}, "Connection": {"X-Hop"}, "Te": {"trailers"}, "Idempotency-Key": {"k"},
				})
				if status != 201 || h.Get("Content-Type") != "application/json" || len(h.Values("X-Mine")) != 2 {
					t.Fatalf("%d %v", status, h)
				}
				var s seen
				if err := json.Unmarshal([]byte(body), &s); err != nil {
					t.Fatal(err)
				}
				if s.Method != "POST" || s.Query != "x=1&y=%20z" || s.Body != "hello" || s.Host != "" {
					t.Errorf("the function saw %+v", s)
				}
				if strings.Contains(body, "/a/path") {
					t.Error("the path reached the function")
				}
				if len(s.Header["X-Own"]) != 2 || s.Header.Get("Idempotency-Key") != "k" || s.Header.Get("Te") != "" {
					t.Errorf("headers %v", s.Header)
				}
				if s.Header.Get("X-Call-Id") == "" || s.Header.Get("X-Call-Id") != h.Get("X-Call-Id") {
					t.Errorf("X-Call-Id %q in, %q out", s.Header.Get("X-Call-Id"), h.Get("X-Call-Id"))
				}
				if len(s.Header.Get("X-Start-Time")) < 19 {
					t.Errorf("X-Start-Time %q", s.Header.Get("X-Start-Time"))
				}
				if f := s.Header.Get("X-Forwarded-For"); !strings.HasPrefix(f, "127.0.0.1:") {
					t.Errorf("X-Forwarded-For %q is no ip:port", f)
				}
				if "http://"+s.Header.Get("X-Forwarded-Host") != p.URL {
					t.Errorf("X-Forwarded-Host %q", s.Header.Get("X-Forwarded-Host"))
				}
				if inside := s.Pid == os.Getpid(); inside == processes {
					t.Errorf("the function runs in process %d, we in %d", s.Pid, os.Getpid())
				}
				if processes && (len(s.Secrets) != 1 || s.Secrets[0] != "room-key") {
					t.Errorf("secrets %v, stack.yml gives it room-key alone", s.Secrets)
				}
			})
			t.Run("kept headers", func(t *testing.T) {
				_, h, body := call(t, "GET", echo, "", http.Header{
					"X-Forwarded-For": {"9.9.9.9"}, "X-Forwarded-Host": {"shop.example"}, "X-Call-Id": {"mine"},
				})
				var s seen
				if err := json.Unmarshal([]byte(body), &s); err != nil {
					t.Fatal(err)
				}
				if s.Header.Get("X-Forwarded-For") != "9.9.9.9" || s.Header.Get("X-Forwarded-Host") != "shop.example" || s.Header.Get("X-Call-Id") != "mine" {
					t.Errorf("%v", s.Header)
				}
				if h.Get("X-Call-Id") != "" {
					t.Errorf("the caller's own X-Call-Id came back")
				}
			})
			t.Run("unknown", func(t *testing.T) {
				for _, path := range []string{"/function/nobody", "/function/nobody/x", "/function/", "/system/functions", "/async-function/echo"} {
					if status, _, _ := call(t, "GET", p.URL+path, "", nil); status != 404 {
						t.Errorf("%s: %d", path, status)
					}
				}
				if status, _, _ := call(t, "TRACE", echo, "", nil); status != 405 {
					t.Errorf("TRACE: %d", status)
				}
			})
			t.Run("errors", func(t *testing.T) {
				if status, _, _ := call(t, "POST", echo, "fail", nil); status != 500 {
					t.Errorf("a Go error: %d", status)
				}
				if status, _, _ := call(t, "POST", echo, "panic", nil); status != 500 {
					t.Errorf("a panic: %d", status)
				}
			})
			t.Run("content type", func(t *testing.T) {
				// The template's server guesses from the bytes, which is why functions set it.
				if _, h, _ := call(t, "GET", p.URL+"/function/plain", "", nil); h.Get("Content-Type") != "text/html; charset=utf-8" {
					t.Errorf("none set: %q", h.Get("Content-Type"))
				}
			})
			t.Run("body limit", func(t *testing.T) {
				if status, _, _ := call(t, "POST", echo, strings.Repeat("a", platform.MaxBody), nil); status != 201 {
					t.Errorf("the largest: %d", status)
				}
				if status, _, _ := call(t, "POST", echo, strings.Repeat("a", platform.MaxBody+1), nil); status != 413 {
					t.Errorf("one byte more: %d", status)
				}
				req, _ := http.NewRequest("POST", echo, io.MultiReader(bytes.NewReader(make([]byte, platform.MaxBody)), strings.NewReader("x")))
				res, err := http.DefaultTransport.RoundTrip(req) // no Content-Length
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode != 413 {
					t.Errorf("one byte more in chunks: %d", res.StatusCode)
				}
			})
			t.Run("exec_timeout", func(t *testing.T) {
				began := time.Now()
				status, _, _ := call(t, "POST", echo, "sleep", nil)
				if took := time.Since(began); status != 504 || took < 900*time.Millisecond || took > 3*time.Second {
					t.Errorf("%d after %s", status, took)
				}
				if !processes {
					if err := <-cancelled; err == nil {
						t.Error("the context of the request was not cancelled")
					}
				}
			})
			if processes {
				return
			}
			t.Run("max_inflight", func(t *testing.T) {
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { call(t, "POST", echo, "wait", nil) })
					<-entered
				}
				if status, _, body := call(t, "POST", echo, "one too many", nil); status != 429 {
					t.Errorf("%d %s", status, body)
				}
				release <- struct{}{}
				release <- struct{}{}
				wg.Wait()
				if status, _, _ := call(t, "POST", echo, "room again", nil); status != 201 {
					t.Errorf("afterwards: %d", status)
				}
			})
		})
	}
}

// A killed process is started again; meanwhile callers get 502 and 503, and
// nothing with a body is sent twice.
func TestKilledFunction(t *testing.T) {
	p := start(t, platform.Options{Processes: true, NoTriggers: true, Replicas: map[string]int{"echo": 2}})
	pids := map[int]bool{}
	for range 10 {
		_, _, body := call(t, "POST", p.URL+"/function/echo", "who", nil)
		var s seen
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		pids[s.Pid] = true
	}
	if len(pids) != 2 {
		t.Fatalf("two replicas, answered by %v", pids)
	}
	answered := make(chan int, 2)
	for range 2 {
		go func() {
			req, _ := http.NewRequest("POST", p.URL+"/function/echo", strings.NewReader("slow"))
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				answered <- 0
				return
			}
			res.Body.Close()
			answered <- res.StatusCode
		}()
	}
	time.Sleep(200 * time.Millisecond) // both are in their sleep of 900 ms
	for _, pid := range p.Processes().Functions["echo"] {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if status := <-answered; status != 502 {
			t.Errorf("a broken call was answered %d", status)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		status, _, _ := call(t, "POST", p.URL+"/function/echo", "again", nil)
		if status == 201 {
			break
		}
		if status != 502 && status != 503 || time.Now().After(deadline) {
			t.Fatalf("after the kill: %d", status)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, pid := range p.Processes().Functions["echo"] {
		if pids[pid] {
			t.Errorf("process %d was killed and still counts", pid)
		}
	}
}

// The connectors' habits.
func TestTriggers(t *testing.T) {
	p := start(t, platform.Options{})
	nc, err := nats.Connect(p.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()

	next := func(what string) string {
		t.Helper()
		select {
		case s := <-entered:
			return s
		case <-time.After(10 * time.Second):
			t.Fatalf("no call: %s", what)
			return ""
		}
	}
	// Cron: the first run waits in its gate while later ones come and go.
	if s := next("cron"); s != "tick" {
		t.Fatal(s)
	}
	for began := time.Now(); count("tick").Load() < 3; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("runs do not overlap")
		}
	}
	release <- struct{}{}
	if n := count("six").Load(); n != 0 {
		t.Errorf("a six-field schedule ran %d times", n)
	}

	// NATS: one message at a time on a subject, subjects beside each other.
	for _, m := range []*nats.Msg{
		{Subject: "made.0", Data: []byte("first"), Header: nats.Header{"Mine": {"dropped"}}, Reply: "nobody"},
		{Subject: "made.0", Data: []byte("bad")},
		{Subject: "made.0", Data: []byte("third")},
		{Subject: "made.00", Data: []byte("another subject")},
	} {
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	replies, err := nc.SubscribeSync("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if s := next("first"); s != "made.0 first " {
		t.Fatalf("%q", s)
	}
	if err := nc.Publish("made.1", []byte("beside")); err != nil {
		t.Fatal(err)
	}
	if s := next("beside"); s != "made.1 beside " {
		t.Fatalf("%q: the second message of a subject did not wait for the first", s)
	}
	release <- struct{}{}
	release <- struct{}{}
	// A failed call is lost: the next message comes, the bad one does not return.
	if s := next("bad"); s != "made.0 bad " {
		t.Fatalf("%q", s)
	}
	release <- struct{}{}
	if s := next("third"); s != "made.0 third " {
		t.Fatalf("%q", s)
	}
	release <- struct{}{}
	select {
	case s := <-entered:
		t.Errorf("one call too many: %q", s)
	case <-time.After(300 * time.Millisecond):
	}
	if m, err := replies.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("a reply on an event: %q", m.Data)
	}
}

// A misspelt key in stack.yml is refused.
func TestStrictStack(t *testing.T) {
	bad := strings.Replace(stackYML, "secrets:", "secret:", 1)
	if _, err := platform.ParseStack([]byte(bad)); err == nil || !strings.Contains(err.Error(), "secret") {
		t.Fatalf("%v", err)
	}
}

// What the workbench serves beside the functions.
func TestBeside(t *testing.T) {
	p := start(t, platform.Options{NoTriggers: true})
	if status, h, _ := call(t, "GET", p.URL+"/", "", nil); status != 307 || h.Get("Location") != "/function/web" {
		t.Errorf("/: %d %v", status, h)
	}
	if status, _, _ := call(t, "GET", p.URL+"/healthz", "", nil); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	status, _, body := call(t, "GET", p.URL+"/dev/token?account=ann&role=organiser", "", nil)
	if status != 200 || !strings.Contains(body, "account_token") {
		t.Errorf("/dev/token: %d %s", status, body)
	}
	for _, q := range []string{"", "?account=ann&role=king", "?account=house"} {
		if status, _, _ := call(t, "GET", p.URL+"/dev/token"+q, "", nil); status != 400 {
			t.Errorf("/dev/token%s: %d", q, status)
		}
	}
	if status, _, _ := call(t, "POST", p.URL+"/dev/sms", `{"from":"H","to":"+1","text":"hi"}`, nil); status != 202 {
		t.Errorf("/dev/sms: %d", status)
	}
	if _, _, body := call(t, "GET", p.URL+"/dev/mail", "", nil); !strings.Contains(body, `"kind":"sms"`) || !strings.Contains(body, `"text":"hi"`) {
		t.Errorf("/dev/mail: %s", body)
	}
	secret, err := os.ReadFile(filepath.Join(p.Secrets, "smtp-url"))
	if err != nil {
		t.Fatal(err)
	}
	const letter = "From: a@x.test\r\nTo: b@x.test\r\nSubject: =?utf-8?q?=E7=A5=A8?=\r\nMIME-Version: 1.0\r\n" +
		"Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nyours\r\n" +
		"--B\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=t.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERg==\r\n--B--\r\n"
	addr := strings.TrimPrefix(strings.TrimSpace(string(secret)), "smtp://")
	if err := smtp.SendMail(addr, nil, "a@x.test", []string{"b@x.test"}, []byte(letter)); err != nil {
		t.Fatal(err)
	}
	_, _, body = call(t, "GET", p.URL+"/dev/mail?to=b@x.test", "", nil)
	var sent struct{ Messages []platform.Message }
	if err := json.Unmarshal([]byte(body), &sent); err != nil || len(sent.Messages) != 1 {
		t.Fatalf("%v %s", err, body)
	}
	m := sent.Messages[0]
	if m.Subject != "票" || m.Text != "yours" || len(m.Attachments) != 1 || m.Attachments[0].Name != "t.pdf" {
		t.Errorf("%+v", m)
	} else if _, h, body := call(t, "GET", p.URL+m.Attachments[0].URL, "", nil); body != "%PDF" || h.Get("Content-Type") != "application/pdf" {
		t.Errorf("%v %q", h, body)
	}
	if _, _, body := call(t, "GET", p.URL+"/dev/mail", "", http.Header{"Accept": {"text/html"}}); !strings.Contains(body, "<pre>hi</pre>") {
		t.Errorf("/dev/mail page: %s", body)
	}
}
