package room_test

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/room"
)

// redisCalls counts the commands that clients sent, by Redis's own commandstats.
// Commands inside a script are left out: they are its work, not calls.
func redisCalls(t testing.TB, w *world) (n int64) {
	t.Helper()
	info, err := w.redis.Client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(strings.NewReader(info))
	for sc.Scan() {
		name, rest, ok := strings.Cut(sc.Text(), ":calls=")
		if !ok {
			continue
		}
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "info", "client|setinfo", "hello", "auth", "ping":
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		c, _ := strconv.ParseInt(calls, 10, 64)
		n += c
	}
	return n
}

// postgresCalls counts the statements of this test's database that have run.
func postgresCalls(t testing.TB, w *world) (n int64) {
	t.Helper()
	if err := w.db.Owner.QueryRow(context.Background(), `SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s
		JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND s.query NOT LIKE '%pg_stat_statements%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Waiting costs nothing per person: 10,000 GETs and POSTs by 1,000 waiting
// people, during and after the draw, make at most 2 Redis calls a second a
// replica and none to Postgres.
func TestWaitingCostsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if _, err := w.db.Owner.Exec(t.Context(), `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
		t.Fatal(err)
	}
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(600), AdmitPerSecond: 0.01})
	const people = 1_000
	tokens := make([]string, people)
	for i, a := range crowd(t, s, id, "p", people) {
		tokens[i] = a.PlaceToken
	}
	ticker := w.replica("")
	measure := func(phase string, want room.State) {
		// The status is fresh and nobody ticks meanwhile: what is counted is the crowd's.
		status(t, s, id)
		redis, postgres, from := redisCalls(t, w), postgresCalls(t, w), time.Now()
		each(t, 10_000, func(i int) error {
			if i%1_000 == 0 { // over two seconds
				until(t, "its turn", func() bool { return time.Since(from) >= time.Duration(i/1_000)*200*time.Millisecond })
			}
			if i%2 == 0 {
				_, err := s.Status(context.Background(), id)
				return err
			}
			a, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprint("p", i/2%people), PlaceToken: tokens[i/2%people]})
			if err == nil && a.State != want {
				err = fmt.Errorf("state %s, want %s", a.State, want)
			}
			return err
		})
		took := time.Since(from)
		gotRedis, gotPostgres := redisCalls(t, w)-redis, postgresCalls(t, w)-postgres
		t.Logf("%s: 10,000 asks in %v: %d Redis calls, %d statements", phase, took, gotRedis, gotPostgres)
		if float64(gotRedis) > 2*took.Seconds()+2 {
			t.Errorf("%s: %d Redis calls in %v", phase, gotRedis, took)
		}
		if gotPostgres > 0 {
			t.Errorf("%s: %d statements in Postgres", phase, gotPostgres)
		}
	}
	tick := func() {
		if _, err := ticker.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "a first status", func() bool { tick(); return status(t, s, id).Joined == people })
	measure("in the draw", room.Drawing)
	if err := room.Patch(t.Context(), w.admin, id, room.Change{Draw: seconds(0)}); err != nil {
		t.Fatal(err)
	}
	until(t, "the list", func() bool { tick(); return status(t, s, id).DrawListHash != "" })
	measure("after the draw", room.Waiting)
}

// Guessing at room ids costs Postgres a bounded number of looks.
func TestGuessedRoomsAreCheap(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(600)})
	status(t, s, id)
	before := postgresCalls(t, w)
	refused := 0
	for i := range 2_000 {
		switch _, err := s.Status(context.Background(), int64(1_000+i)); code(err) {
		case problem.NotFound:
		case problem.TooManyRequests:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if looks := postgresCalls(t, w) - before; looks > 400 || refused == 0 {
		t.Fatalf("%d statements for 2,000 guesses, %d refused", looks, refused)
	}
	status(t, s, id) // who is no guess is served
}
