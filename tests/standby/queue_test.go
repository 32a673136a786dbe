package standby_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/alert"
	"handler/function/shared/clock"
	"handler/function/shared/event"
	"handler/function/shared/outbox"
	"handler/function/shared/queue"
	"handler/function/shared/standby"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// queues is a sale of a test with its queues in a Redis of its own.
type queues struct {
	*testing.T
	ctx   context.Context
	db    *harness.Database
	redis *harness.RedisServer
	app   *store.DB
	sale  int64
	now   atomic.Int64 // nanoseconds added to the clock of every replica
}

func newQueues(t *testing.T) *queues {
	t.Helper()
	t.Parallel()
	w := &queues{T: t, ctx: context.Background(), db: harness.DB(t), redis: harness.Redis(t)}
	w.app = store.New(w.db.App)
	w.sale = w.db.OpenSale(t, 5, 8)
	return w
}

// lines is a replica. calls counts its calls to Redis, when it is not nil.
func (w *queues) lines(calls *atomic.Int64, change func(*line.Options)) *line.Lines {
	w.Helper()
	client, err := queue.Open(w.redis.URL)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = client.Close() })
	if calls != nil {
		client.Redis().AddHook(counter{calls})
	}
	alerts := alert.New(w.app, "")
	o := line.Options{DB: w.app, Redis: client, Outbox: outbox.New(w.app, alerts), Alerts: alerts,
		Clock: clock.Func(func() time.Time { return time.Now().Add(time.Duration(w.now.Load())) })}
	if change != nil {
		change(&o)
	}
	return line.New(o)
}

// later moves every replica's clock on.
func (w *queues) later(d time.Duration) { w.now.Add(int64(d)) }

// counter counts what goes out to Redis: a command alone, or a pipeline.
type counter struct{ calls *atomic.Int64 }

func (c counter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.calls.Add(1)
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && cmds[0].Name() != "hello" && cmds[0].Name() != "client" {
			c.calls.Add(1)
		}
		return next(ctx, cmds)
	}
}

func (w *queues) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *queues) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *queues) one(v any, sql string, args ...any) {
	w.Helper()
	if err := w.db.Owner.QueryRow(w.ctx, sql, args...).Scan(v); err != nil {
		w.Fatal(err)
	}
}

// authorise is how an order takes its place in life: a new order of an account,
// authorised while the queues are reachable or not.
func (w *queues) authorise(account string, from, to, quantity int, reachable bool) (number int64) {
	w.Helper()
	w.one(&number, `INSERT INTO standby_order (sale_id, account, request_key, classes, leg_from, leg_to, quantity, together, fares, currency, gateway,
			state, until, authorise_by, joined_at)
		VALUES ($1, $2, gen_random_uuid()::text, '{second}', $3, $4, $5, 0, '{0}', 'CAD', 'sandbox', 'authorising',
			now() + interval '1 day', now() + interval '1 day', now()) RETURNING number`, w.sale, account, from, to, quantity)
	w.exec(`INSERT INTO account_sale (sale_id, account, live_seats, seat_limit)
		SELECT sale_id, $2, 0, account_limit FROM sale WHERE sale_id = $1 ON CONFLICT DO NOTHING`, w.sale, account)
	w.exec(`SELECT standby_authorised($1, $2, NULL, $3, '')`, w.sale, number, reachable)
	return number
}

func (w *queues) leave(number int64) {
	w.Helper()
	w.exec(`SELECT standby_leave($1, $2, (SELECT account FROM standby_order WHERE sale_id = $1 AND number = $2), '')`, w.sale, number)
}

// many puts orders first, first+1, … into a queue, straight, in ascending order.
func (w *queues) many(class string, from, to, n int) {
	w.Helper()
	tx, err := w.db.Owner.Begin(w.ctx)
	w.must(err)
	defer func() { _ = tx.Rollback(w.ctx) }()
	// Without the foreign key: it costs most of the time.
	_, err = tx.Exec(w.ctx, `SET LOCAL session_replication_role = replica`)
	w.must(err)
	_, err = tx.Exec(w.ctx, `WITH o AS (
			INSERT INTO standby_order (sale_id, account, request_key, classes, leg_from, leg_to, quantity, together, fares, currency, gateway,
				state, step, until, authorise_by, score, joined_at, queued_at)
			SELECT s.sale_id, 'many-' || g, gen_random_uuid()::text, ARRAY[$2::text], $3, $4, 1, 0, '{0}', 'CAD', 'sandbox',
				'queued', 'authorised', now() + interval '1 day', now() + interval '1 day', nextval('standby_score'), now(), now()
			FROM sale s, generate_series(1, $5) g WHERE s.sale_id = $1 ORDER BY g
			RETURNING sale_id, number, score)
		INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together)
		SELECT o.sale_id, $2, $3, $4, o.score, o.number, 1, 0 FROM o`, w.sale, class, from, to, n)
	w.must(err)
	w.must(tx.Commit(w.ctx))
}

// order is the queue's numbers in Postgres, by score.
func (w *queues) order(from, to int) (numbers []int64) {
	w.Helper()
	rows, err := w.db.Owner.Query(w.ctx, `SELECT number FROM standby_queue
		WHERE sale_id = $1 AND class = 'second' AND leg_from = $2 AND leg_to = $3 ORDER BY score`, w.sale, from, to)
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		var n int64
		w.must(rows.Scan(&n))
		numbers = append(numbers, n)
	}
	w.must(rows.Err())
	return numbers
}

