package money

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"handler/function/shared/idempotency"
	"handler/function/shared/outbox"
)

// A bad row is set aside after three tries with an alert, and the batch goes on.
func TestBadRow(t *testing.T) {
	w := setup(t, options{})
	for i := range 5 {
		w.exec(`INSERT INTO outbox (sale_id, kind, subject, payload, created_at) VALUES ($1, 'letter', $2, '{}', '2026-01-02 03:04:05Z')`, w.sale, fmt.Sprint(i))
	}
	tries := map[string]int{}
	var mu sync.Mutex
	broken := true
	work := func(_ context.Context, r outbox.Row) error {
		mu.Lock()
		defer mu.Unlock()
		tries[r.Subject]++
		if r.Subject == "2" && broken {
			if tries["2"] == 2 {
				panic("a bad row")
			}
			return errors.New("bad")
		}
		return nil
	}
	for range 3 {
		if _, err := w.box.Drain(w.ctx, w.sale, "letter", 2, work); err != nil {
			t.Fatal(err)
		}
		w.exec(`UPDATE outbox SET due_at = now() WHERE done_at IS NULL`)
	}
	if n := w.outbox("letter", "done_at IS NOT NULL"); n != 4 {
		t.Errorf("%d done", n)
	}
	if n := w.outbox("letter", "subject = '2' AND tries = 3 AND set_aside_at IS NOT NULL AND error = 'bad' AND created_at = '2026-01-02 03:04:05Z'"); n != 1 {
		t.Error("the bad row is not set aside")
	}
	open := func() int {
		return w.count(`SELECT count(*) FROM alert WHERE kind = 'outbox' AND subject = 'letter' AND closed_at IS NULL`)
	}
	if open() != 1 {
		t.Error("no alert")
	}
	broken = false
	if did, err := w.box.Drain(w.ctx, w.sale, "letter", 2, work); err != nil || did.Done != 1 || open() != 0 {
		t.Errorf("%+v, %v, %d open", did, err, open())
	}
	for s, n := range tries {
		if s != "2" && n != 1 {
			t.Errorf("row %s was worked at %d times", s, n)
		}
	}
}

// The outside is down: the batch stops, the rest is as it was.
func TestDown(t *testing.T) {
	w := setup(t, options{})
	for i := range 10 {
		w.exec(`INSERT INTO outbox (sale_id, kind, subject) VALUES ($1, 'letter', $2)`, w.sale, fmt.Sprint(i))
	}
	did, err := w.box.Drain(w.ctx, w.sale, "letter", 1, func(context.Context, outbox.Row) error { return outbox.Down(errors.New("no route")) })
	if !outbox.IsDown(err) || did.Failed != 1 {
		t.Errorf("%+v, %v", did, err)
	}
	if n := w.outbox("letter", "tries = 0 AND due_at <= now()"); n != 9 {
		t.Errorf("%d rows are as they were", n)
	}
	if did, err = w.box.DrainAll(w.ctx, "letter", 4, func(context.Context, outbox.Row) error { return nil }); err != nil || did.Done != 9 {
		t.Errorf("%+v, %v", did, err)
	}
}

// field case 61: a row with a smaller id that commits later goes out too. And
// rows more than a batch, worked at by two replicas, go out once each.
func TestLateCommit(t *testing.T) {
	w := setup(t, options{})
	tx, err := w.db.Owner.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(w.ctx) }()
	if _, err := tx.Exec(w.ctx, `INSERT INTO outbox (sale_id, kind, subject) VALUES ($1, 'letter', 'first')`, w.sale); err != nil {
		t.Fatal(err)
	}
	w.exec(`INSERT INTO outbox (sale_id, kind, subject) SELECT $1, 'letter', n::text FROM generate_series(1, 250) n`, w.sale)
	var mu sync.Mutex
	sent := map[string]int{}
	work := func(_ context.Context, r outbox.Row) error {
		mu.Lock()
		defer mu.Unlock()
		sent[r.Subject]++
		return nil
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := w.box.Drain(w.ctx, w.sale, "letter", 8, work); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.box.Drain(w.ctx, w.sale, "letter", 8, work); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 251 || sent["first"] != 1 {
		t.Errorf("%d of 251 went out, the late one %d times", len(sent), sent["first"])
	}
	for s, n := range sent {
		if n != 1 {
			t.Errorf("%s went out %d times", s, n)
		}
	}
}

// What nobody works at is an alert after 60 s, and no alert once it is done.
func TestOverdue(t *testing.T) {
	w := setup(t, options{})
	w.exec(`INSERT INTO outbox (sale_id, kind, subject, due_at) VALUES ($1, 'letter', '1', now() - interval '61 seconds')`, w.sale)
	open := func() int {
		return w.count(`SELECT count(*) FROM alert WHERE kind = 'outbox-late' AND closed_at IS NULL`)
	}
	if n, err := w.box.Overdue(w.ctx); err != nil || n != 1 || open() != 1 {
		t.Errorf("%d, %v, %d open", n, err, open())
	}
	w.check() // invariant 5 holds, as there is an alert
	w.exec(`UPDATE outbox SET done_at = now()`)
	if n, err := w.box.Overdue(w.ctx); err != nil || n != 0 || open() != 0 {
		t.Errorf("%d, %v, %d open", n, err, open())
	}
	if _, err := w.box.Drain(w.ctx, w.sale, "letter", 1, func(context.Context, outbox.Row) error { t.Error("done already"); return nil }); err != nil {
		t.Error(err)
	}
}

// Later asks again without a failure.
func TestLater(t *testing.T) {
	w := setup(t, options{})
	w.exec(`INSERT INTO outbox (sale_id, kind, subject) VALUES ($1, 'letter', '1')`, w.sale)
	did, err := w.box.Drain(w.ctx, w.sale, "letter", 1, func(context.Context, outbox.Row) error { return outbox.Later(time.Hour) })
	if err != nil || did.Later != 1 || w.outbox("letter", "tries = 0 AND error IS NULL AND due_at > now() + interval '59 minutes'") != 1 {
		t.Errorf("%+v, %v", did, err)
	}
}

// Keys older than a day are dropped.
func TestOldKeys(t *testing.T) {
	w := setup(t, options{})
	w.exec(`INSERT INTO idempotency (sale_id, account, function, key, hash, created_at)
		SELECT $1, 'a', 'pay', n::text, '', now() - CASE WHEN n <= 1200 THEN interval '25 hours' ELSE interval '23 hours' END FROM generate_series(1, 1300) n`, w.sale)
	n, err := idempotency.New(w.store).Sweep(w.ctx)
	if err != nil || n != 1200 || w.count(`SELECT count(*) FROM idempotency`) != 100 {
		t.Errorf("dropped %d, %v", n, err)
	}
}
