package main

import (
	"context"
	"fmt"
	"io"

	"handler/function/cmd/holdfast/verify"
)

// drawCmd is what can be done with a room's draw.
type drawCmd struct {
	Verify drawVerifyCmd `cmd:"" help:"Repeat a room's draw from public data alone; exit 1 if it does not hold."`
}

type drawVerifyCmd struct {
	URL        string `required:"" help:"The gateway's address."`
	Room       string `required:"" help:"The room's id."`
	Commitment string `help:"The draw's commitment as noted before it (hex)."`
	Account    string `help:"Whose place to look up in the list."`
	Place      int64  `help:"The place that account was told."`
}

func (c *drawVerifyCmd) Run(ctx context.Context, out *output) error {
	a, err := verify.Check(ctx, verify.Question{
		URL: c.URL, Room: c.Room, Commitment: c.Commitment, Account: c.Account, Place: c.Place,
	})
	if err != nil {
		return err
	}
	err = out.result(a, func(w io.Writer) {
		fmt.Fprintf(w, "room %s, draw %d: %d people\n", a.Room, a.Generation, a.Drawn)
		switch {
		case a.Account != "" && a.Place > 0:
			fmt.Fprintf(w, "%s: score %d, place %d\n", a.Account, a.Score, a.Place)
		case a.Account != "":
			fmt.Fprintf(w, "%s: score %d, not in the list: joined late or not at all\n", a.Account, a.Score)
		}
		for _, s := range a.Wrong {
			fmt.Fprintln(w, "WRONG:", s)
		}
		if len(a.Wrong) == 0 {
			fmt.Fprintln(w, "the seed is the one committed to, and the list is in its order")
		}
	})
	if err == nil && len(a.Wrong) > 0 {
		return failed{1}
	}
	return err
}