// inRedis is the same as it stands in Redis.
func (w *queues) inRedis(l *line.Lines, from, to int) (numbers []int64) {
	w.Helper()
	all, err := l.Read(w.ctx, w.sale)
	w.must(err)
	slices.SortFunc(all, func(a, b line.Placed) int { return int(a.Score - b.Score) })
	for _, p := range all {
		if p.Class == "second" && p.From == from && p.To == to {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// same checks that Redis has a queue as Postgres has it.
func (w *queues) same(l *line.Lines, from, to int) {
	w.Helper()
	if want, got := w.order(from, to), w.inRedis(l, from, to); !slices.Equal(want, got) {
		w.Fatalf("the queue %d..%d has %d orders in Postgres and %d in Redis, or in another order", from, to, len(want), len(got))
	}
}

func (w *queues) set(from, to int) string {
	return fmt.Sprintf("{sale:%d}:q:second:%d:%d", w.sale, from, to)
}

func (w *queues) position(l *line.Lines, number int64, from, to int) line.Answer {
	return l.Position(w.ctx, w.sale, number, "second", from, to)
}

func TestTheQueuesFollowTheOrders(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	if a := w.position(l, 1, 2, 3); a.Known {
		t.Errorf("a queue that was never built: %+v", a)
	}
	a := w.authorise("ann", 2, 3, 1, true)
	b := w.authorise("bob", 2, 3, 1, true)
	c := w.authorise("cid", 2, 4, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	w.later(line.Refresh)
	for i, number := range []int64{a, b} {
		got := w.position(l, number, 2, 3)
		if !got.Known || !got.Queued || got.Exact != i+1 || got.Length != 2 {
			t.Errorf("order %d: %+v", number, got)
		}
	}
	if got := w.position(l, c, 2, 3); !got.Known || got.Queued {
		t.Errorf("an order of another queue: %+v", got)
	}
	w.leave(a)
	w.must(l.Mirror(w.ctx, w.sale))
	w.later(line.Refresh)
	waitFor(t, func() bool { return w.position(l, b, 2, 3).Exact == 1 })
	if got := w.position(l, a, 2, 3); got.Queued {
		t.Errorf("an order that left: %+v", got)
	}
	var undone int
	w.one(&undone, `SELECT count(*) FROM outbox WHERE kind = 'standby_queue' AND done_at IS NULL`)
	if undone > 0 {
		t.Errorf("%d rows are undone", undone)
	}
	w.same(l, 2, 3)
	w.same(l, 2, 4)
}

func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	for range 500 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it did not come")
}

// The first textbook order: the SQL commits and the removal from the queue fails.
// The ghost is in Redis; nobody matches it, as match reads Postgres; and it goes.
func TestTheRemovalFailsAfterTheCommit(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	ghost := w.authorise("ann", 2, 3, 1, true)
	next := w.authorise("bob", 2, 3, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	w.leave(ghost)
	w.exec(`UPDATE outbox SET done_at = now() WHERE done_at IS NULL`) // the removal is lost for good
	if got := w.inRedis(l, 2, 3); !slices.Equal(got, []int64{ghost, next}) {
		t.Fatalf("the queue has no ghost: %v", got)
	}
	w.exec(`SELECT seat_considered($1, ARRAY[1])`, w.sale)
	m := matcherOf(w)
	w.exec(`SELECT standby_recheck_orders(sale_id, array_agg(number)) FROM standby_order WHERE sale_id = $1 GROUP BY sale_id`, w.sale)
	if _, err := m.Match(w.ctx, w.sale); err != nil {
		t.Fatal(err)
	}
	var state string
	w.one(&state, `SELECT state FROM standby_order WHERE sale_id = $1 AND number = $2`, w.sale, ghost)
	if state != "cancelled" {
		t.Errorf("the ghost is %s", state)
	}
	w.one(&state, `SELECT state FROM standby_order WHERE sale_id = $1 AND number = $2`, w.sale, next)
	if state != "matched" {
		t.Errorf("the next is %s", state)
	}
	w.exec(`UPDATE outbox SET done_at = now() WHERE done_at IS NULL AND kind = 'standby_queue'`)
	found, err := l.Compare(w.ctx, w.sale)
	w.must(err)
	if found.Ghosts != 2 || found.Missing != 0 {
		t.Errorf("found %+v", found)
	}
	w.same(l, 2, 3)
	// A call that comes late cannot bring it back: it has a tombstone.
	n, err := w.redis.Client.ZScore(w.ctx, fmt.Sprintf("{sale:%d}:gone:second:2:3", w.sale), strconv.FormatInt(ghost, 10)).Result()
	if err != nil || n == 0 {
		t.Errorf("no tombstone: %v", err)
	}
}

// The second: it is removed from the queue and the SQL fails. The old score comes
// back, and with it the old place; also over a tombstone that should not be there.
func TestTheCommitFailsAfterTheRemoval(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	first := w.authorise("ann", 2, 3, 1, true)
	second := w.authorise("bob", 2, 3, 1, true)
	w.authorise("cid", 2, 3, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	// Two orders are taken out; the second's move is even written down as final,
	// as by a Postgres that then loses the commit.
	w.must(w.redis.Client.ZRem(w.ctx, w.set(2, 3), first, second).Err())
	w.must(w.redis.Client.ZAdd(w.ctx, fmt.Sprintf("{sale:%d}:gone:second:2:3", w.sale), redis.Z{Score: float64(time.Now().UnixMicro()), Member: second}).Err())
	found, err := l.Compare(w.ctx, w.sale)
	w.must(err)
	if found.Missing != 2 || found.Ghosts != 0 {
		t.Errorf("found %+v", found)
	}
	w.same(l, 2, 3)
	if a := w.position(l, first, 2, 3); a.Exact != 1 {
		t.Errorf("the first stands at %+v", a)
	}
	// A score that is not the order's own is put right too.
	w.must(w.redis.Client.ZAdd(w.ctx, w.set(2, 3), redis.Z{Score: 1e12, Member: first}).Err())
	found, err = l.Compare(w.ctx, w.sale)
	w.must(err)
	if found.Missing != 1 {
		t.Errorf("a wrong score: %+v", found)
	}
	w.same(l, 2, 3)
}

// While the mirror is slow an order leaves; what the slow one does late has no
// effect, in whatever order the two come.
func TestALateCallBringsNoGhostBack(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	a := w.authorise("ann", 2, 3, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	w.leave(a)
	w.must(l.Mirror(w.ctx, w.sale))
	// A rebuild that had read the order before it left would put it in now.
	w.exec(`INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together)
		SELECT sale_id, 'second', leg_from, leg_to, score, number, 1, 0 FROM standby_order WHERE sale_id = $1 AND number = $2`, w.sale, a)
	_, err := l.Rebuild(w.ctx, w.sale)
	w.must(err)
	if got := w.inRedis(l, 2, 3); len(got) != 0 {
		t.Errorf("the ghost is back: %v", got)
	}
}

func TestWipedQueuesAreRebuiltInTheSameOrder(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	for i := range 60 {
		w.authorise(fmt.Sprint("a", i), 1+i%3, 3, 1, true)
	}
	w.many("second", 1, 3, 2500)
	_, err := l.Rebuild(w.ctx, w.sale)
	w.must(err)
	w.must(l.Mirror(w.ctx, w.sale))
	for from := 1; from <= 3; from++ {
		w.same(l, from, 3)
	}
	someone := w.order(1, 3)[5]
	if a := w.position(l, someone, 1, 3); a.Exact != 6 {
		t.Fatalf("before: %+v", a)
	}
	w.must(w.redis.Client.FlushAll(w.ctx).Err())
	w.later(2 * line.Refresh)
	if a := w.position(l, someone, 1, 3); a.Known {
		t.Errorf("a wiped queue is not an empty one: %+v", a)
	}
	// Joining goes on meanwhile: the new order is in a queue of its own, and the
	// sale still counts as lost.
	late := w.authorise("late", 4, 5, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	w.later(2 * line.Refresh)
	if a := w.position(l, someone, 1, 3); a.Known {
		t.Errorf("one order does not make the queues whole: %+v", a)
	}
	did, err := l.Tend(w.ctx, false)
	w.must(err)
	if did.Rebuilt != 2560 {
		t.Errorf("%d orders were put back", did.Rebuilt)
	}
	for from := 1; from <= 3; from++ {
		w.same(l, from, 3)
	}
	w.later(2 * line.Refresh)
	if a := w.position(l, someone, 1, 3); a.Exact != 6 {
		t.Errorf("after: %+v", a)
	}
	if a := w.position(l, late, 4, 5); a.Exact != 1 {
		t.Errorf("the late one: %+v", a)
	}
	if did, err = l.Tend(w.ctx, false); err != nil || did != (line.Tended{}) {
		t.Errorf("there is nothing more to do: %+v, %v", did, err)
	}
}

// A Redis that came back with an old copy has every marker and lacks orders.
func TestARestartedRedisIsCompared(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	a := w.authorise("ann", 2, 3, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	_, err := l.Tend(w.ctx, false)
	w.must(err)
	w.must(w.redis.Client.ZRem(w.ctx, w.set(2, 3), a).Err())
	w.must(w.redis.Client.Set(w.ctx, fmt.Sprintf("{sale:%d}:line:built", w.sale), "another", 0).Err())
	did, err := l.Tend(w.ctx, false)
	w.must(err)
	if did.Missing != 1 {
		t.Errorf("did %+v", did)
	}
	w.same(l, 2, 3)
}

func TestPendingOrdersAreRecovered(t *testing.T) {
	w := newQueues(t)
	nats := harness.NATS(t)
	bus, err := event.Open(nats.URL)
	w.must(err)
	t.Cleanup(bus.Close)
	waitFor(t, bus.Up)
	l := w.lines(nil, func(o *line.Options) { o.Bus = bus })
	w.redis.Kill()
	waitFor(t, func() bool { return !l.Reachable(w.ctx) })
	const people = 230
	var numbers []int64
	for i := range people {
		n := w.authorise(fmt.Sprint("p", i), 2, 3, 1, l.Reachable(w.ctx))
		numbers = append(numbers, n)
		l.Queued(w.ctx, w.sale, n)
	}
	var pending int
	w.one(&pending, `SELECT count(*) FROM standby_order WHERE sale_id = $1 AND state = 'pending'`, w.sale)
	if pending != people {
		t.Fatalf("%d of %d are pending", pending, people)
	}
	times := func() (s string) {
		w.one(&s, `SELECT md5(string_agg(number || ' ' || score || ' ' || joined_at || ' ' || queued_at, ',' ORDER BY number)) FROM standby_order WHERE sale_id = $1`, w.sale)
		return s
	}
	before := times()
	stream, err := bus.JetStream().Stream(w.ctx, line.Stream)
	w.must(err)
	info, err := stream.Info(w.ctx)
	w.must(err)
	if info.State.Msgs != people {
		t.Errorf("the stream has %d messages", info.State.Msgs)
	}
	raw, err := stream.GetMsg(w.ctx, 1)
	w.must(err)
	var message struct {
		Order, Sale int64
		JoinedAt    time.Time `json:"joined_at"`
	}
	w.must(json.Unmarshal(raw.Data, &message))
	if message.Order != numbers[0] || message.Sale != w.sale || message.JoinedAt.IsZero() {
		t.Errorf("the message says %s", raw.Data)
	}

	// Still down: nothing happens, and everything stays.
	if n, err := l.Recover(w.ctx); n != 0 || err != nil {
		t.Errorf("recovered %d, %v", n, err)
	}
	// A message that is none, among the others.
	if _, err := bus.JetStream().Publish(w.ctx, "standby.pending", []byte(`{"order":0}`)); err != nil {
		t.Fatal(err)
	}
	w.redis.Restart(t)
	waitFor(t, func() bool { return l.Reachable(w.ctx) })
	n, err := l.Recover(w.ctx)
	w.must(err)
	if n != people {
		t.Errorf("%d of %d were recovered", n, people)
	}
	w.one(&pending, `SELECT count(*) FROM standby_order WHERE sale_id = $1 AND state <> 'queued'`, w.sale)
	if pending != 0 {
		t.Errorf("%d are not queued", pending)
	}
	if times() != before {
		t.Error("a place or a time has changed")
	}
	w.same(l, 2, 3)
	// Everything comes again: one effect. The bad message is set aside.
	w.must(stream.DeleteConsumer(w.ctx, "reconcile"))
	waitFor(t, func() bool {
		_, err := l.Recover(w.ctx)
		w.must(err)
		var alerts int
		w.one(&alerts, `SELECT count(*) FROM alert WHERE kind = 'standby' AND closed_at IS NULL`)
		return alerts == 1
	})
	w.same(l, 2, 3)
	if times() != before {
		t.Error("a place or a time has changed")
	}
}

// Without a stream, Postgres alone says who is pending.
func TestPendingOrdersAreRecoveredWithoutTheStream(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	for i := range 130 {
		w.authorise(fmt.Sprint("p", i), 2, 3, 1, false)
	}
	w.exec(`UPDATE outbox SET due_at = now() + interval '1 hour'`)
	n, err := l.Recover(w.ctx)
	w.must(err)
	if n != 130 {
		t.Errorf("recovered %d", n)
	}
	w.same(l, 2, 3)
}

// A queue grows over the threshold while people join and leave, and others read:
// nobody is lost, no position is wrong.
func TestAQueueIsSplitInService(t *testing.T) {
	w := newQueues(t)
	small := func(o *line.Options) { o.SplitAbove = 2000 }
	a, b := w.lines(nil, small), w.lines(nil, small)
	reader := w.lines(nil, func(o *line.Options) { small(o); o.Refresh = 50 * time.Millisecond })
	w.many("second", 2, 3, 1980)
	_, err := a.Rebuild(w.ctx, w.sale)
	w.must(err)
	first := w.order(2, 3)[:120]

	ctx, stop := context.WithCancel(w.ctx)
	var wait sync.WaitGroup
	for k, l := range []*line.Lines{a, b} {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(k)))
			var mine []int64
			for i := 0; ctx.Err() == nil; i++ {
				if len(mine) > 200 || len(mine) > 20 && r.IntN(3) == 0 {
					j := r.IntN(len(mine))
					w.leave(mine[j])
					mine = slices.Delete(mine, j, j+1)
				} else {
					mine = append(mine, w.authorise(fmt.Sprintf("s%d-%d", k, i), 2, 3, 1, true))
				}
				if err := l.Mirror(w.ctx, w.sale); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	reads, unknown := 0, 0
	wait.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			k := i % len(first)
			got := reader.Position(w.ctx, w.sale, first[k], "second", 2, 3)
			reads++
			if !got.Known { // Redis did not answer in time: no place, but no wrong one
				unknown++
			} else if !got.Queued || k < 100 && got.Exact != k+1 || k >= 100 && got.Within != 1000 {
				t.Errorf("the order at %d: %+v", k+1, got)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	modes := fmt.Sprintf("{sale:%d}:line:modes", w.sale)
	mode := func() string { return w.redis.Client.HGet(w.ctx, modes, "second:2:3").Val() }
	waitFor(t, func() bool { return mode() == "due" })
	did, err := a.Tend(w.ctx, false)
	w.must(err)
	if did.Split != 1 || mode() != "split" {
		t.Errorf("did %+v, the queue is %s", did, mode())
	}
	time.Sleep(300 * time.Millisecond) // both replicas and the reader go on over the change
	stop()
	wait.Wait()
	if reads < 20 || unknown > reads/10 {
		t.Errorf("%d of %d positions were not known", unknown, reads)
	}
	w.must(b.Mirror(w.ctx, w.sale))
	w.same(a, 2, 3)
	for k := range 32 {
		if n := w.redis.Client.ZCard(w.ctx, fmt.Sprintf("{sale:%d:q:second:2:3:%d}:q", w.sale, k)).Val(); n == 0 {
			t.Errorf("shard %d is empty", k)
		}
	}
	// Nothing is left to mend.
	found, err := a.Compare(w.ctx, w.sale)
	w.must(err)
	if found.Ghosts != 0 || found.Missing != 0 {
		t.Errorf("the comparison found %+v", found)
	}
	// A shard is lost: the position is unknown until it is built again.
	tag := fmt.Sprintf("{sale:%d:q:second:2:3:7}", w.sale)
	w.must(w.redis.Client.Del(w.ctx, tag+":q", tag+":gone", tag+":built").Err())
	w.later(2 * line.Refresh)
	if got := w.position(reader, first[0], 2, 3); got.Known {
		t.Errorf("a queue without one of its shards: %+v", got)
	}
	_, err = a.Tend(w.ctx, false)
	w.must(err)
	w.same(a, 2, 3)
	// Everything is lost: so long a queue begins in shards.
	w.many("second", 2, 3, 200) // it may have shrunk to less than the threshold
	w.must(w.redis.Client.FlushAll(w.ctx).Err())
	_, err = a.Tend(w.ctx, false)
	w.must(err)
	if mode() != "split" {
		t.Errorf("the queue is %s", mode())
	}
	w.same(a, 2, 3)
	w.later(2 * line.Refresh)
	if got := w.position(reader, first[99], 2, 3); got.Exact != 100 {
		t.Errorf("the hundredth: %+v", got)
	}
}

// A splitting that was broken off is gone on with.
func TestABrokenSplittingIsGoneOnWith(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, func(o *line.Options) { o.SplitAbove = 100 })
	w.many("second", 2, 3, 90)
	_, err := l.Rebuild(w.ctx, w.sale)
	w.must(err)
	modes := fmt.Sprintf("{sale:%d}:line:modes", w.sale)
	w.must(w.redis.Client.HSet(w.ctx, modes, "second:2:3", "splitting").Err())
	n := w.authorise("ann", 2, 3, 1, true)
	gone := w.order(2, 3)[3]
	w.leave(gone)
	w.must(l.Mirror(w.ctx, w.sale))
	w.later(2 * line.Refresh)
	if got := w.position(l, n, 2, 3); got.Exact != 90 {
		t.Errorf("while it is split: %+v", got)
	}
	did, err := l.Tend(w.ctx, false)
	w.must(err)
	if did.Split != 1 {
		t.Errorf("did %+v", did)
	}
	w.same(l, 2, 3)
}

func TestKindsOfPositions(t *testing.T) {
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprint("split=", split), func(t *testing.T) {
			w := newQueues(t)
			l := w.lines(nil, func(o *line.Options) {
				if split {
					o.SplitAbove = 100
				}
			})
			w.many("second", 2, 3, 20_000)
			_, err := l.Rebuild(w.ctx, w.sale)
			w.must(err)
			numbers := w.order(2, 3)
			ask := []int{0, 99, 100, 998, 5_000, 19_999}
			at := func(i int) line.Answer { return w.position(l, numbers[i], 2, 3) }
			for _, i := range ask {
				at(i)
			}
			w.later(2 * line.Refresh)
			for _, i := range ask {
				a := at(i)
				if !a.Known || !a.Queued || a.Length != 20_000 {
					t.Errorf("%d: %+v", i, a)
				}
				switch {
				case i < 100 && (a.Exact != i+1 || a.Within != 0 || a.WaitSeconds != nil),
					i >= 100 && i < 1000 && (a.Exact != 0 || a.Within != 1000 || a.WaitSeconds != nil),
					i >= 1000 && (a.Exact != 0 || a.Within != 0 || a.WaitSeconds != nil): // nothing was matched yet
					t.Errorf("%d: %+v", i, a)
				}
			}
			if a := w.position(l, numbers[7_777], 2, 3); a.Known || a.Length != 20_000 {
				t.Errorf("an order that nobody has asked for yet: %+v", a)
			}
			if a := w.position(l, 99_999_999, 2, 3); a.Queued {
				t.Errorf("no order at all: %+v", a)
			}
			// Of the sale: 48 matched in 24 h, so half an hour each.
			w.exec(`INSERT INTO standby_order (sale_id, account, request_key, classes, leg_from, leg_to, quantity, together, fares, currency, gateway,
					state, until, authorise_by, score, joined_at, booking, class, matched_at, ended_at)
				SELECT s.sale_id, 'm' || g, 'm' || g, '{second}', 1, 1, 1, 0, '{0}', 'CAD', 'sandbox', 'booked', now(), now(), g, now(), g, 'second', now() - interval '1 hour', now()
				FROM sale s, generate_series(1, 48) g WHERE s.sale_id = $1`, w.sale)
			_, err = l.Rates(w.ctx)
			w.must(err)
			w.later(2 * line.Refresh)
			near := func(i int, each float64) {
				t.Helper()
				a := at(i)
				if a.WaitSeconds == nil {
					t.Errorf("%d: %+v", i, a)
				} else if want := float64(i+1) * each; float64(*a.WaitSeconds) < 0.97*want || float64(*a.WaitSeconds) > 1.03*want {
					t.Errorf("%d waits %d s, want about %.0f", i, *a.WaitSeconds, want)
				}
			}
			near(5_000, 1800)
			near(19_999, 1800)
			// Of the interval itself, when it has some.
			w.exec(`UPDATE standby_order SET leg_from = 2, leg_to = 3 WHERE state = 'booked' AND booking <= 24`)
			_, err = l.Rates(w.ctx)
			w.must(err)
			w.later(2 * line.Refresh)
			near(5_000, 3600)
		})
	}
}

// 10,000 reads a second of 1,000 orders over several queues: Redis gets at most
// one call a queue every 5 s, Postgres none.
func TestTenThousandReadsASecond(t *testing.T) {
	w := newQueues(t)
	intervals := [][2]int{{1, 1}, {1, 3}, {2, 3}, {2, 5}, {4, 5}}
	type asked struct {
		number   int64
		from, to int
	}
	var all []asked
	for _, iv := range intervals {
		w.many("second", iv[0], iv[1], 3000)
		numbers := w.order(iv[0], iv[1])
		for i := range 200 {
			all = append(all, asked{numbers[i*15], iv[0], iv[1]}) // a third of them in the head
		}
	}
	_, err := w.lines(nil, nil).Rebuild(w.ctx, w.sale)
	w.must(err)
	var calls atomic.Int64
	own, err := store.OpenSize(w.db.AppURL+"&application_name=reader", 2)
	w.must(err)
	t.Cleanup(own.Close)
	const refresh = time.Second // five times as often as in life
	l := w.lines(&calls, func(o *line.Options) { o.DB, o.Refresh = own, refresh })
	const seconds, reads = 5, 10_000
	var known, queued atomic.Int64
	begun := time.Now()
	for tick := range seconds * 20 { // of 50 ms
		var wait sync.WaitGroup
		for g := range 4 {
			wait.Go(func() {
				for i := range reads / 20 / 4 {
					o := all[(tick*reads/20+i*4+g)%len(all)]
					a := l.Position(w.ctx, w.sale, o.number, "second", o.from, o.to)
					if a.Known {
						known.Add(1)
					}
					if a.Queued {
						queued.Add(1)
					}
				}
			})
		}
		wait.Wait()
		time.Sleep(time.Until(begun.Add(time.Duration(tick+1) * 50 * time.Millisecond)))
	}
	took := time.Since(begun)
	if most := int64(len(intervals)) * (int64(took/refresh) + 1); calls.Load() > most {
		t.Errorf("%d calls to Redis in %s, at most %d", calls.Load(), took, most)
	}
	if calls.Load() < int64(len(intervals))*2 {
		t.Errorf("%d calls: the copies are not made anew", calls.Load())
	}
	if n := own.Pool().Stat().AcquireCount(); n != 0 {
		t.Errorf("%d statements of Postgres", n)
	}
	t.Logf("%d reads, %d calls to Redis, %.1f %% known, %.1f %% placed", seconds*reads, calls.Load(),
		100*float64(known.Load())/seconds/reads, 100*float64(queued.Load())/seconds/reads)
	if queued.Load() < 70*seconds*reads/100 { // those behind the head from the second copy on
		t.Error("too few had a place")
	}
}

// While Redis is away positions are unknown, at no cost, and known again after.
func TestPositionsWhileRedisIsAway(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	a := w.authorise("ann", 2, 3, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	if got := w.position(l, a, 2, 3); got.Exact != 1 {
		t.Fatalf("before: %+v", got)
	}
	w.redis.Kill()
	w.later(line.Refresh)
	if got := w.position(l, a, 2, 3); got.Exact != 1 {
		t.Errorf("the last copy is shown for a while: %+v", got)
	}
	w.later(line.Refresh)
	waitFor(t, func() bool { return !w.position(l, a, 2, 3).Known })
	b := w.authorise("bob", 2, 3, 1, true)
	if err := l.Mirror(w.ctx, w.sale); !errors.Is(err, queue.ErrDown) {
		t.Errorf("mirroring without Redis: %v", err)
	}
	for range 3 { // three failures: an alert
		w.exec(`UPDATE outbox SET due_at = now() WHERE done_at IS NULL`)
		_ = l.Mirror(w.ctx, w.sale)
	}
	var alerts int
	w.one(&alerts, `SELECT count(*) FROM alert WHERE kind = 'outbox' AND closed_at IS NULL`)
	if alerts != 1 {
		t.Errorf("%d alerts", alerts)
	}
	w.redis.Restart(t)
	waitFor(t, func() bool { return l.Reachable(w.ctx) })
	w.exec(`UPDATE outbox SET due_at = now() WHERE done_at IS NULL`)
	did, err := l.MirrorAll(w.ctx)
	w.must(err)
	if did.Done != 1 {
		t.Errorf("mirrored %+v", did)
	}
	w.one(&alerts, `SELECT count(*) FROM alert WHERE kind = 'outbox' AND closed_at IS NULL`)
	if alerts != 0 {
		t.Error("the alert is still open")
	}
	w.later(2 * line.Refresh)
	waitFor(t, func() bool { return w.position(l, b, 2, 3).Exact == 2 })
}

// What a queued order costs Redis, whole and in shards.
func TestMemoryOfAQueuedOrder(t *testing.T) {
	w := newQueues(t)
	const orders = 120_000
	w.many("second", 2, 3, orders)
	for _, above := range []int{orders, 50_000} {
		w.must(w.redis.Client.FlushAll(w.ctx).Err())
		l := w.lines(nil, func(o *line.Options) { o.SplitAbove = above })
		begun := time.Now()
		_, err := l.Rebuild(w.ctx, w.sale)
		w.must(err)
		took := time.Since(begun)
		total := int64(0)
		keys := w.redis.Client.Scan(w.ctx, 0, "*", 1000).Iterator()
		n := 0
		for keys.Next(w.ctx) {
			m, err := w.redis.Client.MemoryUsage(w.ctx, keys.Val(), 0).Result()
			w.must(err)
			total += m
			n++
		}
		w.must(keys.Err())
		t.Logf("%d orders in %d keys: %.1f bytes an order, built in %s", orders, n, float64(total)/orders, took)
		if total > 150*orders {
			t.Errorf("%d bytes an order, at most 150", total/orders)
		}
	}
}

// Why somebody else got the seat, from what was stored of real releases.
func TestWhy(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	me := w.authorise("me", 2, 3, 1, true)
	w.must(l.Mirror(w.ctx, w.sale))
	var score int64
	w.one(&score, `SELECT score FROM standby_order WHERE number = $1`, me)
	at := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	gap := func(from, to int) [][2]int { return [][2]int{{from, to}} }
	for i, c := range []struct {
		what string
		o    line.Outcome
		want string
	}{
		{"someone ahead", line.Outcome{Gaps: gap(1, 5), Served: []line.Served{{From: 2, To: 3, Quantity: 1, Score: score - 1, Exact: true}}}, line.ReasonSameQueue},
		{"a smaller group behind", line.Outcome{Gaps: gap(1, 5), Served: []line.Served{{From: 2, To: 3, Quantity: 1, Score: score + 1, Exact: true}}}, line.ReasonGroup},
		{"the exact queue", line.Outcome{Gaps: gap(1, 5), Served: []line.Served{{From: 1, To: 1, Quantity: 1, Score: 1, Exact: false}, {From: 3, To: 4, Quantity: 1, Score: 99, Exact: true}}}, line.ReasonExact},
		{"more of the gap", line.Outcome{Gaps: gap(1, 5), Served: []line.Served{{From: 1, To: 5, Quantity: 1, Score: 99, Exact: false}}}, line.ReasonFuller},
		{"a part", line.Outcome{Gaps: gap(3, 5)}, line.ReasonPart},
		{"kept", line.Outcome{Gaps: gap(1, 5), Kept: []int64{score + 1}}, line.ReasonKept},
		{"kept for it", line.Outcome{Gaps: gap(1, 5), Kept: []int64{score + 1, score}}, line.ReasonYours},
		{"the first of the queue, and nobody got it", line.Outcome{Gaps: gap(2, 3)}, line.ReasonGroup},
		{"elsewhere", line.Outcome{Gaps: gap(4, 5)}, line.ReasonGroup}, // the one before is still the last that touched
	} {
		c.o.Event, c.o.At, c.o.From, c.o.To = "REFUND", at.Add(time.Duration(i)*time.Minute), 1, 5
		l.Considered(w.ctx, w.sale, "second", []line.Outcome{c.o})
		w.later(2 * line.Refresh)
		a := w.position(l, me, 2, 3)
		if a.Why == nil || a.Why.Reason != c.want {
			t.Errorf("%s: %+v", c.what, a.Why)
		} else if c.what != "elsewhere" && (!a.Why.At.Equal(c.o.At) || a.Why.From != c.o.Gaps[0][0] || len(a.Why.Served) != len(c.o.Served)) {
			t.Errorf("%s: %+v", c.what, a.Why)
		}
	}
	// Lost, and restored from the releases.
	w.must(w.redis.Client.Del(w.ctx, fmt.Sprintf("{sale:%d}:line:said:second", w.sale)).Err())
	w.exec(`INSERT INTO seat_release (sale_id, event_type, class, seat, leg_from, leg_to, released_at, done_at, outcome)
		SELECT s.sale_id, 'REFUND', 'second', g, 1, 5, now() - interval '1 minute', now() - make_interval(secs => 200 - g),
			jsonb_build_object('gaps', jsonb_build_array(jsonb_build_array(1, 5)), 'served', '[]'::jsonb, 'kept', '[0]'::jsonb)
		FROM sale s, generate_series(1, 100) g WHERE s.sale_id = $1`, w.sale)
	_, err := l.Rates(w.ctx)
	w.must(err)
	w.later(2 * line.Refresh)
	if a := w.position(l, me, 2, 3); a.Why == nil || a.Why.Reason != line.ReasonKept || a.Why.Event != "REFUND" {
		t.Errorf("restored: %+v", a.Why)
	}
	if n := w.redis.Client.LLen(w.ctx, fmt.Sprintf("{sale:%d}:line:said:second", w.sale)).Val(); n != 50 {
		t.Errorf("%d outcomes are kept", n)
	}
}

// Nothing is stranded: a seat that came free unnoticed is made due, once.
func TestForgottenSeatsBecomeDue(t *testing.T) {
	w := newQueues(t)
	nats := harness.NATS(t)
	bus, err := event.Open(nats.URL)
	w.must(err)
	t.Cleanup(bus.Close)
	waitFor(t, bus.Up)
	l := w.lines(nil, func(o *line.Options) { o.Bus = bus })
	told, err := nats.Conn.SubscribeSync(event.Subject(event.SeatReleased, w.sale))
	w.must(err)
	w.must(nats.Conn.Flush())
	// A hold of legs 2 and 3 of seat 1 and of leg 5 ended a minute ago; nobody noticed.
	w.exec(`SET session_replication_role = replica`)
	w.exec(`UPDATE seat SET considered_at = now() - interval '2 minutes', taken_until = array_fill('infinity'::timestamptz, ARRAY[5]) WHERE sale_id = $1`, w.sale)
	w.exec(`UPDATE seat SET taken_until[2:3] = ARRAY[now() - interval '1 minute', now() - interval '50 seconds'], taken_until[5] = now() - interval '20 seconds' WHERE sale_id = $1 AND number = 1`, w.sale)
	w.exec(`UPDATE seat SET taken_until[4] = now() - interval '3 seconds' WHERE sale_id = $1 AND number = 2`, w.sale) // not for long enough
	w.exec(`UPDATE seat SET taken_until[4] = now() - interval '3 minutes' WHERE sale_id = $1 AND number = 3`, w.sale) // considered since
	if n, err := l.Recheck(w.ctx); err != nil || n != 0 {
		t.Fatalf("nobody waits: %d, %v", n, err)
	}
	w.db.QueueOrder(t, w.sale, "ann", "second", 2, 2, 1)
	n, err := l.Recheck(w.ctx)
	w.must(err)
	var rows string
	w.one(&rows, `SELECT coalesce(string_agg(event_type || ' ' || seat || ' ' || leg_from || '-' || leg_to, ', ' ORDER BY release_id), '') FROM seat_release WHERE done_at IS NULL`)
	if n != 2 || rows != "TIMEOUT 1 2-3, TIMEOUT 1 5-5" {
		t.Errorf("%d rows: %s", n, rows)
	}
	if _, err := told.NextMsg(2 * time.Second); err != nil {
		t.Error("match was not told")
	}
	if n, err = l.Recheck(w.ctx); err != nil || n != 0 {
		t.Errorf("once more: %d, %v", n, err)
	}
}

// The comparison finds a waiting order beside a free gap that fits.
func TestAnOrderBesideAFreeSeatBecomesDue(t *testing.T) {
	w := newQueues(t)
	l := w.lines(nil, nil)
	w.exec(`UPDATE seat SET considered_at = now() WHERE sale_id = $1`, w.sale)
	w.exec(`UPDATE seat SET taken_until = array_fill('infinity'::timestamptz, ARRAY[5]) WHERE sale_id = $1 AND number > 2`, w.sale)
	w.exec(`UPDATE seat SET taken_until[1] = 'infinity' WHERE sale_id = $1 AND number = 1`, w.sale)
	fits := w.db.QueueOrder(t, w.sale, "ann", "second", 2, 3, 2)
	w.db.QueueOrder(t, w.sale, "bob", "second", 1, 3, 2) // one seat of two
	w.db.QueueOrder(t, w.sale, "cid", "second", 2, 3, 3) // two of three
	w.exec(`DELETE FROM standby_due WHERE sale_id = $1`, w.sale)
	found, err := l.Compare(w.ctx, w.sale)
	w.must(err)
	var due int64
	w.one(&due, `SELECT coalesce(max(number), 0) FROM standby_due`)
	if found.Beside != 1 || due != fits {
		t.Errorf("found %+v, order %d is due, want %d", found, due, fits)
	}
	if found.Missing != 3 {
		t.Errorf("found %+v", found)
	}
	w.exec(`DELETE FROM standby_due WHERE sale_id = $1`, w.sale)
	w.exec(`INSERT INTO seat_release (sale_id, event_type, class, seat, leg_from, leg_to, released_at) VALUES ($1, 'REFUND', 'second', 2, 1, 5, now())`, w.sale)
	if found, err = l.Compare(w.ctx, w.sale); err != nil || found.Beside != 0 {
		t.Errorf("one of the seats is due itself: %+v, %v", found, err)
	}
}

// `match` is away: it is told again after 2 s, and after 60 s somebody is.
func TestMatchIsToldAgain(t *testing.T) {
	w := newQueues(t)
	nats := harness.NATS(t)
	bus, err := event.Open(nats.URL)
	w.must(err)
	t.Cleanup(bus.Close)
	waitFor(t, bus.Up)
	l := w.lines(nil, func(o *line.Options) { o.Bus = bus })
	told, err := nats.Conn.SubscribeSync(event.Subject(event.SeatReleased, w.sale))
	w.must(err)
	w.must(nats.Conn.Flush())
	n := w.authorise("ann", 2, 3, 1, true)
	if k, err := l.NudgeDue(w.ctx); err != nil || k != 0 {
		t.Errorf("it has two seconds: %d, %v", k, err)
	}
	w.exec(`UPDATE standby_due SET due_at = now() - interval '3 seconds' WHERE number = $1`, n)
	if k, err := l.NudgeDue(w.ctx); err != nil || k != 1 {
		t.Errorf("an order that nobody checked: %d, %v", k, err)
	}
	msg, err := told.NextMsg(2 * time.Second)
	w.must(err)
	if want := fmt.Sprintf(`{"sale":"%d"}`, w.sale); string(msg.Data) != want {
		t.Errorf("match was told %s", msg.Data)
	}
	w.exec(`DELETE FROM standby_due`)
	release := func(age string) (id int64) {
		w.one(&id, `INSERT INTO seat_release (sale_id, event_type, class, seat, leg_from, leg_to, released_at)
			VALUES ($1, 'REFUND', 'second', 2, 1, 5, now() - $2::interval) RETURNING release_id`, w.sale, age)
		return id
	}
	release("3 seconds")
	if k, err := l.NudgeDue(w.ctx); err != nil || k != 1 {
		t.Errorf("a release that nobody matched: %d, %v", k, err)
	}
	alerts := func() (s string) {
		w.one(&s, `SELECT coalesce(string_agg(subject, ',' ORDER BY subject), '') FROM alert WHERE kind = 'release' AND closed_at IS NULL`)
		return s
	}
	late := release("61 seconds")
	for range 2 {
		if _, err := l.LateReleases(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if alerts() != fmt.Sprint(late) {
		t.Errorf("alerts: %q, want %d", alerts(), late)
	}
	w.exec(`INSERT INTO alert (sale_id, kind, subject) VALUES ($1, 'release', 'seat 4')`, w.sale)
	w.exec(`UPDATE seat_release SET done_at = now()`)
	if _, err := l.LateReleases(w.ctx); err != nil {
		t.Fatal(err)
	}
	if alerts() != "seat 4" {
		t.Errorf("alerts: %q", alerts())
	}
	// New orders have one alert a sale.
	w.authorise("bob", 2, 3, 1, true)
	w.authorise("cid", 2, 3, 1, true)
	w.exec(`UPDATE standby_due SET due_at = now() - interval '61 seconds'`)
	for range 2 {
		if _, err := l.LateReleases(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if alerts() != "new orders,seat 4" {
		t.Errorf("alerts: %q", alerts())
	}
	w.exec(`DELETE FROM standby_due`)
	if _, err := l.LateReleases(w.ctx); err != nil {
		t.Fatal(err)
	}
	if alerts() != "seat 4" {
		t.Errorf("alerts: %q", alerts())
	}
}

func matcherOf(w *queues) *standby.Matcher {
	return standby.NewMatcher(w.app, alert.New(w.app, ""), nobody{})
}

// nobody is an aftermath that does nothing.
type nobody struct{}

func (nobody) Seated(context.Context, int64)                             {}
func (nobody) Considered(context.Context, int64, string, []line.Outcome) {}
