package fn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"handler/function/shared/account"
	"handler/function/shared/event"
	"handler/function/shared/id"
	"handler/function/shared/key"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

// Config is what stack.yml gives a function as environment. Secrets are files
// beside it.
type Config struct {
	Secrets        string         // folder of the secret files
	Test           bool           // HOLDFAST_ENV=test: the sandbox gateway is allowed
	JWKS           string         // an identity provider's keys; empty for none
	Audience       string         // `aud` of account tokens
	PublicURL      string         // the gateway as customers see it, without a slash at the end
	SandboxURL     string         // the sandbox gateway's API
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	Pool           int32          // connections to Postgres; 0: the size of a replica
}

// DefaultSecrets is where OpenFaaS mounts secrets.
const DefaultSecrets = "/var/openfaas/secrets"

func configFromEnv() (Config, error) {
	c := Config{
		Secrets: os.Getenv("HOLDFAST_SECRETS"), Test: os.Getenv("HOLDFAST_ENV") == "test",
		JWKS: os.Getenv("HOLDFAST_ACCOUNT_JWKS"), Audience: os.Getenv("HOLDFAST_ACCOUNT_AUDIENCE"),
		PublicURL:  strings.TrimRight(os.Getenv("HOLDFAST_PUBLIC_URL"), "/"),
		SandboxURL: strings.TrimRight(os.Getenv("HOLDFAST_SANDBOX_URL"), "/"),
	}
	if c.Secrets == "" {
		c.Secrets = DefaultSecrets
	}
	// Set by the workbench, where one process may serve every function.
	if s := os.Getenv("HOLDFAST_POOL"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 1 || n > 64 {
			return c, fmt.Errorf("fn: HOLDFAST_POOL must be 1 to 64, not %q", s)
		}
		c.Pool = int32(n)
	}
	if c.Audience == "" {
		c.Audience = account.DefaultAudience
	}
	for _, s := range strings.FieldsFunc(os.Getenv("HOLDFAST_TRUSTED_PROXIES"), func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return c, fmt.Errorf("fn: HOLDFAST_TRUSTED_PROXIES: %w", err)
		}
		c.TrustedProxies = append(c.TrustedProxies, p)
	}
	return c, nil
}

// App is the process's pools and services, each made when first asked for, so
// that a function needs only the secrets it uses.
type App struct {
	Config Config

	mu   sync.Mutex
	made map[string]any
}

var process struct {
	sync.Mutex
	app *App
}

// Default is the process's App, made from the environment at first use.
func Default() (*App, error) {
	process.Lock()
	defer process.Unlock()
	if process.app == nil {
		c, err := configFromEnv()
		if err != nil {
			return nil, err
		}
		process.app = NewApp(c)
	}
	return process.app, nil
}

// SetDefault replaces the process's App; the workbench and tests use it before
// the first request.
func SetDefault(a *App) {
	process.Lock()
	defer process.Unlock()
	process.app = a
}

// NewApp makes an App with nothing opened yet.
func NewApp(c Config) *App { return &App{Config: c, made: map[string]any{}} }

// once gives the one T of this App under a name, making it at first use. A
// failed attempt is tried again at the next call.
func once[T any](a *App, name string, make func() (T, error)) (T, error) {
	a.mu.Lock()
	if v, ok := a.made[name]; ok {
		a.mu.Unlock()
		return v.(T), nil
	}
	a.mu.Unlock()
	// Made outside the lock, as one service asks for another.
	v, err := make()
	if err != nil {
		var zero T
		return zero, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if first, ok := a.made[name]; ok {
		if c, ok := any(v).(interface{ Close() }); ok {
			c.Close()
		}
		return first.(T), nil
	}
	a.made[name] = v
	return v, nil
}

// Secret reads a secret file, without the newline at its end.
func (a *App) Secret(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(a.Config.Secrets, name))
	if err != nil {
		return "", fmt.Errorf("fn: secret %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// OptionalSecret is Secret, or "" where the file is not mounted.
func (a *App) OptionalSecret(name string) (string, error) {
	s, err := a.Secret(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return s, err
}

// Keys reads a secret key file.
func (a *App) Keys(name string) (key.Ring, error) {
	s, err := a.Secret(name)
	if err != nil {
		return key.Ring{}, err
	}
	return key.Parse(s)
}

// DB is the pool to Postgres as the application's role.
func (a *App) DB() (*store.DB, error) {
	return once(a, "db", func() (*store.DB, error) {
		url, err := a.Secret("postgres-url")
		if err != nil {
			return nil, err
		}
		if a.Config.Pool > 0 {
			return store.OpenSize(url, a.Config.Pool)
		}
		return store.Open(url)
	})
}

// Redis is the client of the queues and counters.
func (a *App) Redis() (*queue.Client, error) {
	return once(a, "redis", func() (*queue.Client, error) {
		url, err := a.Secret("redis-url")
		if err != nil {
			return nil, err
		}
		return queue.Open(url)
	})
}

// Bus is the connection to NATS.
func (a *App) Bus() (*event.Bus, error) {
	return once(a, "bus", func() (*event.Bus, error) {
		url, err := a.Secret("nats-url")
		if err != nil {
			return nil, err
		}
		return event.Open(url)
	})
}

// IDs makes and reads public ids.
func (a *App) IDs() (*id.Maker, error) {
	return once(a, "ids", func() (*id.Maker, error) {
		ring, err := a.Keys("id-key")
		if err != nil {
			return nil, err
		}
		return id.New(ring), nil
	})
}

// Verifier checks account tokens.
func (a *App) Verifier() (*account.Verifier, error) {
	return once(a, "verifier", func() (*account.Verifier, error) {
		var ring key.Ring
		file, err := a.OptionalSecret("account-key")
		if err != nil {
			return nil, err
		}
		if file != "" {
			if ring, err = key.Parse(file); err != nil {
				return nil, err
			}
		}
		return account.NewVerifier(context.Background(), account.Options{Keys: ring, JWKS: a.Config.JWKS, Audience: a.Config.Audience})
	})
}

// clientOf is the customer's address: the last X-Forwarded-For entry that is
// no trusted proxy. The gateway keeps what a client sent in that header, so
// without a trusted proxy in front nothing in it is believed and the address
// is zero: then limits for each account hold, and one wide limit for all.
func (a *App) clientOf(h http.Header) netip.Addr {
	if len(a.Config.TrustedProxies) == 0 {
		return netip.Addr{}
	}
	hops := strings.Split(strings.Join(h.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && i > len(hops)-16; i-- {
		hop := strings.TrimSpace(hops[i])
		addr, err := netip.ParseAddr(hop)
		if err != nil {
			ap, err := netip.ParseAddrPort(hop)
			if err != nil {
				return netip.Addr{}
			}
			addr = ap.Addr()
		}
		if addr = addr.Unmap(); !a.trusted(addr) {
			return addr
		}
	}
	return netip.Addr{}
}

func (a *App) trusted(addr netip.Addr) bool {
	for _, p := range a.Config.TrustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
