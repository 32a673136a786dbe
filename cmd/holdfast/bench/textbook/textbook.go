// Package textbook is a peer, not a part of Holdfast: the design for matching a
// wait-list that articles about 12306 describe, written as its best friend would
// write it. The benchmark measures ours against it, and a test shows what it
// cannot promise.
//
// The queues are sorted sets in Redis, and so is who sits where: a bitmap for each
// leg, a bit for each seat. When legs of a seat come free, the first orders of the
// queues that could use them are read and all seats are walked with GETBIT. Seats
// found for an order are locked, each leg with SET NX PX in sorted order; what was
// found is checked again in Postgres; a transaction writes booking and seats; then
// bits and queue follow, and a script gives back the locks that are still ours.
//
// Everything that may wait together goes out in one pipeline, one walk serves all
// candidates of a release, and an order is claimed by ZREM so that no two workers
// try the same.
package textbook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofrs/uuid/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// Lease is how long a lock lives: more than the work needs, as the articles have it.
const Lease = 10 * time.Second

const (
	lookedAt = 10   // orders of a queue, as ours
	pipeline = 4096 // commands of one round trip
	tries    = 3    // of a release whose seats were locked by others
)

// unlock gives back the locks that are still the caller's.
var unlock = redis.NewScript(`local n = 0
for i, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then n = n + redis.call('DEL', key) end
end
return n`)

// Design is the textbook's matching of one sale's class. It is safe for concurrent
// use.
type Design struct {
	Redis *redis.Client
	DB    *pgxpool.Pool // of the schema's owner: it writes seats without our functions
	Sale  int64
	Class string
	Legs  int
	Lease time.Duration // of a lock; 0: Lease

	// Between, when set, is called in mid-transaction: after the double check and
	// before the writes. A test stops there for as long as a garbage collector, a
	// slow disk or a failing network may.
	Between func(order int64)

	seats   []int
	booking atomic.Int64
}

// Interval is legs From to To, from 1, both inclusive.
type Interval struct{ From, To int }

// Release is legs of a seat that came free.
type Release struct {
	ID   int64
	Seat int
	Interval
}

type candidate struct {
	number   int64
	score    float64
	quantity int
	Interval
}

// errTaken: the double check found these seats taken.
type errTaken struct{ seats []int }

func (e errTaken) Error() string { return fmt.Sprintf("textbook: %v were taken meanwhile", e.seats) }

// errBusy: a lock of the seat is another's. errGone: the order is another worker's.
type errBusy struct{ seats []int }

func (e errBusy) Error() string { return fmt.Sprintf("textbook: %v are locked by another", e.seats) }

var errGone = errors.New("textbook: another has the order")

func (d *Design) key(parts ...any) string {
	k := fmt.Sprintf("{textbook:%d}", d.Sale)
	for _, p := range parts {
		k += fmt.Sprint(":", p)
	}
	return k
}

func (d *Design) queueKey(iv Interval) string { return d.key("q", d.Class, iv.From, iv.To) }

