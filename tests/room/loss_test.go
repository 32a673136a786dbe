package room_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/problem"
	"handler/function/shared/room"
	"handler/function/tests/harness"
)

// line is what a crowd holds: each account's token and, once known, its place.
type line struct {
	mu     sync.Mutex
	tokens map[string]string
	places map[string]int64
	owner  map[int64]string
}

func newLine() *line {
	return &line{tokens: map[string]string{}, places: map[string]int64{}, owner: map[int64]string{}}
}

// note keeps an answer and says what is wrong with it: a place that changed, or
// one that somebody else has.
func (l *line) note(account string, a room.Answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens[account] = a.PlaceToken
	p := placeOf(a)
	if p == 0 {
		return nil
	}
	if had, ok := l.places[account]; ok && had != p {
		return fmt.Errorf("%s had place %d and has %d", account, had, p)
	}
	if other, ok := l.owner[p]; ok && other != account {
		return fmt.Errorf("place %d is of %s and %s", p, other, account)
	}
	l.places[account], l.owner[p] = p, account
	return nil
}

func (l *line) join(s *room.Service, id int64, account, token string) error {
	a, err := s.Join(context.Background(), room.Ask{Room: id, Account: account, PlaceToken: token})
	if err != nil {
		return fmt.Errorf("%s: %w", account, err)
	}
	return l.note(account, a)
}

