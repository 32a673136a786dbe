package room_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/room"
	"handler/function/shared/store"
)

func TestSoldOutStopsTheRoomAndOpensItAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 5})
	answers := crowd(t, s, id, "p", 40)
	w.run(w.replica(""))
	until(t, "the line moves", func() bool { return status(t, s, id).Serving >= 3 })
	// The hold that takes the last says so: seen at the next poll.
	if err := s.SoldOut(t.Context(), id, 1000+id); err != nil {
		t.Fatal(err)
	}
	w.setLeft(1000+id, 0)
	until(t, "sold out is shown", func() bool { st := status(t, s, id); return st.SoldOut && st.State == room.SoldOut })
	until(t, "the room has stopped", func() bool {
		var who string
		err := w.db.Owner.QueryRow(context.Background(), `SELECT admit_for FROM room WHERE room_id = $1`, id).Scan(&who)
		return err == nil && who == "nobody"
	})
	stopped := status(t, s, id).Serving
	served, waiting := 0, 0
	for i, a := range answers {
		b := join(t, s, id, fmt.Sprint("p", i), a.PlaceToken)
		if b.AdmitToken != "" {
			t.Fatalf("admitted after the sell-out: %+v", b)
		}
		if b.State != room.SoldOut {
			t.Fatalf("person %d of a sold-out room: %+v", i, b)
		}
		if placeOf(b) <= stopped {
			served++
		} else {
			waiting++
		}
	}
	if served == 0 || waiting == 0 {
		t.Fatalf("%d served, %d waiting", served, waiting)
	}
	if now := status(t, s, id).Serving; now != stopped {
		t.Fatalf("serving went on from %d to %d", stopped, now)
	}
	w.setLeft(1000+id, 2)
	until(t, "it opens again", func() bool { return status(t, s, id).State == room.Admitting })
	until(t, "someone comes in", func() bool {
		for i, a := range answers {
			if join(t, s, id, fmt.Sprint("p", i), a.PlaceToken).AdmitToken != "" {
				return true
			}
		}
		return false
	})
}

// Sold out for a second, the room admits on to standby alone, and back to hold when
// the open sale has seats again.
func TestSoldOutLeadsToStandby(t *testing.T) {
	t.Parallel()
	w := setup(t)
	withStandby := func(o *room.Options) { o.Standby = true }
	s := w.replicaWith("", withStandby)
	id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 2, StandbyPerSecond: 20})
	answers := crowd(t, s, id, "p", 60)
	w.run(w.replicaWith("", withStandby))
	until(t, "the line moves", func() bool { return status(t, s, id).Serving >= 2 })
	w.setLeft(1000+id, 0)
	until(t, "sold out is shown", func() bool { return status(t, s, id).SoldOut })
	until(t, "the room admits to standby", func() bool { return status(t, s, id).State == room.Standby })
	from := status(t, s, id).Serving

	tokens := room.NewTokens(w.keys, nil)
	admittedFor := func(what string) string {
		for i, a := range answers {
			b := join(t, s, id, fmt.Sprint("p", i), a.PlaceToken)
			if b.AdmitToken == "" || b.AdmitFor != what || placeOf(b) <= from {
				continue
			}
			admit, err := tokens.VerifyAdmit(b.AdmitToken)
			if err != nil || admit.For != what || admit.Account != fmt.Sprint("p", i) {
				t.Fatalf("%+v, %v", admit, err)
			}
			hold, standby := admit.Check(id, admit.Account, room.ForHold), admit.Check(id, admit.Account, room.ForStandby)
			if what == room.ForStandby && (!problem.Is(hold, problem.AdmitOther) || standby != nil || b.State != room.Standby) {
				t.Fatalf("for standby: hold says %v, standby %v; %+v", hold, standby, b)
			}
			if what == room.ForHold && (hold != nil || standby != nil || b.State != room.Served) {
				t.Fatalf("for hold: hold says %v, standby %v; %+v", hold, standby, b)
			}
			return b.AdmitToken
		}
		return ""
	}
	until(t, "someone is admitted to standby", func() bool { return admittedFor(room.ForStandby) != "" })
	// At standby's own rate, ten times that of hold here.
	until(t, "the line moves at the rate of standby", func() bool { return status(t, s, id).Serving >= from+10 })

	w.setLeft(1000+id, 2)
	until(t, "it admits to hold again", func() bool { return status(t, s, id).State == room.Admitting })
	from = status(t, s, id).Serving
	until(t, "someone is admitted to hold", func() bool { return admittedFor(room.ForHold) != "" })
}

