// Package platform is OpenFaaS on one machine: the services, every function of
// stack.yml behind a gateway, and the two connectors, with the habits of the
// real ones (DESIGN sections 3 and 11).
package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/openfaas/go-sdk/stack"
	"golang.org/x/sync/errgroup"

	"handler/function/cmd/holdfast/services"
	"handler/function/migrations"
	"handler/function/shared/fn"
)

// Options say what is started. The zero value and a folder suffice.
type Options struct {
	Data string // folder of the services' data and the secrets, kept
	Host string // where the gateway listens; empty: 127.0.0.1
	Port int    // of the gateway; 0: a free one

	// Processes runs each function as a process of its own, and Replicas says
	// how many (one where it does not).
	Processes bool
	Replicas  map[string]int

	// Services that are given are used and neither started nor stopped.
	PostgresURL    string // of the schema's owner
	PostgresAppURL string // of the application's role; empty: the role is made
	RedisURL       string
	NATSURL        string

	// Unsafe runs Postgres without fsync: for tests of rules only.
	Unsafe bool
	// CommitTimes makes Postgres keep the time of every commit.
	CommitTimes bool

	// Stack is what to serve; nil: the checkout's stack.yml.
	Stack *stack.Services
	// Functions are the entries of the functions of Stack; nil: all of ours.
	Functions map[string]Handle
	// Command is what runs one function (and, named "nats", the NATS server) as a
	// process; nil: this program with the hidden commands.
	Command func(name string, args ...string) *exec.Cmd
	// Env is given to every function, over what stack.yml says.
	Env map[string]string

	// Dev makes handlers served at /dev/NAME and below, when the services run.
	Dev func(*Running) (map[string]http.Handler, error)
	// NoTriggers leaves cron and NATS triggers out.
	NoTriggers bool
}

// Running is a started platform.
type Running struct {
	URL            string // of the gateway, without a slash at the end
	PostgresURL    string // of the schema's owner
	PostgresAppURL string // of the application's role
	RedisURL       string
	NATSURL        string
	Data           string // the folder
	Secrets        string // the folder with every secret

	audience string
	out      *outbound
	outside  map[string]*outside

	mu       sync.Mutex
	postgres *services.Postgres
	redis    *services.Redis
	nats     *natsProcess
	used     CPU // of service processes that ended

	closing   atomic.Bool
	closeOnce sync.Once
	closers   []func() // run last to first
}

// inOnePool is the size of the one pool to Postgres that all functions share in
// one process: what a dozen replicas of 4 would use is more than a small machine
// gains from.
const inOnePool = "24"

// started is true while functions run inside this process: they share its
// environment and pools, so there can be one such platform at a time.
var started atomic.Bool

// Start starts everything and returns when the gateway answers. On an error
// all that was started has been stopped.
func Start(ctx context.Context, o Options) (_ *Running, err error) {
	p := &Running{outside: map[string]*outside{}}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if o.Stack == nil {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		if o.Stack, err = ReadStack(filepath.Join(root, "stack.yml")); err != nil {
			return nil, err
		}
	}
	if o.Functions == nil {
		o.Functions = Functions
	}
	for name := range o.Stack.Functions {
		if o.Functions[name] == nil {
			return nil, fmt.Errorf("stack.yml names the function %s, which this program does not have", name)
		}
	}
	for name, n := range o.Replicas {
		if _, ok := o.Stack.Functions[name]; !ok || n < 1 || n > 16 {
			return nil, fmt.Errorf("replicas of %s: 1 to 16 of a function in stack.yml", name)
		}
	}
	if p.Data, err = filepath.Abs(o.Data); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.Data, 0o755); err != nil {
		return nil, err
	}
	unlock, err := services.Lock(p.Data)
	if err != nil {
		return nil, err
	}
	p.OnClose(unlock)
	if !o.Processes {
		if !started.CompareAndSwap(false, true) {
			return nil, errors.New("another platform runs inside this process: use Processes for a second")
		}
		p.OnClose(func() { started.Store(false) })
	}

	host := o.Host
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(o.Port)))
	if err != nil {
		return nil, err
	}
	p.OnClose(func() { listener.Close() })
	p.URL = "http://" + net.JoinHostPort(host, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))

	if p.out, err = startOutbound(); err != nil {
		return nil, err
	}
	p.OnClose(p.out.close)
	if err := p.startServices(ctx, o); err != nil {
		return nil, err
	}
	version, err := migrations.Up(ctx, p.PostgresURL)
	if err != nil {
		return nil, err
	}
	slog.Info("the schema is up to date", "version", version)
	p.Secrets = filepath.Join(p.Data, "secrets")
	err = services.WriteSecrets(p.Secrets, services.Addresses{
		Postgres: p.PostgresAppURL, Redis: p.RedisURL, NATS: p.NATSURL,
		SMTP: "smtp://" + p.out.smtpAddr, SMS: p.URL + "/dev/sms",
	})
	if err != nil {
		return nil, err
	}
	g, err := p.startFunctions(ctx, o)
	if err != nil {
		return nil, err
	}
	handler, err := p.handler(g, o)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second,
		WriteTimeout:      120 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	go func() { _ = server.Serve(listener) }()
	p.OnClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	if !o.NoTriggers {
		t, err := startTriggers(o.Stack.Functions, p.NATSURL, p.URL)
		if err != nil {
			return nil, err
		}
		p.OnClose(t.close)
	}
	return p, nil
}

