// Package openfaas tests that stack.yml and the functions are what OpenFaaS and
// its golang-http template take, without a cluster (DESIGN section 3).
package openfaas

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openfaas/go-sdk/stack"
	"github.com/robfig/cron/v3"

	"handler/function/cmd/holdfast/platform"
	"handler/function/cmd/holdfast/services"
	"handler/function/tests/harness"
)

// toolchain is the Go of the template's image. It fetches no other.
const toolchain = "go1.25.5"

// mostFunctions is how many OpenFaaS's free edition runs.
const mostFunctions = 15

func readStack(t *testing.T) *stack.Services {
	t.Helper()
	s, err := platform.ReadStack(filepath.Join(harness.Root(), "stack.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The functions that DESIGN section 4 names and that are built.
var built = []string{
	"admit-tick", "catalog", "confirm", "hold", "join-room", "match", "pay", "reconcile",
	"release-event", "seat-map", "sign-in", "standby", "ticket", "web",
}

func TestStack(t *testing.T) {
	s := readStack(t)
	names := slices.Sorted(maps.Keys(s.Functions))
	if !slices.Equal(names, built) {
		t.Errorf("functions %v, want %v", names, built)
	}
	if len(names) > mostFunctions {
		t.Errorf("%d functions, the free edition runs %d", len(names), mostFunctions)
	}
	if c := s.StackConfiguration.CopyExtraPaths; !slices.Equal(c, []string{"go.mod", "go.sum", "shared"}) {
		t.Errorf("configuration.copy is %v", c)
	}
	if c := s.StackConfiguration.TemplateConfigs; len(c) != 1 || c[0].Name != "golang-http" || c[0].Source == "" {
		t.Errorf("configuration.templates is %v", c)
	}
	known := append(slices.Clone(services.Keys), "postgres-url", "redis-url", "nats-url", "smtp-url", "sms-url")
	drawers := []string{"admit-tick", "catalog", "join-room"}
	nats := regexp.MustCompile(`^(order\.matched|booking\.confirmed|seat\.released)\.[0-7]$`)
	for name, f := range s.Functions {
		if f.Language != "golang-http" || f.Handler != "./functions/"+name {
			t.Errorf("%s: lang %q, handler %q", name, f.Language, f.Handler)
		}
		for _, key := range []string{"read_timeout", "exec_timeout", "write_timeout", "max_inflight"} {
			if f.Environment[key] == "" {
				t.Errorf("%s has no %s", name, key)
			}
		}
		l, err := platform.LimitsOf(f.Environment)
		if err != nil || l.ExecTimeout >= l.WriteTimeout || l.ReadTimeout <= 0 || l.ExecTimeout <= 0 || l.MaxInflight <= 0 {
			t.Errorf("%s: %+v %v: exec_timeout must be below write_timeout, all above zero", name, l, err)
		}
		for _, r := range []*stack.FunctionResources{f.Limits, f.Requests} {
			if r == nil || r.CPU == "" || r.Memory == "" {
				t.Errorf("%s: limits and requests must name cpu and memory", name)
			}
		}
		for _, secret := range f.Secrets {
			if !slices.Contains(known, secret) {
				t.Errorf("%s: nobody makes the secret %s", name, secret)
			}
		}
		if slices.Contains(f.Secrets, "draw-secret") && !slices.Contains(drawers, name) {
			t.Errorf("%s must not have the draw secret", name)
		}
		if f.Annotations == nil {
			continue
		}
		topic, schedule := (*f.Annotations)["topic"], (*f.Annotations)["schedule"]
		if topic == "cron-function" {
			if _, err := cron.ParseStandard(schedule); err != nil {
				t.Errorf("%s: cron-connector would ignore %q: %v", name, schedule, err)
			}
			continue
		}
		subjects := strings.Split(topic, ",")
		if schedule != "" || len(subjects) != 8 {
			t.Errorf("%s: a trigger is cron or eight subjects, not %q with %q", name, topic, schedule)
		}
		for _, subject := range subjects {
			if !nats.MatchString(subject) {
				t.Errorf("%s: %q is no exact subject of ours", name, subject)
			}
		}
	}
}

// Unknown keys, which the parser of faas-cli passes over, are refused.
func TestStackIsStrict(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(harness.Root(), "stack.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for old, planted := range map[string]string{
		"    secrets: ":       "    secret: ",
		"    limits: *medium": "    limit: *medium",
		"  copy:\n":           "  copies:\n",
		"      memory: 64Mi":  "      ram: 64Mi",
		"provider:\n":         "provider:\n  network: x\n",
	} {
		bad := strings.Replace(string(b), old, planted, 1)
		if bad == string(b) {
			t.Fatalf("stack.yml has no %q to plant a mistake in", old)
		}
		if _, err := stack.ParseYAMLData([]byte(bad), "", "", true); err != nil {
			t.Errorf("%q: the lax parser refuses it too: %v", planted, err)
		}
		if _, err := platform.ParseStack([]byte(bad)); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%q passed: %v", planted, err)
		}
	}
}

// mainGo is a main of our own in the shape of the template's: it turns an
// http.Request into a handler.Request, and the answer back.
const mainGo = `package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"handler/function"

	handler "github.com/openfaas/templates-sdk/go-http"
)

func main() {
	read, err := time.ParseDuration(os.Getenv("read_timeout"))
	if err != nil {
		log.Fatal(err)
	}
	write, err := time.ParseDuration(os.Getenv("write_timeout"))
	if err != nil {
		log.Fatal(err)
	}
	s := &http.Server{Addr: os.Getenv("ADDR"), ReadTimeout: read, WriteTimeout: write, MaxHeaderBytes: 1 << 20}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			log.Print(err)
		}
		req := handler.Request{Body: body, Header: r.Header, Method: r.Method, QueryString: r.URL.RawQuery}
		req.WithContext(r.Context())
		res, err := function.Handle(req)
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		switch {
		case err != nil:
			log.Print(err)
			w.WriteHeader(http.StatusInternalServerError)
		case res.StatusCode == 0:
			w.WriteHeader(http.StatusOK)
		default:
			w.WriteHeader(res.StatusCode)
		}
		_, _ = w.Write(res.Body)
	})
	log.Fatal(s.ListenAndServe())
}
`

// Each function builds from the context that faas-cli makes, with the
// template's module step, by the template's Go, and answers HTTP.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every function")
	}
	s := readStack(t)
	secrets := harness.Secrets(t, nil, nil, nil) // services that nobody runs
	if v := strings.TrimSpace(run(t, t.TempDir(), "go", "env", "GOVERSION")); v != toolchain {
		t.Fatalf("go is %s, the image has %s", v, toolchain)
	}
	gofmt := filepath.Join(strings.TrimSpace(run(t, t.TempDir(), "go", "env", "GOROOT")), "bin", "gofmt")
	for _, name := range slices.Sorted(maps.Keys(s.Functions)) {
		f := s.Functions[name]
		t.Run(name, func(t *testing.T) {
			dir := buildContext(t, f, s.StackConfiguration.CopyExtraPaths)
			if out := run(t, dir, gofmt, "-l", "."); out != "" {
				t.Errorf("the image's gofmt refuses:\n%s", out)
			}
			// The function's own tests, as the image build runs them; shared's are the
			// same in each context and are run once by `go test ./shared/...`.
			run(t, dir, "go", "test", "-trimpath", "-vet=off", "-ldflags=-s -w", "./function")
			// -trimpath: the folder's name is no part of what is compiled, so that
			// shared/ is compiled once for all functions.
			run(t, dir, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", "handler", ".")
			answers(t, dir, f, secrets)
		})
	}
}

// buildContext makes the folder that `faas-cli build --shrinkwrap` makes, and
// does in it what the template's Dockerfile does before the compiler.
func buildContext(t *testing.T, f stack.Function, extra []string) string {
	t.Helper()
	dir := t.TempDir()
	function := filepath.Join(dir, "function")
	copyTree(t, filepath.Join(harness.Root(), f.Handler), function)
	for _, path := range extra {
		copyTree(t, filepath.Join(harness.Root(), path), filepath.Join(function, path))
	}
	write(t, filepath.Join(dir, "main.go"), mainGo)

	// The module step: the function's go.mod moves up and becomes the module
	// `handler`, every line that names handler/function goes, and the function is
	// the package handler/function of it.
	mod, err := os.ReadFile(filepath.Join(function, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`\shandler/function`)
	var kept []string
	for l := range strings.Lines(string(mod)) {
		if !line.MatchString(l) {
			kept = append(kept, l)
		}
	}
	write(t, filepath.Join(dir, "go.mod"), strings.Join(kept, ""))
	if err := os.Remove(filepath.Join(function, "go.mod")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(function, "go.sum"), filepath.Join(dir, "go.sum")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "mod", "edit", "-replace=handler/function=./function", "-module", "handler")
	return dir
}

// answers starts the built handler and asks it something it must refuse or
// answer by itself: its services are away.
func answers(t *testing.T, dir string, f stack.Function, secrets string) {
	t.Helper()
	port, err := services.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	// In the image the handler runs in a folder with nothing but static/ beside it.
	home := t.TempDir()
	static := filepath.Join(dir, "function", "static")
	if _, err := os.Stat(static); err == nil {
		copyTree(t, static, filepath.Join(home, "static"))
	}
	cmd := exec.Command(filepath.Join(dir, "handler"))
	cmd.Dir = home
	cmd.Env = []string{"ADDR=" + addr, "HOLDFAST_SECRETS=" + secrets, "HOME=" + home, "PATH=/usr/bin:/bin"}
	for k, v := range f.Environment {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := services.Start(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the function's log:\n%s", b)
		}
	}()
	get := func(query string) (*http.Response, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(b)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("the function does not listen")
		}
	}
	res, body := get("?no_such_parameter=1")
	if res.StatusCode >= 500 && res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("X-Trace-Id") == "" || res.Header.Get("Content-Type") == "" {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
	}
	if res, body := get("?bad=%zz"); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "bad-request") {
		t.Errorf("a malformed query: %d %s", res.StatusCode, body)
	}
}

// run runs a program of the template's Go in the folder, and fails the test when
// it fails.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GO111MODULE=on")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyTree copies a file or folder as configuration.copy does.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