// While paused, or while hold cannot work, nobody is admitted and no place lapses.
func TestNoPlaceLapsesWhileNobodyCanCome(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(w *world, id int64){
		"the room is paused": func(w *world, id int64) {
			yes := true
			if err := room.Patch(context.Background(), w.admin, id, room.Change{Paused: &yes}); err != nil {
				w.t.Fatal(err)
			}
		},
		"hold is unavailable": func(w *world, id int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.counts, 1000+id)
			w.fail = errors.New("the map cannot be loaded")
		},
		"the sale is paused": func(w *world, id int64) { w.setCount(1000+id, room.Count{Left: 10}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			s := w.replica("")
			id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 10, Lapse: 2 * time.Second})
			answers := crowd(t, s, id, "p", 15)
			w.run(w.replica(""))
			until(t, "some are served", func() bool { return status(t, s, id).Serving >= 5 })
			stop(w, id)
			moved := func() (at room.Status) { return status(t, s, id) }
			was := moved()
			until(t, "the line stands still", func() bool {
				now := moved()
				still := now.Serving == was.Serving && now.Lapsed == was.Lapsed && now.AsOf.Sub(was.AsOf) > 500*time.Millisecond
				if now.Serving != was.Serving || now.Lapsed != was.Lapsed {
					was = now
				}
				return still
			})
			// Longer than a served place lasts.
			until(t, "four more seconds", func() bool { return moved().AsOf.Sub(was.AsOf) > 4*time.Second })
			if now := moved(); now.Lapsed != was.Lapsed || now.Serving != was.Serving {
				t.Fatalf("from %d/%d to %d/%d", was.Lapsed, was.Serving, now.Lapsed, now.Serving)
			}
			if name == "the room is paused" {
				for i, a := range answers {
					if b := join(t, s, id, fmt.Sprint("p", i), a.PlaceToken); b.State != room.Paused && b.State != room.Lapsed || b.AdmitToken != "" {
						t.Fatalf("paused: %+v", b)
					}
				}
			}
		})
	}
}

// The bucket of issuing is the true limit, whatever serving says, over all
// replicas and also without Redis.
func TestIssuingHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("redis down ", down), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 20})
			first := w.replica("")
			const n = 200
			answers := crowd(t, first, id, "p", n)
			stop := w.run(w.replica(""))
			until(t, "the list", func() bool { return status(t, first, id).DrawListHash != "" })
			replicas := []*room.Service{first, w.replica(""), w.replica("")}
			for _, r := range replicas {
				status(t, r, id)
			}
			stop()
			if down {
				w.redis.Kill()
			}
			// As if everyone had been served at once.
			if _, err := w.db.Owner.Exec(t.Context(), `UPDATE room SET serving = $2,
				status = jsonb_set(status, '{serving}', to_jsonb($2::bigint)) WHERE room_id = $1`, id, n); err != nil {
				t.Fatal(err)
			}
			if !down {
				w.run(w.replica(""))
			}
			var in atomic.Int64
			from := time.Now()
			until(t, "everyone sees to be served", func() bool { return status(t, first, id).Serving >= n })
			each(t, n, func(i int) error {
				deadline := time.Now().Add(25 * time.Second)
				for time.Now().Before(deadline) {
					a, err := replicas[i%3].Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprint("p", i), PlaceToken: answers[i].PlaceToken})
					if err != nil {
						return err
					}
					if a.AdmitToken != "" {
						in.Add(1)
						return nil
					}
					time.Sleep(min(time.Duration(a.PollAfterMS)*time.Millisecond, 200*time.Millisecond))
				}
				return errors.New("not admitted")
			})
			took := time.Since(from).Seconds()
			// 20 a second, half a second's worth at once.
			if least := (n - 10) / 20.0; took < least*0.9 {
				t.Fatalf("%d admissions in %.1f s, want at least %.1f s", in.Load(), took, least)
			}
			var fastest float64
			err := w.db.Owner.QueryRow(t.Context(), `SELECT max(n) FROM (SELECT count(*) OVER
				(ORDER BY issued_at RANGE BETWEEN interval '1 s' PRECEDING AND CURRENT ROW) n FROM admission) x`).Scan(&fastest)
			if err != nil || fastest > 31 {
				t.Fatalf("%v admissions within a second, %v", fastest, err)
			}
			t.Logf("%d admissions in %.1f s, at most %.0f within a second", in.Load(), took, fastest)
		})
	}
}