// startServices starts those that are not given, all at once.
func (p *Running) startServices(ctx context.Context, o Options) error {
	g, ctx := errgroup.WithContext(ctx)
	if o.PostgresURL != "" {
		g.Go(func() (err error) {
			p.PostgresURL, p.PostgresAppURL = o.PostgresURL, o.PostgresAppURL
			if p.PostgresAppURL == "" {
				p.PostgresAppURL, err = services.EnsureApp(ctx, p.PostgresURL, p.Data)
			}
			return err
		})
	} else {
		g.Go(func() error {
			options := services.PostgresOptions{Dir: filepath.Join(p.Data, "postgres"), Unsafe: o.Unsafe, CommitTimes: o.CommitTimes}
			s, err := services.StartPostgres(ctx, options)
			if err != nil {
				return err
			}
			p.PostgresURL, p.PostgresAppURL = s.OwnerURL(""), s.AppURL("")
			options.Port = s.Port
			p.keepPostgres(s, options)
			return nil
		})
	}
	if o.RedisURL != "" {
		p.RedisURL = o.RedisURL
	} else {
		g.Go(func() error {
			options := services.RedisOptions{Dir: filepath.Join(p.Data, "redis"), Persist: true}
			s, err := services.StartRedis(ctx, options)
			if err != nil {
				return err
			}
			p.RedisURL = s.URL()
			options.Port = s.Port
			p.keepRedis(s, options)
			return nil
		})
	}
	if o.NATSURL != "" {
		p.NATSURL = o.NATSURL
	} else {
		g.Go(func() error { return p.startNATS(ctx, o) })
	}
	return g.Wait()
}

