package stream

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/event"
	"handler/function/shared/fn"
	"handler/function/shared/release"
	"handler/function/shared/store"
	"handler/function/tests/harness"

	"github.com/nats-io/nats.go"
)

// A release's event is a nudge on core NATS, and stands in the stream once, told
// twice or not.
func TestToldOnce(t *testing.T) {
	w := setup(t)
	releases := w.releases()
	nudges := make(chan *nats.Msg, 8)
	sub, err := w.nats.Conn.ChanSubscribe(event.SeatReleased+".*", nudges)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	w.letGo("ann", 3)
	if n, err := releases.Tell(w.ctx, w.sale); n != 1 || err != nil {
		t.Fatalf("told %d, %v", n, err)
	}
	select {
	case m := <-nudges:
		if m.Subject != event.Subject(event.SeatReleased, w.sale) {
			t.Errorf("nudge on %s", m.Subject)
		}
	case <-time.After(10 * time.Second):
		t.Error("no nudge")
	}
	if n, err := releases.Tell(w.ctx, w.sale); n != 0 || err != nil {
		t.Errorf("told again: %d, %v", n, err)
	}
	// A crash between the stream's acknowledgement and the mark.
	w.exec(`UPDATE seat_release SET told_at = NULL`)
	if n, err := w.releases().TellAll(w.ctx); n != 1 || err != nil {
		t.Errorf("told after a crash: %d, %v", n, err)
	}
	all, _ := w.told()
	if len(all) != 1 {
		t.Fatalf("%d events of one release: %+v", len(all), all)
	}
	var id int64
	var at time.Time
	if err := w.db.Owner.QueryRow(w.ctx, `SELECT release_id, released_at FROM seat_release`).Scan(&id, &at); err != nil {
		t.Fatal(err)
	}
	want := release.Event{ID: fmt.Sprintf("%d-%d", w.sale, id), Type: "ABANDON", Sale: fmt.Sprint(w.sale), Seat: "1-3", Class: "second",
		From: "1", To: "3", ReleasedAt: at.UTC(), TraceID: "trace-1"}
	if all[0] != want {
		t.Errorf("event %+v, want %+v", all[0], want)
	}
}

// Field case 61: row 1 commits after row 2; both go out.
func TestLateCommit(t *testing.T) {
	w := setup(t)
	releases := w.releases()
	first, err := w.db.Owner.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback(w.ctx) }()
	const released = `SELECT seat_released($1, 'REFUND', 'second', $2, 1, 3, NULL, clock_timestamp(), '')`
	if _, err := first.Exec(w.ctx, released, w.sale, []int{1}); err != nil {
		t.Fatal(err)
	}
	w.exec(released, w.sale, []int{2})
	if n, err := releases.Tell(w.ctx, w.sale); n != 1 || err != nil {
		t.Fatalf("told %d, %v", n, err)
	}
	if err := first.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := releases.Tell(w.ctx, w.sale); n != 1 || err != nil {
		t.Errorf("told of the late one: %d, %v", n, err)
	}
	all, _ := w.told()
	if len(all) != 2 || all[0].Seat != "1-2" || all[1].Seat != "1-1" {
		t.Errorf("events %+v", all)
	}
	if n := w.count(`SELECT count(*) FROM seat_release WHERE told_at IS NULL`); n != 0 {
		t.Errorf("%d not told", n)
	}
}