// Two people who are served ask many times at once, at two replicas: one row each.
func TestAskingAtOnceMakesOneAdmission(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.replica(""), w.replica("")
	id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 1000})
	answers := crowd(t, a, id, "p", 10)
	w.run(w.replica(""))
	until(t, "all are served", func() bool { return status(t, a, id).Serving >= 10 && status(t, b, id).Serving >= 10 })
	tokens := make([]string, 400)
	each(t, 400, func(i int) error {
		s := a
		if i%20 >= 10 {
			s = b
		}
		got, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprint("p", i%10), PlaceToken: answers[i%10].PlaceToken})
		tokens[i] = got.AdmitToken
		return err
	})
	for i, token := range tokens {
		if token == "" || token != tokens[i%10] {
			t.Fatalf("ask %d got another admission", i)
		}
	}
	var rows int
	if err := w.db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM admission`).Scan(&rows); err != nil || rows != 10 {
		t.Fatalf("%d admissions, %v", rows, err)
	}
}

// Served people of whom half stay away: the line moves faster, at most twice.
func TestShowUpCorrection(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0.2), AdmitPerSecond: 10})
	crowd(t, s, id, "p", 2000)
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	// As if the room had run for a minute and nobody had come.
	if _, err := w.db.Owner.Exec(t.Context(), `INSERT INTO room_trail VALUES ($1, 1, 100, 0), ($1, 1, 40000, 400)`, id); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Owner.Exec(t.Context(), `UPDATE room SET serving = 600, running_ms = 60000 WHERE room_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	var from room.Status
	until(t, "it goes on", func() bool { from = status(t, s, id); return from.Serving > 600 })
	var to room.Status
	until(t, "for five seconds", func() bool { to = status(t, s, id); return to.AsOf.Sub(from.AsOf) >= 5*time.Second })
	rate := float64(to.Serving-from.Serving) / to.AsOf.Sub(from.AsOf).Seconds()
	if rate < 17 || rate > 23 {
		t.Fatalf("%.1f a second at a rate of 10 when nobody comes", rate)
	}
	t.Logf("%.1f a second", rate)
}

// Postgres is away: joins work, and who waits keeps their place.
func TestPostgresIsDown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	db, err := store.OpenSize(w.db.AppURL, 4)
	if err != nil {
		t.Fatal(err)
	}
	s := w.replicaWith("", func(o *room.Options) { o.DB = db })
	id := w.room(room.Settings{Draw: seconds(600), AdmitPerSecond: 10})
	first := join(t, s, id, "a", "")
	db.Close() // as if it had gone
	for i := range 20 {
		if a := join(t, s, id, fmt.Sprint("b", i), ""); !a.Joined || a.State != room.Drawing {
			t.Fatalf("%+v", a)
		}
	}
	until(t, "the notice", func() bool {
		a := join(t, s, id, "a", first.PlaceToken)
		return a.Notice == room.NoticeMaintenance && a.State == room.Drawing
	})
}

// The replica's own limits hold when Redis dies (field case 58).
func TestLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c, err := queue.Open(w.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	one, two := queue.NewBuckets(c, nil), queue.NewBuckets(c, nil)
	taken := 0
	for i := range 40 { // two replicas share the bucket
		b := one
		if i%2 == 0 {
			b = two
		}
		if ok, _ := b.Take(t.Context(), "shared", 0.001, 10); ok {
			taken++
		}
	}
	if taken < 10 || taken > 12 { // one more for each replica
		t.Fatalf("%d tokens of a burst of 10 over two replicas", taken)
	}
	w.redis.Kill()
	taken = 0
	for range 100 {
		if ok, after := one.Take(t.Context(), "down", 0.001, 10); ok {
			taken++
		} else if after <= 0 {
			t.Fatal("refused without a time")
		}
	}
	if taken != 10 {
		t.Fatalf("%d tokens of a burst of 10 without Redis", taken)
	}
}
