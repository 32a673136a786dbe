package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"handler/function/shared/fn"
	"handler/function/shared/reconcile"
)

// reconcileTime bounds one run from the command line. The function has ten
// seconds; a person may wait for more to be caught up.
const reconcileTime = 5 * time.Minute

// reconcileCmd runs the safety net once, here and now, whether or not the
// function reconcile ran a moment ago.
type reconcileCmd struct {
	Now     bool   `required:"" help:"Run it now. It is always safe to run."`
	Data    string `default:"${data}" help:"The platform's data folder." type:"path"`
	Secrets string `env:"HOLDFAST_SECRETS" help:"A folder of secrets in place of the platform's." type:"path"`
	URL     string `default:"http://127.0.0.1:8080" help:"Where the local platform listens, for its sandbox gateway; empty for none."`
}

func (c *reconcileCmd) Run(ctx context.Context, out *output) error {
	secrets := c.Secrets
	if secrets == "" {
		secrets = filepath.Join(c.Data, "secrets")
	}
	conf := fn.Config{Secrets: secrets}
	if c.URL != "" {
		conf.Test, conf.SandboxURL = true, strings.TrimRight(c.URL, "/")+"/dev/gateway"
	}
	net, err := fn.NewApp(conf).Reconcile()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileTime)
	defer cancel()
	did := net.Now(ctx)
	err = out.result(struct {
		Did reconcile.Did `json:"did"`
	}{did}, func(w io.Writer) {
		fmt.Fprintf(w, "events %d (%d from the stream), payments asked about %d, refunds %d, cancelled %d,\n"+
			"tickets called for in %d sales, holds ended %d, late kinds %d, money that differs %d, keys dropped %d\n",
			did.Events, did.Replayed, did.Asked, did.Refunded, did.Cancelled,
			did.Nudged, did.Expired, did.Overdue, did.MoneyFaults, did.Forgotten)
		s := did.Standby
		fmt.Fprintf(w, "standby: pending orders recovered %d, changes brought to the queues %d, rebuilt %d, queues split %d;\n"+
			"ghosts taken out %d, missing put back %d, orders beside a free seat %d, forgotten seats %d;\n"+
			"match called for in %d sales, releases late %d\n",
			s.Recovered, s.Mirrored, s.Rebuilt, s.Split, s.Ghosts, s.Missing, s.Beside, s.Rechecked, s.Nudged, s.Late)
	})
	if err == nil && did.Errors > 0 {
		out.log("%d steps did not finish; see the log above", did.Errors)
		return failed{1}
	}
	return err
}