// Load fills Redis from Postgres: queues and bitmaps.
func (d *Design) Load(ctx context.Context) error {
	rows, err := d.DB.Query(ctx, `SELECT number, ARRAY(SELECT u > clock_timestamp() FROM unnest(taken_until) WITH ORDINALITY x (u, o) ORDER BY o)
		FROM seat WHERE sale_id = $1 AND class = $2 ORDER BY number`, d.Sale, d.Class)
	if err != nil {
		return err
	}
	p := d.Redis.Pipeline()
	var number int
	var taken []bool
	d.seats = d.seats[:0]
	if _, err := pgx.ForEachRow(rows, []any{&number, &taken}, func() error {
		d.seats = append(d.seats, number)
		for i, t := range taken {
			p.SetBit(ctx, d.key("leg", i+1), int64(number), bit(t))
		}
		return nil
	}); err != nil {
		return err
	}
	rows, err = d.DB.Query(ctx, `SELECT leg_from, leg_to, score, number, quantity FROM standby_queue WHERE sale_id = $1 AND class = $2`, d.Sale, d.Class)
	if err != nil {
		return err
	}
	var c candidate
	if _, err := pgx.ForEachRow(rows, []any{&c.From, &c.To, &c.score, &c.number, &c.quantity}, func() error {
		p.ZAdd(ctx, d.queueKey(c.Interval), redis.Z{Score: c.score, Member: member(c.number, c.quantity)})
		if p.Len() >= pipeline {
			_, err := p.Exec(ctx)
			return err
		}
		return nil
	}); err != nil {
		return err
	}
	if _, err := p.Exec(ctx); err != nil {
		return err
	}
	if err := unlock.Load(ctx, d.Redis).Err(); err != nil {
		return err
	}
	// Booking numbers of its own, beyond those that a run of ours gives out.
	d.booking.Store(3_000_000)
	return nil
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// member is how an order stands in a queue: with its quantity, so that looking at
// it costs no second read.
func member(number int64, quantity int) string {
	return strconv.FormatInt(number, 10) + "/" + strconv.Itoa(quantity)
}

// Freed tells the bitmaps that legs of a seat are free: whoever releases does it.
func (d *Design) Freed(ctx context.Context, releases ...Release) error {
	p := d.Redis.Pipeline()
	for _, r := range releases {
		for leg := r.From; leg <= r.To; leg++ {
			p.SetBit(ctx, d.key("leg", leg), int64(r.Seat), 0)
		}
	}
	_, err := p.Exec(ctx)
	return err
}

// Match gives what came free to the first who can use it: the exact interval's
// queue goes first, then the longest others. It returns how many orders got seats.
func (d *Design) Match(ctx context.Context, r Release) (matched int, err error) {
	for range tries {
		cands, err := d.candidates(ctx, r.Interval)
		if err != nil || len(cands) == 0 {
			return matched, err
		}
		free, err := d.walk(ctx, r.Interval)
		if err != nil {
			return matched, err
		}
		busy := false
		for _, c := range cands {
			// A release's own legs are used up when its seat has none left.
			if !slices.Contains(free[r.Seat], true) {
				return matched, nil
			}
			seats := d.choose(free, r, c)
			if seats == nil {
				continue
			}
			err := d.serve(ctx, c, seats)
			var taken errTaken
			var locked errBusy
			switch {
			case err == nil:
				matched++
			case errors.As(err, &taken):
				seats = taken.seats
			case errors.As(err, &locked):
				seats, busy = locked.seats, true
			case errors.Is(err, errGone):
				continue
			default:
				return matched, err
			}
			for _, s := range seats { // not to be tried again in this walk
				for leg := c.From; leg <= c.To; leg++ {
					free[s][leg-r.From] = false
				}
			}
		}
		if !busy {
			return matched, nil
		}
	}
	return matched, nil
}

// candidates are the first orders of every queue inside the interval, in the order
// in which they are tried.
func (d *Design) candidates(ctx context.Context, in Interval) ([]candidate, error) {
	var all []Interval
	for f := in.From; f <= in.To; f++ {
		for t := f; t <= in.To; t++ {
			all = append(all, Interval{f, t})
		}
	}
	slices.SortStableFunc(all, func(a, b Interval) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
	p := d.Redis.Pipeline()
	cmds := make([]*redis.ZSliceCmd, len(all))
	for i, iv := range all {
		cmds[i] = p.ZRangeWithScores(ctx, d.queueKey(iv), 0, lookedAt-1)
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, err
	}
	var out []candidate
	for i, cmd := range cmds {
		for _, z := range cmd.Val() {
			c := candidate{score: z.Score, Interval: all[i]}
			if _, err := fmt.Sscanf(z.Member.(string), "%d/%d", &c.number, &c.quantity); err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// walk reads the bits of all seats on the interval: for each seat with a free leg
// there, which are.
func (d *Design) walk(ctx context.Context, in Interval) (map[int][]bool, error) {
	legs := in.To - in.From + 1
	keys := make([]string, legs)
	for i := range keys {
		keys[i] = d.key("leg", in.From+i)
	}
	free := map[int][]bool{}
	step := max(1, pipeline/legs)
	cmds := make([]*redis.IntCmd, 0, step*legs)
	for some := range slices.Chunk(d.seats, step) {
		p := d.Redis.Pipeline()
		cmds = cmds[:0]
		for _, seat := range some {
			for _, key := range keys {
				cmds = append(cmds, p.GetBit(ctx, key, int64(seat)))
			}
		}
		if _, err := p.Exec(ctx); err != nil {
			return nil, err
		}
		for i, cmd := range cmds {
			if cmd.Val() == 0 {
				seat := some[i/legs]
				if free[seat] == nil {
					free[seat] = make([]bool, legs)
				}
				free[seat][i%legs] = true
			}
		}
	}
	return free, nil
}

// choose finds seats for an order: the released one and those beside it, so that
// workers at different releases seldom want the same; nil where too few are free.
func (d *Design) choose(free map[int][]bool, r Release, c candidate) []int {
	fits := func(seat int) bool {
		f := free[seat]
		return f != nil && !slices.Contains(f[c.From-r.From:c.To-r.From+1], false)
	}
	if !fits(r.Seat) {
		return nil
	}
	seats := []int{r.Seat}
	at, _ := slices.BinarySearch(d.seats, r.Seat)
	for i := 1; i < len(d.seats) && len(seats) < c.quantity; i++ {
		if s := d.seats[(at+i)%len(d.seats)]; fits(s) {
			seats = append(seats, s)
		}
	}
	if len(seats) < c.quantity {
		return nil
	}
	slices.Sort(seats)
	return seats
}

// serve locks, checks again, writes, and lets the bits and the queue follow.
func (d *Design) serve(ctx context.Context, c candidate, seats []int) (err error) {
	claimed, err := d.Redis.ZRem(ctx, d.queueKey(c.Interval), member(c.number, c.quantity)).Result()
	if err != nil {
		return err
	}
	if claimed == 0 {
		return errGone
	}
	defer func() {
		if err != nil { // its place is given back
			back := d.Redis.ZAdd(context.WithoutCancel(ctx), d.queueKey(c.Interval), redis.Z{Score: c.score, Member: member(c.number, c.quantity)}).Err()
			err = errors.Join(err, back)
		}
	}()
	release, err := d.lock(ctx, seats, c.Interval)
	if err != nil {
		return err
	}
	defer release()
	if err := d.write(ctx, c, seats); err != nil {
		return err
	}
	p := d.Redis.Pipeline()
	for _, s := range seats {
		for leg := c.From; leg <= c.To; leg++ {
			p.SetBit(ctx, d.key("leg", leg), int64(s), 1)
		}
	}
	_, err = p.Exec(ctx)
	return err
}

// lock takes the lock of each leg of each seat in sorted order, in one round trip:
// all or none.
func (d *Design) lock(ctx context.Context, seats []int, iv Interval) (release func(), err error) {
	token, err := uuid.NewV4()
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, s := range seats {
		for leg := iv.From; leg <= iv.To; leg++ {
			keys = append(keys, d.key("lock", s, leg))
		}
	}
	lease := cmp.Or(d.Lease, Lease)
	p := d.Redis.Pipeline()
	cmds := make([]*redis.BoolCmd, len(keys))
	for i, k := range keys {
		cmds[i] = p.SetNX(ctx, k, token.String(), lease)
	}
	release = func() { _ = unlock.Run(context.WithoutCancel(ctx), d.Redis, keys, token.String()).Err() }
	if _, err := p.Exec(ctx); err != nil {
		release()
		return nil, err
	}
	var busy []int
	for i, cmd := range cmds {
		if s := seats[i/(iv.To-iv.From+1)]; !cmd.Val() && !slices.Contains(busy, s) {
			busy = append(busy, s)
		}
	}
	if len(busy) > 0 {
		release()
		return nil, errBusy{busy}
	}
	return release, nil
}

// write is the transaction. The lock is what keeps others out, so that what was
// checked is still so when it is written.
func (d *Design) write(ctx context.Context, c candidate, seats []int) error {
	return pgx.BeginFunc(ctx, d.DB, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT number FROM seat
			WHERE sale_id = $1 AND number = ANY ($2) AND NOT clock_timestamp() >= ALL (taken_until[$3:$4])`,
			d.Sale, seats, c.From, c.To)
		if err != nil {
			return err
		}
		taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return err
		}
		if len(taken) > 0 {
			return errTaken{taken}
		}
		if d.Between != nil {
			d.Between(c.number)
		}
		n := d.booking.Add(1)
		b := &pgx.Batch{}
		b.Queue(`UPDATE standby_order SET state = 'matched', step = 'matched', booking = $3, class = $4, matched_at = now()
			WHERE sale_id = $1 AND number = $2 AND state = 'queued'`, d.Sale, c.number, n, d.Class)
		b.Queue(`UPDATE seat SET taken_until[$3:$4] = array_fill(now() + interval '1 hour', ARRAY[$4::int - $3::int + 1]),
			taken_by[$3:$4] = array_fill($5::bigint, ARRAY[$4::int - $3::int + 1]) WHERE sale_id = $1 AND number = ANY ($2)`,
			d.Sale, seats, c.From, c.To, n)
		b.Queue(`INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at, origin)
			SELECT o.sale_id, $3, o.account, $4, o.leg_from, o.leg_to, $5, o.quantity, 'held', o.fares[1], o.currency, now(), now() + interval '1 hour', now() + interval '1 hour', 'match'
			FROM standby_order o WHERE o.sale_id = $1 AND o.number = $2`, d.Sale, c.number, n, d.Class, seats)
		b.Queue(`UPDATE account_sale a SET live_seats = live_seats + $3 FROM standby_order o
			WHERE o.sale_id = $1 AND o.number = $2 AND a.sale_id = $1 AND a.account = o.account`, d.Sale, c.number, c.quantity)
		b.Queue(`UPDATE payment SET booking = $3 WHERE sale_id = $1 AND standby_order = $2`, d.Sale, c.number, n)
		b.Queue(`DELETE FROM standby_queue WHERE sale_id = $1 AND number = $2`, d.Sale, c.number)
		b.Queue(`INSERT INTO outbox (sale_id, kind, subject, payload) VALUES ($1, 'order_matched', $2, jsonb_build_object('order', $3::bigint))`,
			d.Sale, strconv.FormatInt(c.number, 10), c.number)
		res := tx.SendBatch(ctx, b)
		tag, err := res.Exec()
		if err := errors.Join(err, res.Close()); err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return errGone // it left while we looked
		}
		return nil
	})
}

// TwoOnALeg counts the legs of seats on which two live bookings sit: the check
// that this design and ours are both judged by.
func TwoOnALeg(ctx context.Context, db *pgxpool.Pool, sale int64) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM (
			SELECT 1 FROM booking b, unnest(b.seats) seat, generate_series(b.leg_from, b.leg_to) leg
			WHERE b.sale_id = $1 AND (b.state = 'booked' OR b.state = 'held' AND b.ends_at > now())
			GROUP BY seat, leg HAVING count(*) > 1) x`, sale).Scan(&n)
	return n, err
}
