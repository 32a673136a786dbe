package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/term"

	"handler/function/cmd/holdfast/rush"
	"handler/function/shared/key"
	"handler/function/shared/ticket"
)

// rushCmd lets a crowd come to a sale made for it and judges what it got. This
// process is the load; the platform is a child of it or elsewhere.
type rushCmd struct {
	People int           `default:"2000" help:"How many people come."`
	Window time.Duration `default:"60s" help:"Within which time they come; most in the first seconds."`
	Seats  int           `default:"500" help:"Seats of the sale."`
	Party  int           `default:"2" help:"Seats a person wants."`
	Legs   int           `default:"1" help:"Legs of the sale: 1 is a screening, more a train with intervals at random."`
	Admit  int           `default:"100" help:"People admitted a second."`
	Hold   time.Duration `default:"300s" help:"How long a hold lasts."`
	Draw   time.Duration `help:"How long the draw is open; half of the window, at most 30s, when not given."`
	Unpaid float64       `default:"0.3" help:"Share of the people who never pay."`
	CDN    bool          `name:"cdn" help:"Model a cache in front: one poll of the room's document a second for everybody."`
	Seed   uint64        `default:"1" help:"The same seed gives the same crowd."`
	Report string        `help:"Write an HTML report to this file." type:"path"`

	KillFunctions bool     `help:"Kill all functions with SIGKILL while the draw is open, while people wait and while they are admitted."`
	Flush         []string `help:"Empty Redis in these phases: draw, wait, admit." sep:","`
	Promote       []string `help:"Let a lagging replica of Redis take over in these phases: draw, wait, admit." sep:","`

	URL         string         `name:"url" help:"Use this platform in place of an own one."`
	Secrets     string         `help:"Folder with the secrets of the platform given by --url." type:"path"`
	PostgresURL string         `help:"URL of that platform's Postgres, to audit it."`
	NATSURL     string         `name:"nats-url" help:"URL of its NATS, to audit places by the stream of joins."`
	Replicas    map[string]int `help:"Processes of a function of the own platform, as hold=2;join-room=3; with --kill-functions join-room=2 when not given."`
	Logs        string         `help:"Where the logs of the own platform go; nowhere when not given." type:"path"`
}

func (c *rushCmd) Run(ctx context.Context, out *output) error {
	o := rush.Options{
		People: c.People, Window: c.Window, Seats: c.Seats, Party: c.Party, Legs: c.Legs, Admit: c.Admit, Hold: c.Hold,
		Draw: c.Draw, Unpaid: c.Unpaid, CDN: c.CDN, Seed: c.Seed, Flush: c.Flush, Promote: c.Promote,
		Progress: out.errOut, Terminal: isTerminal(out.errOut), Log: out.log,
	}
	if o.Draw == 0 {
		o.Draw = min(c.Window/2, 30*time.Second).Truncate(time.Second)
	}
	if c.KillFunctions {
		o.Kill = []string{rush.PhaseDraw, rush.PhaseWait, rush.PhaseAdmit}
	}
	postgres, nats := c.PostgresURL, c.NATSURL
	if c.URL != "" {
		if c.Secrets == "" {
			return errors.New("--url needs --secrets: the crowd signs its account tokens with the platform's key")
		}
		o.Platform.URL = c.URL
		if err := readSecrets(&o.Platform, c.Secrets); err != nil {
			return err
		}
	} else {
		p, end, err := c.start(ctx, out, &o)
		if err != nil {
			return err
		}
		defer end()
		postgres, nats = p.PostgresAppURL, p.NATSURL
	}
	res, err := rush.Run(ctx, o)
	if err != nil {
		return err
	}
	if postgres != "" {
		if err := auditRush(ctx, postgres, nats, res); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	if c.Report != "" {
		if err := writeReport(c.Report, res); err != nil {
			return err
		}
		out.log("the report is in %s", c.Report)
	}
	if err := out.result(res, res.Table); err != nil {
		return err
	}
	if len(res.Broken) > 0 {
		return failed{1}
	}
	return nil
}

// start starts a platform of the rush's own on temporary data.
func (c *rushCmd) start(ctx context.Context, out *output, o *rush.Options) (_ *childPlatform, end func(), err error) {
	out.log("starting a platform of our own")
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	args := []string{"--processes"}
	replicas := maps.Clone(c.Replicas)
	if c.KillFunctions && len(replicas) == 0 {
		replicas = map[string]int{"join-room": 2} // nobody runs the door of a rush on one
	}
	for name, n := range replicas {
		args = append(args, fmt.Sprintf("--replicas=%s=%d", name, n)) // kong gathers them
	}
	if len(c.Promote) > 0 {
		dir, err := os.MkdirTemp("", "holdfast-redis-")
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, func() { _ = os.RemoveAll(dir) })
		f, err := rush.NewFailover(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, f.Close)
		o.Platform.Promote = f.Promote
		args = append(args, "--redis-url", f.URL())
	}
	logs := io.Discard
	if c.Logs != "" {
		file, err := os.Create(c.Logs)
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, func() { _ = file.Close() })
		logs = file
	}
	p, err := startChild(ctx, logs, args...)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, p.Close)
	o.Platform.URL, o.Platform.PID, o.Platform.Redis = p.URL, p.cmd.Process.Pid, p.RedisURL
	return p, end, readSecrets(&o.Platform, p.Secrets)
}

// readSecrets reads what the crowd needs: the key of account tokens, and the
// keys that verify the codes on tickets.
func readSecrets(p *rush.Platform, dir string) error {
	ring := func(name string) (key.Ring, error) {
		file, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return key.Ring{}, err
		}
		return key.Parse(string(file))
	}
	var err error
	if p.Keys, err = ring("account-key"); err != nil {
		return err
	}
	tickets, err := ring("ticket-key")
	if err != nil {
		return err
	}
	signer, err := ticket.NewSigner(tickets)
	if err != nil {
		return err
	}
	p.Tickets = signer.Public()
	p.Audience = os.Getenv("HOLDFAST_ACCOUNT_AUDIENCE")
	if p.Redis == "" {
		if file, err := os.ReadFile(filepath.Join(dir, "redis-url")); err == nil {
			p.Redis = string(file[:max(0, len(file)-1)])
		}
	}
	return nil
}

// auditRush adds what the platform's own audit finds.
func auditRush(ctx context.Context, postgres, nats string, res *rush.Result) error {
	report, err := auditPlatform(ctx, postgres, nats, "", 0)
	if err != nil {
		return err
	}
	res.Audit = report
	for _, b := range report.Broken {
		res.Broken = append(res.Broken, fmt.Sprintf("audit, invariant %d (%s): %s", b.Invariant, b.Check, b.Detail))
	}
	return nil
}

func writeReport(file string, res *rush.Result) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(res.Report(f), f.Close())
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
