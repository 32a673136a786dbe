package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"handler/function/cmd/holdfast/bench/textbook"
	"handler/function/shared/alert"
	"handler/function/shared/fn"
	"handler/function/shared/queue"
	"handler/function/shared/release"
	"handler/function/shared/standby"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"
)

// What `match` must reach (issue 3, demands 2 and 3).
const (
	matchP99      = 50.0 // ms from the release's commit to the hold's
	matchGrowth   = 1.3  // times as long with the longest queue as with the shortest
	matchTextbook = 5.0  // times as many matches a second as the textbook design
	matchBytes    = 150  // of Redis for each queued order
)

// Sizes of the benchmark of match.
const (
	matchQueued   = 300             // orders in each queue but the hottest
	matchEach     = 6 * time.Second // of a turn
	matchRate     = 10              // bookings taken back a second
	matchJoining  = 500             // orders a second that join meanwhile, in every second turn
	matchCallers  = 8               // of match at a time, where throughput is measured
	matchMany     = 200             // bookings that come free at once there
	matchHot      = 10_000
	matchSettle   = 30 * time.Second // until what was released is done
	memorySamples = 1_000            // of a queue, whose sizes Redis looks at
)

// At is the latency of match with so many orders in the hottest queue.
type At struct {
	Queued  int     `json:"queued"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Joining int     `json:"joining"`      // orders a second that were to join meanwhile
	Joined  float64 `json:"joined_per_s"` // and that did
	Matches int     `json:"matches"`      // measured
	// Growth is the median of the rounds' ratios of its p99 to that of the shortest
	// queue in the same round.
	Growth float64 `json:"growth"`
}

// queued is a sale in which people wait.
type queued struct {
	made
	hot  int
	sold []ticketed // that may be taken back
}

// wait is one release that was followed by a hold.
type wait struct{ ms float64 }

// matchBench is a run of the benchmark of match.
type matchBench struct {
	g        Ground
	owner    *pgxpool.Pool
	releases *release.Service
	app      *store.DB // of whoever takes bookings back
	joiners  *store.DB // of whoever joins, with the queues as that replica sees them
	lines    *line.Lines
	redis    *redis.Client
	log      func(format string, args ...any)
	serial   atomic.Int64
	joined   atomic.Int64
}

// match measures the latency of match for each size of the hottest queue by turns,
// with nobody joining and with 500 a second, and then its throughput against the
// textbook design's.
func (g Ground) match(ctx context.Context, o Options) (*Result, error) {
	// The functions, NATS, whoever joins and the textbook share one heap here, which
	// would be collected as often as that of one small function.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	owner, err := g.owner(ctx)
	if err != nil {
		return nil, err
	}
	defer owner.Close()
	if err := safe(ctx, owner); err != nil {
		return nil, err
	}
	app, err := fn.Default()
	if err != nil {
		return nil, err
	}
	b := &matchBench{g: g, owner: owner, log: o.Log}
	if b.releases, err = app.Releases(); err != nil {
		return nil, err
	}
	if b.app, err = store.OpenSize(g.Platform.PostgresAppURL, PoolSize); err != nil {
		return nil, err
	}
	defer b.app.Close()
	// Whoever joins is another replica's, with a pool of its own.
	other := fn.NewApp(fn.Config{Secrets: g.Platform.Secrets, Pool: PoolSize})
	if b.joiners, err = other.DB(); err != nil {
		return nil, err
	}
	defer b.joiners.Close()
	if b.lines, err = other.Lines(); err != nil {
		return nil, err
	}
	opts, err := redis.ParseURL(g.Platform.RedisURL)
	if err != nil {
		return nil, err
	}
	b.redis = redis.NewClient(opts)
	defer b.redis.Close()
	if len(o.Queued) == 0 {
		o.Queued = []int{1_000, 100_000, 2_000_000}
	}
	if slices.Min(o.Queued) < 1 || slices.Max(o.Queued) > 10_000_000 {
		return nil, errors.New("--queued must be 1 to 10,000,000")
	}
	slices.Sort(o.Queued)
	o.Rounds = cmp.Or(o.Rounds, 5)
	r := &Result{Name: o.Name, Peers: map[string]float64{}, Gate: matchTextbook, Workers: matchCallers, Rounds: o.Rounds,
		What: "the textbook design: a Redis lock a leg, double check, transaction; candidates by walking all seats with GETBIT"}
	if err := b.latency(ctx, o, r); err != nil {
		return nil, err
	}
	if err := b.throughput(ctx, o, r); err != nil {
		return nil, err
	}
	longest := r.At[len(r.At)-1]
	r.P50, r.P99 = longest.P50, longest.P99
	for _, at := range r.At {
		if at.P99 > matchP99 {
			r.fail("p99 %.1f ms with %d queued and %d joining a second: more than %.0f", at.P99, at.Queued, at.Joining, matchP99)
		}
		if at.Joined < 0.9*float64(at.Joining) {
			r.fail("only %.0f of %d a second joined with %d queued: this machine is too small or too busy", at.Joined, at.Joining, at.Queued)
		}
		if at.Growth > matchGrowth {
			r.fail("%.2f times as long with %d queued (%d joining a second) as with %d: more than %.1f", at.Growth, at.Queued, at.Joining, o.Queued[0], matchGrowth)
		}
	}
	if r.Ratio < r.Gate {
		r.fail("%.1f times the matches of the textbook design: less than %.0f", r.Ratio, r.Gate)
	}
	if r.RedisBytes > matchBytes {
		r.fail("%.0f bytes of Redis for each queued order: more than %d", r.RedisBytes, matchBytes)
	}
	return r, nil
}

// prepare makes a sale that is sold out and lets people wait in it.
func (b *matchBench) prepare(ctx context.Context, hot, rest int) (queued, error) {
	began := time.Now()
	m, err := b.g.makeRoute(ctx, routeSeats, routeLegs, mostSeats, 0)
	if err != nil {
		return queued{}, err
	}
	q := queued{made: m, hot: hot}
	if _, err := b.owner.Exec(ctx, `UPDATE sale SET hold_seconds = 86400 WHERE sale_id = $1`, m.id); err != nil {
		return q, err // what is matched stays so, as if it had been paid for
	}
	if q.sold, err = b.g.sellOut(ctx, b.owner, m, routeLegs); err != nil {
		return q, err
	}
	if err := queueUp(ctx, b.owner, m.id, queuedIntervals(), hot, rest); err != nil {
		return q, err
	}
	b.log("a sale with %d orders in its hottest queue and %d in each of %d others: made in %.1f s", hot, rest, routeQueues-1, time.Since(began).Seconds())
	return q, nil
}

// settle vacuums what was filled, as autovacuum would have done while it grew.
func (b *matchBench) settle(ctx context.Context) error {
	for _, table := range []string{"standby_order", "standby_queue", "account_sale", "payment", "seat", "booking", "booked_seat"} {
		if _, err := b.owner.Exec(ctx, "VACUUM ANALYZE "+table); err != nil {
			return err
		}
	}
	_, err := b.owner.Exec(ctx, "CHECKPOINT")
	return err
}

// latency fills At.
func (b *matchBench) latency(ctx context.Context, o Options, r *Result) error {
	sales := make([]queued, len(o.Queued))
	for i, n := range o.Queued {
		var err error
		if sales[i], err = b.prepare(ctx, n, min(matchQueued, n)); err != nil {
			return err
		}
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	for _, s := range sales { // ascending: the last is the longest
		var err error
		if r.RedisBytes, err = b.memory(ctx, s); err != nil {
			return err
		}
	}
	joining := []int{0, matchJoining}
	all := make([][]*hdrhistogram.Histogram, len(joining))
	growth, joined := make([][][]float64, len(joining)), make([][][]float64, len(joining))
	for j := range joining {
		growth[j], joined[j] = make([][]float64, len(sales)), make([][]float64, len(sales))
		for range sales {
			all[j] = append(all[j], hdrhistogram.New(1, 60_000_000, 3))
		}
	}
	each := max(1, min(int(cmp.Or(o.Each, matchEach).Seconds()*matchRate), len(sales[0].sold)/(len(joining)*(o.Rounds+1))))
	for round := 0; round <= o.Rounds; round++ {
		for j, rate := range joining {
			p99 := make([]float64, len(sales))
			for k := range sales {
				i := (k + round) % len(sales) // nobody is always the first
				cpu, began := tree(), time.Now()
				list, perSecond, err := b.turn(ctx, &sales[i], each, rate)
				if err != nil {
					return fmt.Errorf("%d queued: %w", sales[i].hot, err)
				}
				busy := (tree() - cpu) / time.Since(began).Seconds()
				if len(list) == 0 {
					return fmt.Errorf("%d queued: nobody was matched", sales[i].hot)
				}
				h := hdrhistogram.New(1, 60_000_000, 3)
				for _, w := range list {
					_ = h.RecordValue(max(1, int64(w.ms*1000)))
				}
				p99[i] = float64(h.ValueAtQuantile(99)) / 1000
				if round > 0 { // the first warms up
					all[j][i].Merge(h)
					joined[j][i] = append(joined[j][i], perSecond)
				}
				b.log("round %d of %d: %8d queued, %3.0f of %3d joining a second: %4d matches, p50 %6.2f ms, p99 %6.2f ms, %.2f cores", round, o.Rounds,
					sales[i].hot, perSecond, rate, len(list), float64(h.ValueAtQuantile(50))/1000, p99[i], busy)
			}
			for i := range sales {
				if round > 0 {
					growth[j][i] = append(growth[j][i], p99[i]/p99[0])
				}
			}
		}
	}
	for j, rate := range joining {
		for i, s := range sales {
			r.At = append(r.At, At{
				Queued: s.hot, Joining: rate, Joined: middle(joined[j][i]), Matches: int(all[j][i].TotalCount()), Growth: middle(growth[j][i]),
				P50: float64(all[j][i].ValueAtQuantile(50)) / 1000, P99: float64(all[j][i].ValueAtQuantile(99)) / 1000,
			})
		}
	}
	for _, s := range sales {
		if err := b.judge(ctx, s.id); err != nil {
			return err
		}
	}
	return nil
}

// judge is the check that ours and the peer must pass.
func (b *matchBench) judge(ctx context.Context, sale int64) error {
	n, err := textbook.TwoOnALeg(ctx, b.owner, sale)
	if err == nil && n > 0 {
		err = fmt.Errorf("two sit on %d legs of sale %d", n, sale)
	}
	return err
}

// turn takes bookings of a sale back, some a second, and measures from the commit
// of each to the commit of the hold that `match` made of it.
func (b *matchBench) turn(ctx context.Context, q *queued, n, joining int) (list []wait, joined float64, err error) {
	// As autovacuum would within a minute: what grows in a turn was empty before.
	if _, err := b.owner.Exec(ctx, "ANALYZE outbox, seat_release"); err != nil {
		return nil, 0, err
	}
	var mark int64
	if err := b.owner.QueryRow(ctx, `SELECT coalesce(max(release_id), 0) FROM seat_release`).Scan(&mark); err != nil {
		return nil, 0, err
	}
	before, began := b.joined.Load(), time.Now()
	joins, stop := context.WithCancel(ctx)
	defer stop()
	var joiners errgroup.Group
	if joining > 0 {
		joiners.Go(func() error { return b.join(joins, q, joining) })
	}
	n = min(n, len(q.sold))
	tick := time.NewTicker(time.Second / matchRate)
	defer tick.Stop()
	releasers, rctx := errgroup.WithContext(ctx)
	for _, s := range q.sold[:n] {
		<-tick.C
		releasers.Go(func() error {
			if err := b.takeBack(rctx, q.id, s); err != nil {
				return err
			}
			_, err := b.releases.Tell(rctx, q.id)
			return err
		})
	}
	q.sold = q.sold[n:]
	if err := releasers.Wait(); err != nil {
		return nil, 0, err
	}
	stop()
	if err := joiners.Wait(); err != nil {
		return nil, 0, err
	}
	joined = float64(b.joined.Load()-before) / time.Since(began).Seconds()
	if err := b.done(ctx, q.id); err != nil {
		return nil, 0, err
	}
	// What `pay` would have done: it is not part of this.
	if _, err := b.owner.Exec(ctx, `UPDATE outbox SET done_at = now() WHERE sale_id = $1 AND kind = 'order_matched' AND done_at IS NULL`, q.id); err != nil {
		return nil, 0, err
	}
	list, err = b.waits(ctx, q.id, mark)
	return list, joined, err
}

// takeBack cancels a paid booking: a REFUND.
func (b *matchBench) takeBack(ctx context.Context, sale int64, s ticketed) error {
	return b.app.Do(ctx, func(ctx context.Context, q store.Querier) error {
		var code string
		err := q.QueryRow(ctx, `SELECT cancel_booking($1, $2, $3, 'benchmark', '')->>'code'`, sale, s.number, s.account).Scan(&code)
		if err == nil && code != "cancelled" {
			err = fmt.Errorf("booking %d was not taken back: %s", s.number, code)
		}
		return err
	})
}

// done waits until nothing is due.
func (b *matchBench) done(ctx context.Context, sale int64) error {
	for end := time.Now().Add(matchSettle); ; {
		var due int
		err := b.owner.QueryRow(ctx, `SELECT (SELECT count(*) FROM seat_release WHERE sale_id = $1 AND done_at IS NULL)
			+ (SELECT count(*) FROM standby_due WHERE sale_id = $1)`, sale).Scan(&due)
		if err != nil || due == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d releases and new orders still due after %s", due, matchSettle)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waits reads from Postgres when each release and the first hold of its legs by
// match were committed.
func (b *matchBench) waits(ctx context.Context, sale, mark int64) ([]wait, error) {
	rows, err := b.owner.Query(ctx, `
		WITH held AS (
			SELECT seat, h.leg_from, h.leg_to, pg_xact_commit_timestamp(h.xmin) AS at
			FROM booking h, unnest(h.seats) seat WHERE h.sale_id = $1 AND h.origin = 'match')
		SELECT extract(epoch FROM min(held.at) - pg_xact_commit_timestamp(b.xmin)) * 1000
		FROM seat_release r JOIN booking b ON b.sale_id = $1 AND b.number = r.booking
		JOIN held ON held.seat = r.seat AND held.leg_from <= r.leg_to AND held.leg_to >= r.leg_from
			AND held.at > pg_xact_commit_timestamp(b.xmin)
		WHERE r.sale_id = $1 AND r.release_id > $2 AND r.event_type = 'REFUND' AND jsonb_array_length(nullif(r.outcome->'served', 'null')) > 0
		GROUP BY r.release_id, b.xmin`, sale, mark)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (w wait, err error) {
		err = row.Scan(&w.ms)
		return w, err
	})
}

// join lets people join until the context ends: an order, its authorisation, and
// what follows its commit.
func (b *matchBench) join(ctx context.Context, q *queued, rate int) error {
	intervals := queuedIntervals()
	var work errgroup.Group
	work.SetLimit(matchJoining) // a second's: each waits for its queue to be mirrored
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began, sent := time.Now(), 0; ; {
		select {
		case <-ctx.Done():
			return work.Wait()
		case <-tick.C:
		}
		for ; sent < int(time.Since(began).Seconds()*float64(rate)) && ctx.Err() == nil; sent++ {
			iv := hottest
			if rand.IntN(2) > 0 {
				iv = intervals[rand.IntN(len(intervals))]
			}
			account := fmt.Sprintf("join-%d", b.serial.Add(1))
			quantity := rand.IntN(mostSeats) + 1
			work.Go(func() error { return b.joinOne(context.WithoutCancel(ctx), q.id, account, iv, quantity) })
		}
	}
}

func (b *matchBench) joinOne(ctx context.Context, sale int64, account string, iv interval, quantity int) error {
	var order int64
	err := b.joiners.Do(ctx, func(ctx context.Context, c store.Querier) error {
		return c.QueryRow(ctx, `SELECT (standby_join($1, $2, 'k', NULL, NULL, ARRAY[$3::text], $4, $5, $6, 0, ARRAY[$7::bigint], 'sandbox',
			now() + interval '1 hour', NULL, 3, '[]', '{}', '')->>'order')::bigint`,
			sale, account, class, iv.from, iv.to, quantity, 2500*quantity).Scan(&order)
	})
	if err != nil {
		return err
	}
	err = b.joiners.Do(ctx, func(ctx context.Context, c store.Querier) error {
		_, err := c.Exec(ctx, `SELECT standby_authorised($1, $2, NULL, true, '')`, sale, order)
		return err
	})
	if err == nil {
		b.lines.Queued(ctx, sale, order)
		b.joined.Add(1)
	}
	return err
}

// memory is the Redis memory of each order of the hottest queue.
func (b *matchBench) memory(ctx context.Context, q queued) (bytes float64, err error) {
	began := time.Now()
	put, err := b.lines.Rebuild(ctx, q.id)
	if err != nil {
		return 0, err
	}
	b.log("%d orders put into the queues in Redis in %.1f s", put, time.Since(began).Seconds())
	// The queue, or the shards of one that is split.
	tag, name := queue.SaleTag(q.id), fmt.Sprintf("%s:%d:%d", class, hottest.from, hottest.to)
	keys := []string{queue.Key(tag, "q", name)}
	for shard := range line.Shards {
		keys = append(keys, queue.Key(tag+":q:"+name+":"+strconv.Itoa(shard), "q"))
	}
	var used, orders int64
	for _, key := range keys {
		n, err := b.redis.ZCard(ctx, key).Result()
		if err != nil {
			return 0, err
		}
		if n == 0 {
			continue
		}
		u, err := b.redis.MemoryUsage(ctx, key, memorySamples).Result()
		if err != nil {
			return 0, err
		}
		used, orders = used+u, orders+n
	}
	var waiting int64
	if err := b.owner.QueryRow(ctx, `SELECT count(*) FROM standby_queue WHERE sale_id = $1 AND class = $2 AND leg_from = $3 AND leg_to = $4`,
		q.id, class, hottest.from, hottest.to).Scan(&waiting); err != nil {
		return 0, err
	}
	if orders != waiting {
		return 0, fmt.Errorf("%d orders of %d stand in the hottest queue in Redis", orders, waiting)
	}
	return float64(used) / float64(orders), nil
}

// throughput measures how many orders a second get seats when many bookings of one
// sale come free at once: ours and the textbook design by turns, each in sales of
// its own that are made alike.
func (b *matchBench) throughput(ctx context.Context, o Options, r *Result) error {
	var err error
	hot := min(matchHot, slices.Max(o.Queued))
	var ours, theirs, single queued
	for _, s := range []*queued{&ours, &theirs, &single} {
		if *s, err = b.prepare(ctx, hot, min(matchQueued, hot)); err != nil {
			return err
		}
	}
	peer := &textbook.Design{Redis: b.redis, DB: b.owner, Sale: theirs.id, Class: class, Legs: routeLegs}
	if err := peer.Load(ctx); err != nil {
		return err
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	matchers, err := store.OpenSize(b.g.Platform.PostgresAppURL, PoolSize)
	if err != nil {
		return err
	}
	defer matchers.Close()
	matcher := standby.NewMatcher(matchers, alert.New(matchers, ""), nobody{})

	many := min(matchMany, len(ours.sold)/(o.Rounds+1))
	sides := []struct {
		name string
		sale *queued
		run  func(releases []textbook.Release) error
	}{
		{"ours", &ours, func([]textbook.Release) error {
			calls, ctx := errgroup.WithContext(ctx)
			for range matchCallers {
				calls.Go(func() error {
					_, err := matcher.Match(ctx, ours.id)
					return err
				})
			}
			return calls.Wait()
		}},
		{"textbook", &theirs, func(releases []textbook.Release) error {
			calls, ctx := errgroup.WithContext(ctx)
			calls.SetLimit(matchCallers)
			for _, release := range releases {
				calls.Go(func() error {
					_, err := peer.Match(ctx, release)
					return err
				})
			}
			return calls.Wait()
		}},
		// What the one lock a sale costs those who wait for it: with one caller
		// nobody does.
		{"ours, one caller", &single, func([]textbook.Release) error {
			_, err := matcher.Match(ctx, single.id)
			return err
		}},
	}
	rates, cpus := make([][]float64, len(sides)), make([]float64, len(sides))
	var ratios []float64
	for round := 0; round <= o.Rounds; round++ {
		for i, s := range sides {
			released, err := b.free(ctx, s.sale, many)
			if err != nil {
				return err
			}
			if s.sale == &theirs {
				if err := peer.Freed(ctx, released...); err != nil {
					return err
				}
			}
			if err := vacuum(ctx, b.owner); err != nil {
				return err
			}
			cpu, began := tree(), time.Now()
			if err := s.run(released); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			took := time.Since(began).Seconds()
			cpu = tree() - cpu
			n, err := b.matchedSince(ctx, s.sale.id, began)
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("%s: nobody was matched", s.name)
			}
			b.log("round %d of %d: %-16s %4d seats came free, %4d orders matched in %7.1f ms: %6.0f a second, %6.0f us CPU each", round, o.Rounds,
				s.name, len(released), n, took*1000, float64(n)/took, cpu/float64(n)*1e6)
			if round > 0 {
				rates[i] = append(rates[i], float64(n)/took)
				cpus[i] += cpu / float64(n) * 1e6 / float64(o.Rounds)
			}
		}
		if round > 0 {
			ratios = append(ratios, rates[0][round-1]/rates[1][round-1])
		}
	}
	r.Ours, r.Limit, r.Ratio = middle(rates[0]), middle(rates[1]), middle(ratios)
	r.CPU, r.LimitCPU = cpus[0], cpus[1]
	r.Peers["textbook"], r.Peers["ours, one caller"] = r.Limit, middle(rates[2])
	return errors.Join(b.judge(ctx, ours.id), b.judge(ctx, theirs.id), b.judge(ctx, single.id))
}

// nobody does nothing after a match.
type nobody struct{}

func (nobody) Seated(context.Context, int64) {}

func (nobody) Considered(context.Context, int64, string, []line.Outcome) {}

// free takes many bookings back and returns what came free of it.
func (b *matchBench) free(ctx context.Context, q *queued, n int) (list []textbook.Release, err error) {
	var mark int64
	if err := b.owner.QueryRow(ctx, `SELECT coalesce(max(release_id), 0) FROM seat_release`).Scan(&mark); err != nil {
		return nil, err
	}
	n = min(n, len(q.sold))
	for _, s := range q.sold[:n] {
		if err := b.takeBack(ctx, q.id, s); err != nil {
			return nil, err
		}
	}
	q.sold = q.sold[n:]
	// Nobody is told: each side works off what is due, and nothing else runs.
	if _, err := b.owner.Exec(ctx, `UPDATE seat_release SET told_at = now() WHERE sale_id = $1 AND told_at IS NULL`, q.id); err != nil {
		return nil, err
	}
	rows, err := b.owner.Query(ctx, `SELECT release_id, seat, leg_from, leg_to FROM seat_release WHERE sale_id = $1 AND release_id > $2 ORDER BY release_id`, q.id, mark)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r textbook.Release, err error) {
		err = row.Scan(&r.ID, &r.Seat, &r.From, &r.To)
		return r, err
	})
}

// matchedSince counts the orders that got seats.
func (b *matchBench) matchedSince(ctx context.Context, sale int64, began time.Time) (n int, err error) {
	err = b.owner.QueryRow(ctx, `SELECT count(*) FROM standby_order WHERE sale_id = $1 AND matched_at >= $2`, sale, began).Scan(&n)
	return n, err
}