// startFunctions makes the gateway with every function behind it.
func (p *Running) startFunctions(ctx context.Context, o Options) (*gateway, error) {
	g := &gateway{functions: map[string]backend{}}
	own := map[string]string{
		"HOLDFAST_ENV":         "test", // the sandbox gateway is allowed
		"HOLDFAST_PUBLIC_URL":  p.URL,
		"HOLDFAST_SANDBOX_URL": p.URL + "/dev/gateway",
	}
	maps.Copy(own, o.Env)
	p.audience = own["HOLDFAST_ACCOUNT_AUDIENCE"]
	if !o.Processes {
		for name, f := range o.Stack.Functions {
			l, err := LimitsOf(f.Environment)
			if err != nil {
				return nil, err
			}
			g.functions[name] = inside{Watch(o.Functions[name], l)}
			for k, v := range f.Environment {
				if strings.HasPrefix(k, "HOLDFAST_") {
					_ = os.Setenv(k, v)
				}
			}
		}
		for k, v := range own {
			_ = os.Setenv(k, v)
		}
		_ = os.Setenv("HOLDFAST_SECRETS", p.Secrets)
		if os.Getenv("HOLDFAST_POOL") == "" {
			_ = os.Setenv("HOLDFAST_POOL", inOnePool)
		}
		fn.SetDefault(nil) // read anew at the first request
		p.OnClose(func() { fn.SetDefault(nil) })
		return g, nil
	}
	if o.Command == nil {
		o.Command = command
	}
	for name, f := range o.Stack.Functions {
		dir := filepath.Join(p.Data, "functions", name, "secrets")
		if err := p.mount(dir, f.Secrets); err != nil {
			return nil, fmt.Errorf("secrets of %s: %w", name, err)
		}
		env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
		all := map[string]string{}
		maps.Copy(all, f.Environment)
		maps.Copy(all, own)
		all["HOLDFAST_SECRETS"] = dir
		for _, k := range slices.Sorted(maps.Keys(all)) {
			env = append(env, k+"="+all[k])
		}
		p.outside[name] = newOutside(name, max(1, o.Replicas[name]), func() *exec.Cmd {
			cmd := o.Command("function", name)
			cmd.Env = env
			cmd.Dir = workDir(f.Handler)
			cmd.Stderr = os.Stderr
			return cmd
		})
		g.functions[name] = p.outside[name]
	}
	p.OnClose(func() {
		var wg sync.WaitGroup
		for _, f := range p.outside {
			wg.Go(f.close)
		}
		wg.Wait()
	})
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, f := range p.outside {
		if err := f.ready(ctx); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// workDir is where a function's process starts: its own folder, so that static/
// is where the image has it.
func workDir(handler string) string {
	if root, err := Root(); err == nil {
		dir := filepath.Join(root, handler)
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	return ""
}

// mount gives a function the secrets that stack.yml names for it, and no other.
func (p *Running) mount(dir string, names []string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(p.Secrets, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// command is this program run again.
func command(name string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return exec.Command(exe, append([]string{name}, args...)...)
}

// handler serves the functions and what the workbench adds beside them.
func (p *Running) handler(g *gateway, o Options) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("/function/{name}", g)
	mux.Handle("/function/{name}/{rest...}", g)
	mux.Handle("GET /{$}", http.RedirectHandler("/function/web", http.StatusTemporaryRedirect))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "functions": slices.Sorted(maps.Keys(g.functions))})
	})
	mux.HandleFunc("GET /dev/token", p.devToken)
	mux.HandleFunc("GET /dev/mail", p.out.serve)
	mux.HandleFunc("/dev/sms", p.out.sms)
	mux.HandleFunc("GET /dev/processes", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, p.Processes())
	})
	if o.Dev == nil {
		return mux, nil
	}
	more, err := o.Dev(p)
	if err != nil {
		return nil, err
	}
	for name, h := range more {
		mux.Handle("/dev/"+name, h)
		mux.Handle("/dev/"+name+"/", h)
	}
	return mux, nil
}

// Processes are the ids of the processes now, and the time they have used.
// Zero: not a process of its own, or down at this moment.
type Processes struct {
	Platform  int              `json:"platform"`
	Postgres  int              `json:"postgres"`
	Redis     int              `json:"redis"`
	NATS      int              `json:"nats"`
	Functions map[string][]int `json:"functions"`
	CPU       CPU              `json:"cpu_seconds"`
}

// Processes are this platform's at the moment.
func (p *Running) Processes() Processes {
	x := Processes{Platform: os.Getpid(), Functions: map[string][]int{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.CPU = p.used
	if p.postgres != nil {
		x.Postgres = p.postgres.PID()
		x.CPU.Postgres += treeCPU(x.Postgres).Seconds()
	}
	if p.redis != nil {
		x.Redis = p.redis.PID()
		x.CPU.Redis += treeCPU(x.Redis).Seconds()
	}
	if p.nats != nil && p.nats.cmd != nil {
		x.NATS = p.nats.cmd.Process.Pid
		x.CPU.NATS += treeCPU(x.NATS).Seconds()
	}
	for name, f := range p.outside {
		for _, r := range f.replicas {
			pid := int(r.pid.Load())
			x.Functions[name] = append(x.Functions[name], pid)
			x.CPU.Functions += (treeCPU(pid) + time.Duration(r.usedCPU.Load())).Seconds()
		}
	}
	if len(p.outside) == 0 {
		var own syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &own) == nil {
			x.CPU.Functions += time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
		}
	}
	return x
}

// OnClose adds what Close does first: handlers of Dev end what they started.
func (p *Running) OnClose(f func()) { p.closers = append(p.closers, f) }

// Close stops all that Start started: triggers, gateway, functions, services.
func (p *Running) Close() {
	p.closeOnce.Do(func() {
		p.closing.Store(true)
		for _, f := range slices.Backward(p.closers) {
			f()
		}
	})
}
