package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"handler/function/cmd/holdfast/services"
)

// PlatformOptions say how a platform is started.
type PlatformOptions struct {
	Processes bool           // each function a process of its own
	Replicas  map[string]int // with Processes
	Demo      bool           // with the demo sales
	// Own starts Postgres, Redis and NATS by the platform, with safe settings, in
	// Data (empty: a folder of the test's): for tests that kill the platform and
	// start it again. Otherwise it uses services of the harness.
	Own  bool
	Data string
	Env  map[string]string // for every function, over stack.yml
	Args []string          // more arguments of `holdfast up`
}

// Platform is `holdfast up` as a child of the test.
type Platform struct {
	URL            string `json:"url"`
	PostgresURL    string `json:"postgres_url"`
	PostgresAppURL string `json:"postgres_app_url"`
	RedisURL       string `json:"redis_url"`
	NATSURL        string `json:"nats_url"`
	Data           string `json:"data"`
	Secrets        string `json:"secrets"`

	Services *Services // of the harness; nil with Own

	cmd  *exec.Cmd
	done chan struct{}
	logs string
	bin  string
}

// Processes are what /dev/processes says.
type Processes struct {
	Platform  int              `json:"platform"`
	Postgres  int              `json:"postgres"`
	Redis     int              `json:"redis"`
	NATS      int              `json:"nats"`
	Functions map[string][]int `json:"functions"`
}

var build = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("HOLDFAST_TEST_BINARY"); bin != "" {
		return bin, nil
	}
	bin := filepath.Join(Dir(), "holdfast")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/holdfast")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/holdfast: %w\n%s", err, out)
	}
	return bin, nil
})

// Binary is the program holdfast, built once a test binary (or named by
// HOLDFAST_TEST_BINARY).
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var platforms atomic.Int64

// StartPlatform starts `holdfast up --port 0` and stops it after the test. When
// the test fails the end of its log is shown.
func StartPlatform(t testing.TB, o PlatformOptions) *Platform {
	t.Helper()
	args := []string{"--json", "up", "--port", "0"}
	if o.Processes {
		args = append(args, "--processes")
	}
	for name, n := range o.Replicas {
		args = append(args, fmt.Sprintf("--replicas=%s=%d", name, n))
	}
	if o.Demo {
		args = append(args, "--demo")
	}
	for k, v := range o.Env {
		args = append(args, "--env", k+"="+v)
	}
	n := platforms.Add(1)
	if o.Data == "" {
		o.Data = filepath.Join(Dir(), fmt.Sprintf("platform-%d", n))
	}
	args = append(args, "--data", o.Data)
	var own *Services
	if !o.Own {
		own = &Services{DB: DB(t), Redis: Redis(t), NATS: NATS(t)}
		args = append(args, "--postgres-url", own.DB.OwnerURL, "--postgres-app-url", own.DB.AppURL,
			"--redis-url", own.Redis.URL, "--nats-url", own.NATS.URL)
	}
	p, err := startPlatform(Binary(t), append(args, o.Args...), filepath.Join(Dir(), fmt.Sprintf("platform-%d.log", n)))
	if err != nil {
		t.Fatal(err)
	}
	p.Services = own
	if own != nil {
		own.Secrets = p.Secrets
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the platform's log ends:\n%s", p.Log())
		}
	})
	return p
}

func startPlatform(bin string, args []string, logs string) (*Platform, error) {
	out, err := os.OpenFile(logs, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	p := &Platform{cmd: exec.Command(bin, args...), done: make(chan struct{}), logs: logs, bin: bin}
	p.cmd.Dir = Root()
	p.cmd.Stdout, p.cmd.Stderr = write, out
	err = services.Start(p.cmd, syscall.SIGTERM)
	write.Close()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	hang := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Process.Kill() })
	line, err := bufio.NewReader(read).ReadBytes('\n')
	hang.Stop()
	if err == nil {
		err = json.Unmarshal(line, p)
	}
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("holdfast up did not start: %w\n%s", err, p.Log())
	}
	return p, nil
}

// Log is the end of what the platform logged.
func (p *Platform) Log() string {
	b, _ := os.ReadFile(p.logs)
	return string(b[max(0, len(b)-6000):])
}

// PID is the platform's process.
func (p *Platform) PID() int { return p.cmd.Process.Pid }

// Stop stops the platform as Ctrl-C does and waits.
func (p *Platform) Stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(45 * time.Second):
		p.Kill()
	}
}

// Kill kills the platform's process with SIGKILL and waits for it, not for its
// children.
func (p *Platform) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Again starts a stopped or killed platform on the same data and arguments.
func (p *Platform) Again(t testing.TB) {
	t.Helper()
	q, err := startPlatform(p.bin, p.cmd.Args[1:], p.logs)
	if err != nil {
		t.Fatal(err)
	}
	q.Services = p.Services
	*p = *q
}

// Processes asks for the process ids of the moment.
func (p *Platform) Processes(t testing.TB) Processes {
	t.Helper()
	var x Processes
	p.get(t, "/dev/processes", &x)
	return x
}

// Token is an account token; role is organiser, seller, gate or empty.
func (p *Platform) Token(t testing.TB, account, role string) string {
	t.Helper()
	var x struct {
		Token string `json:"account_token"`
	}
	p.get(t, "/dev/token?account="+url.QueryEscape(account)+"&role="+url.QueryEscape(role), &x)
	return x.Token
}

func (p *Platform) get(t testing.TB, path string, v any) {
	t.Helper()
	res, err := http.Get(p.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", path, res.StatusCode, b, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