// Several tellers at once: each event once, none forgotten, and of one teller
// alone in the rows' order.
func TestTellersAtOnce(t *testing.T) {
	w := setup(t)
	const n = 250 // more than two batches
	released := `SELECT seat_released($1, 'TIMEOUT', 'second', array_fill(1, ARRAY[$2::int]), 1, 3, NULL, clock_timestamp(), '')`
	w.exec(released, w.sale, n)
	var wg sync.WaitGroup
	for range 4 {
		releases := w.releases()
		wg.Go(func() {
			if _, err := releases.TellAll(w.ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, _ := w.told()
	ids := map[string]bool{}
	for _, e := range all {
		ids[e.ID] = true
	}
	if len(all) != n || len(ids) != n {
		t.Errorf("%d events, %d different, want %d", len(all), len(ids), n)
	}
	if left := w.count(`SELECT count(*) FROM seat_release WHERE told_at IS NULL`); left != 0 {
		t.Errorf("%d not told", left)
	}
	w.exec(released, w.sale, n)
	if told, err := w.releases().Tell(w.ctx, w.sale); told != n || err != nil {
		t.Errorf("told %d, %v", told, err)
	}
	all, _ = w.told()
	if sorted := slices.IsSortedFunc(all[n:], func(a, b release.Event) int { return number(a) - number(b) }); len(all) != 2*n || !sorted {
		t.Errorf("%d events, in order: %v", len(all), sorted)
	}
}

func number(e release.Event) (n int) {
	var sale int
	_, _ = fmt.Sscanf(e.ID, "%d-%d", &sale, &n)
	return n
}

// TellAll finds every sale that has something to tell, and only those.
func TestEverySale(t *testing.T) {
	w := setup(t)
	releases := w.releases()
	if n, err := releases.TellAll(w.ctx); n != 0 || err != nil {
		t.Errorf("nothing to tell: %d, %v", n, err)
	}
	sales := []int64{w.sale, w.db.OpenSale(t, 2, 4), w.db.OpenSale(t, 2, 4), w.db.OpenSale(t, 2, 4)}
	for i, sale := range sales {
		if i != 2 {
			w.exec(`SELECT seat_released($1, 'REFUND', 'second', array_fill(1, ARRAY[$2::int]), 1, 2, NULL, clock_timestamp(), '')`, sale, i+1)
		}
	}
	if n, err := releases.TellAll(w.ctx); n != 1+2+4 || err != nil {
		t.Errorf("told %d, %v", n, err)
	}
	if n := w.count(`SELECT count(*) FROM seat_release WHERE told_at IS NULL`); n != 0 {
		t.Errorf("%d not told", n)
	}
}

// NATS away: nothing is told, whoever released goes on, an alert says so after a
// minute, and once NATS is back the next call tells all and heals the alert.
func TestNATSAway(t *testing.T) {
	w := setup(t)
	db := store.New(w.db.App)
	releases := release.New(db, w.bus(), alert.New(db, ""))
	w.letGo("ann", 1, 2)
	if err := w.nats.Close(); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	releases.Committed(w.ctx, w.sale)
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("a request waited %v for NATS", took)
	}
	if _, err := releases.TellAll(w.ctx); !errors.Is(err, event.ErrDown) {
		t.Errorf("error %v", err)
	}
	if n := w.count(`SELECT count(*) FROM seat_release WHERE told_at IS NULL`); n != 2 {
		t.Errorf("%d not told, want 2", n)
	}
	open := func() int {
		if _, err := releases.Overdue(w.ctx); err != nil {
			t.Error(err)
		}
		return w.count(`SELECT count(*) FROM alert WHERE sale_id = $1 AND kind = $2 AND closed_at IS NULL`, w.sale, release.AlertLate)
	}
	if n := open(); n != 0 {
		t.Errorf("%d alerts at once", n)
	}
	w.exec(`UPDATE seat_release SET released_at = now() - interval '61 seconds'`)
	if n := open(); n != 1 {
		t.Errorf("%d alerts after a minute", n)
	}
	w.nats.Restart(t)
	w.eventually("told again", func() bool { n, _ := releases.TellAll(w.ctx); return n == 2 })
	if n := open(); n != 0 {
		t.Errorf("%d alerts after NATS came back", n)
	}
}

// The stream is lost with its server: the next call makes it again.
func TestStreamLost(t *testing.T) {
	w := setup(t)
	bus := w.bus()
	db := store.New(w.db.App)
	releases := release.New(db, bus, alert.New(db, ""))
	w.letGo("ann", 1)
	if n, err := releases.Tell(w.ctx, w.sale); n != 1 || err != nil {
		t.Fatalf("told %d, %v", n, err)
	}
	if err := bus.JetStream().DeleteStream(w.ctx, release.Stream); err != nil {
		t.Fatal(err)
	}
	w.letGo("ben", 2)
	w.eventually("told into a new stream", func() bool { n, _ := releases.Tell(w.ctx, w.sale); return n == 1 })
	if all, _ := w.told(); len(all) != 1 || all[0].Seat != "1-2" {
		t.Errorf("events %+v", all)
	}
}

// The end of a hold is told within 2 s, of a sale without a room, by admit-tick.
func TestTimeoutTold(t *testing.T) {
	w := setup(t)
	redis := harness.Redis(t)
	app := fn.NewApp(fn.Config{Secrets: harness.Secrets(t, w.db, redis, w.nats), Test: true})
	rooms, err := app.Room()
	if err != nil {
		t.Fatal(err)
	}
	w.exec(`UPDATE sale SET hold_seconds = 1, extend_seconds = 0 WHERE sale_id = $1`, w.sale)
	number := w.hold("ann", 5)
	cron := time.NewTicker(time.Second) // stack.yml
	defer cron.Stop()
	w.eventually("the end of the hold told", func() bool {
		<-cron.C
		if _, err := rooms.Tick(w.ctx); err != nil {
			t.Fatal(err)
		}
		all, _ := w.told()
		return len(all) > 0
	})
	all, at := w.told()
	var ends time.Time
	w.scan(&ends, `SELECT ends_at FROM booking WHERE sale_id = $1 AND number = $2 AND state = 'expired'`, w.sale, number)
	if len(all) != 1 || all[0].Type != "TIMEOUT" || all[0].Seat != "1-5" || !all[0].ReleasedAt.Equal(ends) {
		t.Errorf("events %+v, the hold ended %v", all, ends)
	}
	if late := at[0].Sub(ends); late < 0 || late > 2*time.Second {
		t.Errorf("told %v after the hold's end", late)
	} else {
		t.Logf("told %v after the hold's end", late)
	}
}
