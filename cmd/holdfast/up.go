package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"handler/function/cmd/holdfast/platform"
	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/key"
)

// upCmd runs the platform until it is told to stop.
type upCmd struct {
	Data           string         `default:"${data}" help:"Folder of the data, kept between starts." type:"path"`
	Host           string         `default:"127.0.0.1" help:"Address the gateway listens on."`
	Port           int            `default:"8080" help:"Port of the gateway; 0 picks a free one and prints it."`
	Processes      bool           `help:"Run each function as a process of its own."`
	Replicas       map[string]int `help:"Processes of a function, as hold=2;join-room=3 (with --processes)."`
	Demo           bool           `help:"Load the demo sales."`
	PostgresURL    string         `help:"Use this Postgres (URL of the schema's owner) in place of an own one."`
	PostgresAppURL string         `help:"URL of the application's role there; made when not given."`
	RedisURL       string         `help:"Use this Redis in place of an own one."`
	NATSURL        string         `name:"nats-url" help:"Use this NATS in place of an own one."`
	Unsafe         bool           `hidden:"" help:"Run Postgres without fsync: for tests of rules only."`
	Env            []string       `hidden:"" help:"NAME=VALUE for every function, over what stack.yml says." sep:"none"`
}

// upResult is the line that --json prints when the platform is ready.
type upResult struct {
	URL            string             `json:"url"`
	PostgresURL    string             `json:"postgres_url"`
	PostgresAppURL string             `json:"postgres_app_url"`
	RedisURL       string             `json:"redis_url"`
	NATSURL        string             `json:"nats_url"`
	Data           string             `json:"data"`
	Secrets        string             `json:"secrets"`
	Processes      platform.Processes `json:"processes"`
}

func (c *upCmd) Run(ctx context.Context, out *output) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	out.log("starting the platform in %s", c.Data)
	p, err := startPlatform(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		out.log("stopping")
		p.Close()
	}()
	if c.Demo {
		if err := loadDemo(ctx, p, out); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	err = out.result(upResult{
		p.URL, p.PostgresURL, p.PostgresAppURL, p.RedisURL, p.NATSURL, p.Data, p.Secrets, p.Processes(),
	}, func(w io.Writer) {
		fmt.Fprintf(w, `Holdfast is up at %s

  pages            %s/
  account token    %s/dev/token?account=NAME
  mails and SMS    %s/dev/mail
  sandbox gateway  %s/dev/gateway
  data             %s

Ctrl-C stops it.
`, p.URL, p.URL, p.URL, p.URL, p.URL, p.Data)
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (c *upCmd) options() (platform.Options, error) {
	o := platform.Options{
		Data: c.Data, Host: c.Host, Port: c.Port, Processes: c.Processes, Replicas: c.Replicas,
		PostgresURL: c.PostgresURL, PostgresAppURL: c.PostgresAppURL, RedisURL: c.RedisURL, NATSURL: c.NATSURL,
		Unsafe: c.Unsafe, Env: map[string]string{},
	}
	if len(c.Replicas) > 0 && !c.Processes {
		return o, fmt.Errorf("--replicas needs --processes")
	}
	for _, kv := range c.Env {
		name, value, ok := cutEnv(kv)
		if !ok {
			return o, fmt.Errorf("--env %q is not NAME=VALUE", kv)
		}
		o.Env[name] = value
	}
	return o, nil
}

// dataFolder is where a platform keeps its data unless told otherwise: the folder
// of `make run` where that is at hand.
func dataFolder() string {
	if here, err := filepath.Abs(".holdfast"); err == nil {
		if _, err := os.Stat(here); err == nil {
			return here
		}
	}
	if os.Geteuid() == 0 {
		return "/var/lib/holdfast/default" // Postgres, not run as root, must reach it
	}
	if dir, err := os.UserHomeDir(); err == nil {
		return filepath.Join(dir, ".local", "share", "holdfast")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-%d", os.Geteuid()))
}

// logTo sends logs to standard error, as lines a person can read.
func logTo(w io.Writer) {
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelInfo,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.String(slog.TimeKey, a.Value.Time().Format(time.TimeOnly))
			}
			return a
		},
	})))
}

// devHandlers are served under /dev beside the platform's own: the sandbox
// gateway, whose payments are kept with the data.
func devHandlers(p *platform.Running) (map[string]http.Handler, error) {
	file, err := os.ReadFile(filepath.Join(p.Secrets, "sandbox-key"))
	if err != nil {
		return nil, err
	}
	keys, err := key.Parse(string(file))
	if err != nil {
		return nil, err
	}
	gateway, err := sandboxgw.New(sandboxgw.Config{
		URL: p.URL + "/dev/gateway", Platform: p.URL, Keys: keys,
		File: filepath.Join(p.Data, "sandbox-gateway.json"),
	})
	if err != nil {
		return nil, err
	}
	p.OnClose(gateway.Close)
	return map[string]http.Handler{"gateway": gateway}, nil
}