// askAll asks everyone's place, with and without their tokens, and wants all to
// have one in the end.
func (l *line) askAll(t *testing.T, s *room.Service, id int64) {
	t.Helper()
	l.mu.Lock()
	var names []string
	for a := range l.tokens {
		names = append(names, a)
	}
	l.mu.Unlock()
	until(t, "everyone has a place", func() bool {
		each(t, len(names), func(i int) error {
			l.mu.Lock()
			token, known := l.tokens[names[i]], l.places[names[i]]
			l.mu.Unlock()
			if err := l.join(s, id, names[i], token); err != nil || known == 0 {
				return err
			}
			return nil
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.places) == len(names)
	})
	each(t, len(names), func(i int) error { return l.join(s, id, names[i], "") })
	// And again with what was given last.
	each(t, len(names), func(i int) error {
		l.mu.Lock()
		token := l.tokens[names[i]]
		l.mu.Unlock()
		return l.join(s, id, names[i], token)
	})
}

// Redis is emptied in the draw, while waiting and while admitting: nobody's place
// changes or is given twice, nobody is let in before the list, and it goes on.
func TestRedisIsEmptiedInEachPhase(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(3), AdmitPerSecond: 80})
	w.run(w.replica(""), w.replica(""))
	l := newLine()
	flush := func() {
		if err := w.redis.Client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	joins := func(prefix string, n int) {
		each(t, n, func(i int) error { return l.join(s, id, fmt.Sprint(prefix, i), "") })
	}
	joins("early", 200)
	flush()
	joins("after", 200)
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	if drawn := *status(t, s, id).Drawn; drawn != 400 {
		t.Fatalf("%d of 400 were drawn", drawn)
	}
	joins("late", 100)
	l.askAll(t, s, id)
	flush() // waiting
	joins("flushed", 100)
	l.askAll(t, s, id)
	until(t, "people are admitted", func() bool { return status(t, s, id).Serving > 40 })
	flush() // admitting
	joins("flushed-again", 100)
	l.askAll(t, s, id)
	until(t, "the line goes on to its end", func() bool { return status(t, s, id).Serving >= 700 })
	l.askAll(t, s, id)
	each(t, 50, func(i int) error { // and everyone can still come in
		account := fmt.Sprint("flushed-again", i)
		deadline := time.Now().Add(20 * time.Second)
		for {
			a, err := s.Join(context.Background(), room.Ask{Room: id, Account: account, PlaceToken: l.tokens[account]})
			if err != nil || a.AdmitToken != "" {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s is not admitted: %+v", account, a)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	checkOnce(t, w)
}

// checkOnce asks Postgres that no place was admitted for two accounts.
func checkOnce(t *testing.T, w *world) {
	t.Helper()
	var twice int
	err := w.db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT 1 FROM admission
		GROUP BY room_id, generation, place HAVING count(DISTINCT account) > 1) d`).Scan(&twice)
	if err != nil || twice > 0 {
		t.Fatalf("%d places were admitted for two accounts, %v", twice, err)
	}
}

// A replica that lags is promoted while the old master still serves some
// functions: both give late numbers, none twice, and nobody's changes.
func TestLaggingReplicaIsPromotedWhileTheOldMasterServes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	replica := harness.RedisReplica(t, w.redis)
	old, next := w.replica(""), w.replica(replica.URL)
	id := w.room(room.Settings{Draw: seconds(1), AdmitPerSecond: 5})
	stop := w.run(w.replica(""))
	l := newLine()
	each(t, 100, func(i int) error { return l.join(old, id, fmt.Sprint("drawn", i), "") })
	until(t, "the list", func() bool { return status(t, old, id).DrawListHash != "" })
	each(t, 50, func(i int) error { return l.join(old, id, fmt.Sprint("before", i), "") })
	until(t, "the replica has followed", func() bool {
		n, err := replica.Client.HLen(context.Background(), fmt.Sprintf("{room:%d}:g1:late", id)).Result()
		return err == nil && n == 50
	})
	// From here on it lags: what the old master gives does not reach it.
	if err := w.redis.Client.Do(t.Context(), "CONFIG", "SET", "requirepass", "another").Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
		t.Fatal(err)
	}
	each(t, 3, func(i int) error { return l.join(old, id, fmt.Sprint("unseen", i), "") })
	n, err := replica.Client.HLen(t.Context(), fmt.Sprintf("{room:%d}:g1:late", id)).Result()
	if err != nil || n != 50 {
		t.Fatalf("the replica does not lag: %d numbers, %v", n, err)
	}
	if err := replica.Client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	stop() // the ticks go to the new master, some joins still to the old one
	w.run(w.replica(replica.URL))
	each(t, 400, func(i int) error {
		s := old
		if i%2 == 0 {
			s = next
		}
		return l.join(s, id, fmt.Sprint("both", i), "")
	})
	// Whom only the old master knows comes by the stream, within a tick or two.
	until(t, "the new master knows the old one's numbers", func() bool {
		return replica.Client.HLen(context.Background(), fmt.Sprintf("{room:%d}:g1:late", id)).Val() >= int64(len(l.places))
	})
	l.askAll(t, next, id)
	if err := w.redis.Client.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("the old master does not serve: %v", err)
	}
	checkOnce(t, w)
}

// The numbers of a block are bound to the Redis it was reserved for: a master
// that is demoted and promoted again gives none of its old block.
func TestBlockIsBoundToItsRedis(t *testing.T) {
	t.Parallel()
	w := setup(t)
	replica := harness.RedisReplica(t, w.redis)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0), AdmitPerSecond: 50})
	stop := w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	first := placeOf(join(t, s, id, "a", ""))
	stop()
	ctx := t.Context()
	block := fmt.Sprintf("{room:%d}:g1:block", id)
	identity := func(c *redis.Client) string { return c.HGet(ctx, block, "id").Val() }
	until(t, "the replica has the block", func() bool { return identity(replica.Client) != "" })
	if identity(replica.Client) != identity(w.redis.Client) {
		t.Fatal("the replica's block is not its master's")
	}
	if err := replica.Client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	r := w.replica(replica.URL)
	if p := placeOf(join(t, r, id, "b", "")); p != 0 {
		t.Fatalf("the promoted replica gave place %d of its master's block", p)
	}
	// The old master follows the new one, and is promoted again.
	for _, c := range [][]any{
		{"CONFIG", "SET", "masterauth", w.redis.Password},
		{"REPLICAOF", "127.0.0.1", fmt.Sprint(replica.Port)},
	} {
		if err := w.redis.Client.Do(ctx, c...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the old master follows", func() bool {
		return w.redis.Client.Do(ctx, "ROLE").Val().([]any)[3] == "connected"
	})
	if err := w.redis.Client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	// Its own copy says it may give the numbers that it gave before.
	if p := placeOf(join(t, s, id, "c", "")); p != 0 {
		t.Fatalf("a master that took its place again gave place %d of its old block; a has %d", p, first)
	}
	w.run(w.replica(""))
	until(t, "a fresh block", func() bool { return placeOf(join(t, s, id, fmt.Sprint("d", time.Now().UnixNano()), "")) > first })
	if p := placeOf(join(t, s, id, "a", "")); p != first {
		t.Fatalf("a had %d and has %d", first, p)
	}
}

// Two ticks of two replicas overlap: one moves the room on, at the rate of one.
func TestTicksOfReplicasOverlap(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 10})
	crowd(t, s, id, "p", 300)
	var replicas []*room.Service
	for range 4 {
		replicas = append(replicas, w.replica(""))
	}
	w.run(replicas...)
	until(t, "the line moves", func() bool { return status(t, s, id).Serving > 0 })
	from, at := status(t, s, id).Serving, time.Now()
	until(t, "five seconds of it", func() bool { return time.Since(at) > 5*time.Second })
	moved := float64(status(t, s, id).Serving - from)
	want := time.Since(at).Seconds() * 10
	// Nobody comes: the line moves up to twice as fast once that is known (12 s).
	if moved < want/2 || moved > want*1.5 {
		t.Fatalf("serving moved by %v in %v, at 10 a second", moved, time.Since(at))
	}
	var draws int
	if err := w.db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM room_draw`).Scan(&draws); err != nil || draws != 1 {
		t.Fatalf("%d lists, %v", draws, err)
	}
}

func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(4), AdmitPerSecond: 50})
	ticker := w.replica("")
	w.run(ticker)
	l := newLine()
	each(t, 50, func(i int) error { return l.join(s, id, fmt.Sprint("before", i), "") })
	status(t, s, id)
	w.redis.Kill()
	each(t, 50, func(i int) error { return l.join(s, id, fmt.Sprint("down", i), "") })
	until(t, "the status says that it is stale", func() bool { return status(t, s, id).Stale })
	a := join(t, s, id, "alone", "")
	if a.State != room.Drawing || a.Notice != room.NoticeQueued || a.PlaceToken == "" {
		t.Fatalf("joined while Redis is down: %+v", a)
	}
	if err := l.note("alone", a); err != nil {
		t.Fatal(err)
	}
	// The close goes on with the stream after its grace, and people are admitted.
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	if drawn := *status(t, s, id).Drawn; drawn != 101 {
		t.Fatalf("%d of 101 were drawn from the stream alone", drawn)
	}
	until(t, "someone is admitted without Redis", func() bool {
		return join(t, s, id, "before0", l.tokens["before0"]).AdmitToken != ""
	})
	late := join(t, s, id, "late", "")
	if late.Place != nil || late.Notice != room.NoticeQueued {
		t.Fatalf("late while Redis is down: %+v", late)
	}
	if err := l.note("late", late); err != nil {
		t.Fatal(err)
	}
	w.redis.Restart(t)
	l.askAll(t, s, id)
	until(t, "the status is fresh", func() bool { return !status(t, s, id).Stale })
}

func TestNATSIsDown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(2), AdmitPerSecond: 50})
	l := newLine()
	each(t, 20, func(i int) error { return l.join(s, id, fmt.Sprint("before", i), "") })
	w.run(w.replica(""))
	_ = w.nats.Close()
	each(t, 20, func(i int) error { return l.join(s, id, fmt.Sprint("down", i), "") })
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	if drawn := *status(t, s, id).Drawn; drawn != 40 {
		t.Fatalf("%d of 40 were drawn from Redis alone", drawn)
	}
	each(t, 20, func(i int) error { return l.join(s, id, fmt.Sprint("late", i), "") })
	l.askAll(t, s, id)
	until(t, "someone is admitted", func() bool {
		return join(t, s, id, "late0", l.tokens["late0"]).AdmitToken != ""
	})
}

func TestNeitherTakesAJoin(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(60)})
	join(t, s, id, "a", "")
	_ = w.nats.Close()
	w.redis.Kill()
	until(t, "503", func() bool {
		_, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprint("b", time.Now().UnixNano())})
		return code(err) == problem.Unavailable
	})
}
