package standby_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"handler/function/cmd/holdfast/bench/textbook"
	"handler/function/tests/harness"
)

// lease is how long a lock of the textbook design lives here; a transaction that
// is stopped is stopped for longer.
const lease = 100 * time.Millisecond

// One seat comes free and two wait for it. Whoever matches is stopped in
// mid-transaction, by what stops processes: a garbage collector, a disk, a network.
func oneSeatTwoWait(t *testing.T) (w *matching, seat int, orders []int64) {
	w = newMatching(t, 3, 4)
	held := w.take(1, 3, 1, 2, 3, 4)
	orders = []int64{w.order("a", 1, 3, 1), w.order("b", 1, 3, 1)}
	w.match()
	w.letGo("seat-2-1", held[1])
	return w, 2, orders
}

// twoOnALeg is the check that both designs are judged by.
func (w *matching) twoOnALeg() int {
	w.t.Helper()
	n, err := textbook.TwoOnALeg(w.ctx, w.db.Owner, w.sale)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// The textbook design's lock times out in mid-transaction, another takes it
// rightly, and both seat somebody: its locks are in Redis, and no time is long
// enough for a process that is stopped.
func TestTextbookOversells(t *testing.T) {
	w, seat, orders := oneSeatTwoWait(t)
	rdb := harness.Redis(t)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	first := &textbook.Design{
		Redis: rdb.Client, DB: w.db.Owner, Sale: w.sale, Class: "second", Legs: 3, Lease: lease,
		Between: func(order int64) {
			if order == orders[0] {
				close(stopped)
				<-goOn
			}
		},
	}
	if err := first.Load(w.ctx); err != nil {
		t.Fatal(err)
	}
	release := textbook.Release{ID: 1, Seat: seat, Interval: textbook.Interval{From: 1, To: 3}}
	var done sync.WaitGroup
	var matched int
	var err error
	done.Go(func() { matched, err = first.Match(w.ctx, release) })
	<-stopped

	// While the lock lives, another replica stays out.
	if n, err := first.Match(w.ctx, release); n != 0 || err != nil {
		t.Fatalf("with the lock alive: %d matched, %v", n, err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(lease / 10) {
		keys, err := rdb.Client.Keys(w.ctx, "*:lock:*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break // the lease is over, its owner still stopped
		}
		if time.Now().After(end) {
			t.Fatalf("locks that do not end: %v", keys)
		}
	}
	if n, err := first.Match(w.ctx, release); n != 1 || err != nil {
		t.Fatalf("with the lease over: %d matched, %v", n, err)
	}
	close(goOn)
	done.Wait()
	if matched != 1 || err != nil {
		t.Fatalf("the one that was stopped: %d matched, %v", matched, err)
	}
	if n := w.twoOnALeg(); n != 3 {
		t.Errorf("two sit on %d legs, want all 3: what this test shows is gone", n)
	}
}

// The same with ours: the transaction is stopped for longer than any lease while
// another replica, and the open sale, come for the seat. Postgres's row locks end
// with their transaction and not with a clock.
func TestStoppedMatchDoesNotOversell(t *testing.T) {
	w, seat, orders := oneSeatTwoWait(t)
	// What stops it: somebody else has the row of the account that comes first.
	tx, err := w.db.Owner.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(w.ctx)) }()
	if _, err := tx.Exec(w.ctx, `SELECT 1 FROM account_sale WHERE sale_id = $1 AND account = 'a' FOR UPDATE`, w.sale); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		if err := w.db.Owner.QueryRow(w.ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var done sync.WaitGroup
	var errs [2]error
	for i := range errs {
		done.Go(func() { _, errs[i] = w.m.Match(w.ctx, w.sale) })
	}
	// One is stopped in mid-transaction, the other waits for the sale's match row.
	for end := time.Now().Add(30 * time.Second); waiting() < 2; time.Sleep(lease / 10) {
		if time.Now().After(end) {
			t.Fatalf("%d wait, want 2", waiting())
		}
	}
	var code string
	if err := w.db.App.QueryRow(w.ctx, `SELECT hold_seats($1, 'c', 'k', '\x00', NULL, NULL, 'second', 1, 3, ARRAY[$2::int], NULL, 1, 0, NULL, '[]', '{}', NULL, 'customer', '')->>'code'`,
		w.sale, seat).Scan(&code); err != nil || code != "standby-first" {
		t.Fatalf("the open sale meanwhile: %s %v", code, err)
	}
	time.Sleep(2 * lease) // longer than the other design's locks live
	if err := tx.Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := w.twoOnALeg(); n != 0 {
		t.Errorf("two sit on %d legs", n)
	}
	if got := w.seats(orders[0]); !slices.Equal(got, []int{seat}) {
		t.Errorf("the first order has %v", got)
	}
	if got := w.state(orders[1]); got != "queued" {
		t.Errorf("the second order is %s", got)
	}
}
