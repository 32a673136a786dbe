// Command holdfast is the workbench: the whole platform on one machine, and the
// tools around it (DESIGN section 11).
//
// Each command is a file of its own with a kong struct listed in cli. With
// --json a command prints one JSON object on standard output; progress and logs
// always go to standard error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// cli lists the commands.
type cli struct {
	JSON bool `help:"Print one JSON object on standard output." name:"json"`

	Up        upCmd        `cmd:"" help:"Run the whole platform on this machine."`
	Import    importCmd    `cmd:"" help:"Put a train or a hall on sale."`
	Token     tokenCmd     `cmd:"" help:"Print an account token for the local platform."`
	Reconcile reconcileCmd `cmd:"" help:"Run the safety net once."`
	Migrate   migrateCmd   `cmd:"" help:"Bring a database to the newest schema."`
	Rush      rushCmd      `cmd:"" help:"Let a simulated crowd come, and judge what it got."`
	Audit     auditCmd     `cmd:"" help:"Check the invariants; exit status 1 if one is broken."`
	Draw      drawCmd      `cmd:"" help:"Prove a waiting room's draw."`
	Bench     benchCmd     `cmd:"" help:"Measure a function against the least its work could cost."`

	Function   functionCmd   `cmd:"" hidden:"" help:"Run one function with the template's server (holdfast up --processes starts it)."`
	BenchServe benchServeCmd `cmd:"" hidden:"" name:"bench-serve" help:"Run one function or an echo for holdfast bench."`
	NATS       natsCmd       `cmd:"" hidden:"" name:"nats" help:"Run a NATS server (holdfast up --processes starts it)."`
}

// output is where a command's answer goes.
type output struct {
	json        bool
	out, errOut io.Writer
}

// result prints the answer: v as one line of JSON with --json, else what human
// writes.
func (o *output) result(v any, human func(w io.Writer)) error {
	if !o.json {
		human(o.out)
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.out, "%s\n", b)
	return err
}

// log prints a line of progress on standard error.
func (o *output) log(format string, args ...any) { fmt.Fprintf(o.errOut, format+"\n", args...) }

// failed is an error of a command that has said all there is to say: only the
// exit status is left.
type failed struct{ code int }

func (f failed) Error() string { return fmt.Sprintf("exit status %d", f.code) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	var c cli
	p, err := kong.New(&c,
		kong.Name("holdfast"),
		kong.Description("Sells scarce seats to a crowd, and never the same seat twice."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { status = code; panic(kongExit{}) }),
		kong.Vars{"data": dataFolder()},
	)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return 1
	}
	defer func() {
		// kong ends the process after --help; here that is a return.
		if r := recover(); r != nil {
			if _, ok := r.(kongExit); !ok {
				panic(r)
			}
		}
	}()
	k, err := p.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "holdfast: %s\n(holdfast --help lists the commands)\n", err)
		return 2
	}
	logTo(stderr)
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(&output{json: c.JSON, out: stdout, errOut: stderr}); err != nil {
		var f failed
		if errors.As(err, &f) {
			return f.code
		}
		fmt.Fprintln(stderr, "holdfast:", err)
		return 1
	}
	return 0
}

// kongExit is how kong's wish to end the process reaches run.
type kongExit struct{}
