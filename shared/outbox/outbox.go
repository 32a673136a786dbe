// Package outbox does what Postgres alone cannot: each row of the table outbox
// was written in the same transaction as a change and names one thing that must
// now happen outside (a refund, a ticket, a message). Whoever owns a kind of row
// drains it here:
//
//	did, err := box.Drain(ctx, sale, "ticket", 8, func(ctx context.Context, row outbox.Row) error {
//		return tickets.Send(ctx, row)
//	})
//
// A row is claimed by moving its due time past the claim, in a transaction of
// its own, so that no transaction is open while the outside is called (law 9).
// A crash between claim and finish makes the row due again when the claim ends:
// work must have one effect however often it is called.
package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Row is one thing to do.
type Row struct {
	Sale      int64
	ID        int64
	Kind      string
	Subject   string          // what the row is about, for logs and alerts
	Payload   json.RawMessage // what the work needs, as its writer and its owner agree
	CreatedAt time.Time       // when the change was committed; never moved by tries
	Tries     int             // tries begun, this one included: 1 at the first
	TraceID   string
}

// Bind reads the payload.
func (r Row) Bind(v any) error {
	if err := json.Unmarshal(r.Payload, v); err != nil {
		return fmt.Errorf("outbox: payload of %s row %d of sale %d: %w", r.Kind, r.ID, r.Sale, err)
	}
	return nil
}

// Batch is the most rows of a claim (DESIGN 9: recovery in batches of 100).
const Batch = 100

// Claim is how long a row belongs to the replica that took it. Longer than any
// function's exec_timeout, so that two never work on one row at a time.
const Claim = 60 * time.Second

// TriesBeforeAlert is after how many failures a row is set aside with an alert
// (DESIGN 9). It is still tried, at longer and longer intervals.
const TriesBeforeAlert = 3

// longest is the longest wait between two tries of a row set aside.
const longest = 15 * time.Minute

// Wait is how long after its n-th failure (from 1) a row is due again: 1 s,
// 10 s, 60 s (DESIGN 9), then twice the last each time, at most 15 minutes.
func Wait(failures int) time.Duration {
	switch {
	case failures <= 1:
		return time.Second
	case failures == 2:
		return 10 * time.Second
	}
	wait := time.Minute
	for range failures - 3 {
		if wait *= 2; wait >= longest {
			return longest
		}
	}
	return wait
}

// down marks an error that says nothing about the row.
type down struct{ error }

func (d down) Unwrap() error { return d.error }

// Down says that the outside itself is away: the row fails as usual, the rest
// of the batch is put back untouched and the draining stops.
func Down(err error) error {
	if err == nil {
		return nil
	}
	return down{err}
}

// IsDown says whether err came from Down.
func IsDown(err error) bool {
	var d down
	return errors.As(err, &d)
}

// later is no failure: the work is not due yet.
type later struct{ wait time.Duration }

func (l later) Error() string { return "not due for " + l.wait.String() }

// Later says that the row is to be asked again after wait, without counting as
// a failure (at least 1 s).
func Later(wait time.Duration) error { return later{max(wait, time.Second)} }

// Did counts what a draining has done.
type Did struct {
	Done   int `json:"done"`
	Failed int `json:"failed"`
	Later  int `json:"later"`
}

// Add sums two counts.
func (d *Did) Add(o Did) {
	d.Done += o.Done
	d.Failed += o.Failed
	d.Later += o.Later
}
