package standby

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"handler/function/shared/alert"
	"handler/function/shared/problem"
	"handler/function/shared/seat"
	"handler/function/shared/standby/line"
	"handler/function/shared/standby/plan"
	"handler/function/shared/store"
)

//go:embed match.sql
var matchFile string

var matchSQL = store.Queries(matchFile)

// Limits of a run of `match`.
const (
	matchReleases  = 100  // due releases of one transaction
	matchNewcomers = 500  // new orders of one transaction
	matchRuns      = 1000 // transactions of one call; then others have their turn
	matchSales     = 1000 // of one MatchDue
	matchAgain     = 5    // plans of one transaction's work; then it stays due
	matchFirst     = 4    // orders that are read of each queue at first
	passMost       = 10   // a group passed so often has seats kept for it (DESIGN 8)
	setAside       = 3    // failures of a release before it is set aside
)

// AlertRelease is the kind of alert for a release that `match` set aside or did
// not get to in time; its subject is the release's id.
const AlertRelease = "release"

// Did counts what a call of `match` did.
type Did struct {
	Releases int `json:"releases"` // due releases done
	Checked  int `json:"checked"`  // new orders looked at
	Matched  int `json:"matched"`  // orders that got seats
	Kept     int `json:"kept"`     // seats kept for groups
	Refused  int `json:"refused"`  // orders ended: limit reached, or their time over
	SetAside int `json:"set_aside"`
}

func (m *Did) add(o Did) {
	m.Releases += o.Releases
	m.Checked += o.Checked
	m.Matched += o.Matched
	m.Kept += o.Kept
	m.Refused += o.Refused
	m.SetAside += o.SetAside
}

// Matcher gives what comes free to who waits for it. It only moves free -> held;
// capture and confirm are `pay`'s. It is safe for concurrent use.
type Matcher struct {
	db     *store.DB
	alerts *alert.Board
	after  Aftermath
}

// Aftermath is what follows a match, outside its transaction. All of it is made
// up for when it is lost: by the outbox and by reconcile.
type Aftermath interface {
	// Seated: orders of this sale have seats and are to be captured.
	Seated(ctx context.Context, sale int64)
	// Considered: what became of releases of a class, newest last.
	Considered(ctx context.Context, sale int64, class string, outcomes []line.Outcome)
}

// NewMatcher makes a Matcher.
func NewMatcher(db *store.DB, alerts *alert.Board, after Aftermath) *Matcher {
	return &Matcher{db: db, alerts: alerts, after: after}
}

// MatchDue matches every sale that has something due. One sale's trouble is no
// other's: the first error is returned after all were tried.
func (m *Matcher) MatchDue(ctx context.Context) (did Did, err error) {
	var sales []int64
	err = m.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, matchSQL["due-sales"], matchSales)
		if err != nil {
			return err
		}
		sales, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return did, err
	}
	for _, sale := range sales {
		one, saleErr := m.Match(ctx, sale)
		did.add(one)
		if problem.Is(saleErr, problem.Unavailable) {
			return did, saleErr
		}
		err = errors.Join(err, saleErr)
	}
	return did, err
}

// Match does what is due of a sale until nothing is: releases first, then new
// orders, each some at a time in a transaction of its own. Calls for one sale
// wait for each other; a sale that has nothing due costs one look. Orders that
// join after the new ones were read are left to the call that they are told with,
// so that a rush of joins is looked at in few scans.
func (m *Matcher) Match(ctx context.Context, sale int64) (did Did, err error) {
	for range matchRuns {
		r := run{m: m, sale: sale, refused: map[int64]string{}}
		some, err := r.do(ctx)
		did.add(r.did)
		if err != nil && !problem.Is(err, problem.Unavailable) && ctx.Err() == nil && len(r.batch) > 0 {
			slog.ErrorContext(ctx, "match: a run failed", "sale", sale, "releases", len(r.batch), "error", err)
			aside, failErr := m.fail(ctx, sale, r.batch, err)
			did.SetAside += aside
			if failErr != nil {
				return did, errors.Join(err, failErr)
			}
			continue
		}
		if err != nil || !some {
			return did, err
		}
	}
	return did, nil
}

// fail counts a failure of releases; one that failed for the third time is set
// aside with an alert, and its seat is marked considered.
func (m *Matcher) fail(ctx context.Context, sale int64, ids []int64, cause error) (aside int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	type bad struct{ id, seat int64 }
	var gone []bad
	err = m.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		gone = gone[:0]
		if _, err := tx.Exec(ctx, matchSQL["begin"], sale); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, matchSQL["failed"], sale, ids)
		if err != nil {
			return err
		}
		var b bad
		var tries int
		if _, err := pgx.ForEachRow(rows, []any{&b.id, &b.seat, &tries}, func() error {
			if tries >= setAside {
				gone = append(gone, b)
			}
			return nil
		}); err != nil {
			return err
		}
		outcome, err := json.Marshal(map[string]string{"error": cause.Error()})
		if err != nil {
			return err
		}
		for _, b := range gone {
			if _, err := tx.Exec(ctx, matchSQL["considered"], sale, []int64{b.seat}); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, matchSQL["done"], sale, []int64{b.id}, [][]byte{outcome}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, b := range gone {
		m.alerts.Raise(ctx, sale, AlertRelease, fmt.Sprint(b.id), fmt.Sprintf("set aside, seat %d goes to the open sale: %v", b.seat, cause))
	}
	return len(gone), err
}

// run is one transaction's work for a sale.
type run struct {
	m       *Matcher
	sale    int64
	refused map[int64]string // orders that may not be served, with the code
	did     Did
	batch   []int64 // releases at work, for who counts failures

	releases  []dueRelease
	newcomers []plan.Newcomer
	waiting   map[string]bool // classes with waiting orders
	at        time.Time       // the moment by which legs are free
	strips    map[int]strip
	queues    map[string]map[plan.Interval][]plan.Order
	cut       map[string]map[plan.Interval]bool // those of queues of which not all that may be needed was read
	kept      map[keptFor][]int
}

type dueRelease struct {
	id         int64
	event      string
	class      string
	seat       int
	interval   plan.Interval
	tries      int
	releasedAt time.Time
}

// strip is a copy of one, as read.
type strip struct {
	class      string
	considered int64
	until      []int64
	version    int64
	coach, row string // where the seat is; empty where nobody knows
}

// anyVersion is the version of a strip of which nothing was read but where it is.
const anyVersion = -1

// errAnew: what was planned does not stand any more, and nothing was written.
var errAnew = errors.New("standby: to be planned anew")

// errReleases: releases are due, which come before new orders.
var errReleases = errors.New("standby: releases are due first")

// SQLSTATEs of the functions of migrations/00060_standby.sql.
const (
	stateTaken   = "HF001" // a seat is not free
	stateRefused = "HF004" // an order may not be served; the message says why, the detail which
	stateAnew    = "HF005" // a seat is not as it was read
)

// do works once. some: there was something to do, so there may be more.
func (r *run) do(ctx context.Context) (some bool, err error) {
	look, err := r.look(ctx)
	if err != nil || !look.releases && !look.orders && !look.orphans || look.paused {
		return false, err
	}
	if look.orphans || look.over {
		if err := r.settle(ctx, look.over); err != nil {
			return false, err
		}
	}
	begin := r.beginReleases
	if !look.releases && !look.orphans { // what was kept is released by now
		if some, err = r.sift(ctx); err != nil || !some {
			return false, err
		}
		begin = r.beginOrders
	}
	for range matchAgain {
		var after func(context.Context)
		some, after, err = r.try(ctx, begin)
		err = r.anew(ctx, err)
		if err == nil {
			if after != nil {
				after(ctx)
			}
			return some || look.orphans && look.orders, nil
		}
		if errors.Is(err, errReleases) {
			return true, nil
		}
		if errors.Is(err, errAnew) && len(r.refused) > 0 {
			err = r.anew(ctx, r.settle(ctx, false))
		}
		if err != nil && !errors.Is(err, errAnew) {
			return false, err
		}
	}
	// Seats moved under every plan, which takes a crowd at just these seats, and what
	// is due stays due; or orders were refused, one a plan, and there may be more.
	return r.did.Refused > 0, nil
}

// anew makes errAnew of a deadlock: it is nobody's fault, least of all the releases'.
func (r *run) anew(ctx context.Context, err error) error {
	if store.Deadlock(err) {
		slog.WarnContext(ctx, "match: a deadlock", "sale", r.sale, "error", err)
		return errAnew
	}
	return err
}

// looked is what a look without a lock says of a sale.
type looked struct {
	releases bool // are due
	orders   bool // new ones are due
	orphans  bool // seats are kept for orders that wait no more
	paused   bool // nothing is given out now: what is due stays due
	over     bool // it sells no more, and some still wait
}

func (r *run) look(ctx context.Context) (l looked, err error) {
	err = r.m.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, matchSQL["look"], r.sale).Scan(&l.releases, &l.orders, &l.orphans, &l.paused, &l.over)
	})
	if store.IsNoRows(err) {
		return looked{}, nil // no such sale
	}
	return l, err
}

// settle ends the orders that may not be served and, of a sale that is over, all
// that wait, and lets go what is kept for orders that wait no more. It is a
// transaction of its own: all of that locks what comes late in the order of locks.
func (r *run) settle(ctx context.Context, over bool) error {
	err := r.m.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(matchSQL["begin"], r.sale)
		if over {
			b.Queue(matchSQL["expire"], r.sale, matchNewcomers)
		}
		b.Queue(matchSQL["unkeep"], r.sale)
		for _, number := range slices.Sorted(maps.Keys(r.refused)) {
			b.Queue(matchSQL["refuse"], r.sale, number, r.refused[number])
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil {
		r.did.Refused += len(r.refused)
		clear(r.refused)
	}
	return err
}

// sift looks, without a lock, which new orders could have seats now, and is done
// with the others: whatever comes free for these later is a release, and its run
// sees them in their queues. It says whether there is more to do: some could, or
// there may be more new orders than it read.
func (r *run) sift(ctx context.Context) (some bool, err error) {
	err = r.m.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		r.clear()
		res := q.SendBatch(ctx, r.readOrders(&pgx.Batch{}))
		defer res.Close()
		if err := r.scanOrders(res); err != nil {
			return err
		}
		if err := res.Close(); err != nil {
			return err
		}
		var none []int64
		for _, n := range r.newcomers {
			if !slices.ContainsFunc(n.Classes, func(class string) bool { return r.fits(class, n) }) {
				none = append(none, n.Score)
			}
		}
		some = len(none) < len(r.newcomers) || len(r.newcomers) >= matchNewcomers/2 // nearly all that are read at once
		if len(none) == 0 {
			return nil
		}
		tag, err := q.Exec(ctx, matchSQL["checked"], r.sale, none)
		r.did.Checked += int(tag.RowsAffected())
		return err
	})
	return some, err
}

// clear forgets what was read.
func (r *run) clear() {
	r.releases, r.newcomers, r.batch = nil, nil, nil
	r.waiting, r.strips, r.kept = map[string]bool{}, map[int]strip{}, map[keptFor][]int{}
	r.queues, r.cut = map[string]map[plan.Interval][]plan.Order{}, map[string]map[plan.Interval]bool{}
}

// try reads, plans, locks, checks that what was read still stands, and writes.
func (r *run) try(ctx context.Context, begin func(context.Context, pgx.Tx, *plan.Input) error) (some bool, after func(context.Context), err error) {
	did := Did{}
	err = r.m.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		did, after = Did{}, nil
		r.clear()
		in := plan.Input{PassMost: passMost}
		if err := begin(ctx, tx, &in); err != nil {
			return err
		}
		if some = len(r.releases) > 0 || len(r.newcomers) > 0; !some {
			return nil
		}
		made, err := r.plan(ctx, tx, in)
		if err != nil {
			return err
		}
		outcomes, err := r.write(ctx, tx, made, &did)
		if err != nil {
			return err
		}
		some = len(r.releases) > 0 || len(r.newcomers) == matchNewcomers || did.Matched > 0
		after = func(ctx context.Context) {
			if did.Matched > 0 {
				r.m.after.Seated(ctx, r.sale)
			}
			for _, class := range slices.Sorted(maps.Keys(outcomes)) {
				r.m.after.Considered(ctx, r.sale, class, outcomes[class])
			}
		}
		return nil
	})
	if err == nil {
		r.did.add(did)
	}
	return some, after, err
}

// beginReleases takes the match row and reads the releases that are due, and copies
// of all that they need: their seats, those beside them, and the first of the
// queues that could use what they have.
func (r *run) beginReleases(ctx context.Context, tx pgx.Tx, _ *plan.Input) error {
	b := &pgx.Batch{}
	b.Queue(matchSQL["begin"], r.sale)
	b.Queue(matchSQL["due-releases"], r.sale, matchReleases)
	b.Queue(matchSQL["waiting-classes"], r.sale)
	b.Queue(matchSQL["clock"])
	b.Queue(matchSQL["due-strips"], r.sale, matchReleases)
	b.Queue(matchSQL["due-beside"], r.sale, matchReleases)
	b.Queue(matchSQL["due-kept"], r.sale, matchReleases)
	b.Queue(matchSQL["due-candidates"], r.sale, matchReleases, matchFirst)
	b.Queue(matchSQL["still-due"], r.sale, matchReleases)
	res := tx.SendBatch(ctx, b)
	defer res.Close()
	if _, err := res.Exec(); err != nil {
		return err
	}
	if err := each(res, func(rows pgx.Rows) error {
		var d dueRelease
		if err := rows.Scan(&d.id, &d.event, &d.class, &d.seat, &d.interval.From, &d.interval.To, &d.tries, &d.releasedAt); err != nil {
			return err
		}
		// One that has failed is worked at alone, after all others.
		if len(r.releases) == 0 || d.tries == 0 {
			r.releases = append(r.releases, d)
			r.batch = append(r.batch, d.id)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := each(res, func(rows pgx.Rows) error {
		var class string
		err := rows.Scan(&class)
		r.waiting[class] = true
		return err
	}); err != nil {
		return err
	}
	if err := res.QueryRow().Scan(&r.at); err != nil {
		return err
	}
	for range 2 {
		if err := r.readStrips(res); err != nil {
			return err
		}
	}
	if err := r.readKept(res); err != nil {
		return err
	}
	if err := r.readQueues(res, matchFirst, true); err != nil {
		return err
	}
	// With more due than a run takes, one that commits late with a low id pushes the
	// last ones out, and not all statements have read for these: they stay due.
	still, err := stillThere(res)
	if err != nil {
		return err
	}
	r.releases = slices.DeleteFunc(r.releases, func(d dueRelease) bool { return !still[d.id] })
	r.batch = slices.DeleteFunc(r.batch, func(id int64) bool { return !still[id] })
	return res.Close()
}

// readOrders queues the reading of new orders and of the classes that they wait
// for, as far as these are free; scanOrders reads the results.
func (r *run) readOrders(b *pgx.Batch) *pgx.Batch {
	b.Queue(matchSQL["newcomers"], r.sale, matchNewcomers)
	b.Queue(matchSQL["clock"])
	b.Queue(matchSQL["new-strips"], r.sale, matchNewcomers)
	b.Queue(matchSQL["still-new"], r.sale, matchNewcomers)
	return b
}

func (r *run) scanOrders(res pgx.BatchResults) error {
	if err := each(res, func(rows pgx.Rows) error {
		var n plan.Newcomer
		err := rows.Scan(&n.Number, &n.Score, &n.Classes, &n.From, &n.To, &n.Quantity, &n.Together)
		r.newcomers = append(r.newcomers, n)
		return err
	}); err != nil {
		return err
	}
	if err := res.QueryRow().Scan(&r.at); err != nil {
		return err
	}
	if err := r.readStrips(res); err != nil {
		return err
	}
	// As with releases: one that commits late may have pushed the last ones out.
	still, err := stillThere(res)
	r.newcomers = slices.DeleteFunc(r.newcomers, func(n plan.Newcomer) bool { return !still[n.Score] })
	return err
}

// stillThere reads a result of numbers.
func stillThere(res pgx.BatchResults) (map[int64]bool, error) {
	still := map[int64]bool{}
	err := each(res, func(rows pgx.Rows) error {
		var n int64
		err := rows.Scan(&n)
		still[n] = true
		return err
	})
	return still, err
}

// beginOrders takes the match row and reads the new orders, and the first of the
// queues of those that could have seats. Releases come first, also those that are
// due since a moment ago: what came free is offered to all before it is given to a
// new order. Then nothing is planned, and the next run sees them.
func (r *run) beginOrders(ctx context.Context, tx pgx.Tx, in *plan.Input) error {
	b := &pgx.Batch{}
	b.Queue(matchSQL["begin"], r.sale)
	r.readOrders(b)
	// After the strips: whatever is free in these is seen to have been released.
	b.Queue(matchSQL["due-releases"], r.sale, 1)
	res := tx.SendBatch(ctx, b)
	defer res.Close()
	if _, err := res.Exec(); err != nil {
		return err
	}
	if err := r.scanOrders(res); err != nil {
		return err
	}
	first := false
	if err := each(res, func(pgx.Rows) error { first = true; return nil }); err != nil {
		return err
	}
	if err := res.Close(); err != nil {
		return err
	}
	if first {
		return errReleases
	}

	queues := map[plan.Queue]bool{}
	for _, n := range r.newcomers {
		some := false
		for _, class := range n.Classes {
			if r.fits(class, n) {
				some = true
				queues[plan.Queue{Class: class, Interval: n.Interval}] = true
			}
		}
		if some {
			in.Newcomers = append(in.Newcomers, n)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	named := slices.Collect(maps.Keys(queues))
	b = &pgx.Batch{}
	b.Queue(matchSQL["kept"], r.queueArgs(named)...)
	b.Queue(matchSQL["heads"], r.queueArgs(named, matchFirst)...)
	res = tx.SendBatch(ctx, b)
	defer res.Close()
	if err := r.readKept(res); err != nil {
		return err
	}
	if err := r.readQueues(res, matchFirst, true); err != nil {
		return err
	}
	return res.Close()
}

// plan makes the plan. The queues of which it wants to see more are read on, four
// times as far each time, up to what a plan can need at all: one order of a queue
// may be served for each release and each new order.
func (r *run) plan(ctx context.Context, tx pgx.Tx, in plan.Input) (plan.Plan, error) {
	most := plan.LookedAt + len(r.releases) + len(r.newcomers)
	in.Classes = r.classes() // with the run's own maps of queues
	for first := matchFirst; ; {
		made := plan.Make(in)
		if len(made.Short) == 0 {
			return made, nil
		}
		first = min(4*first, most)
		for _, q := range made.Short {
			delete(r.queues[q.Class], q.Interval)
			delete(r.cut[q.Class], q.Interval)
		}
		b := &pgx.Batch{}
		b.Queue(matchSQL["heads"], r.queueArgs(made.Short, first)...)
		res := tx.SendBatch(ctx, b)
		err := r.readQueues(res, first, first < most)
		if err := cmp.Or(err, res.Close()); err != nil {
			return plan.Plan{}, err
		}
	}
}

// queueArgs are the arguments of a statement about queues.
func (r *run) queueArgs(queues []plan.Queue, more ...any) []any {
	var classes []string
	var from, to []int
	for _, q := range queues {
		classes, from, to = append(classes, q.Class), append(from, q.From), append(to, q.To)
	}
	return append([]any{r.sale, classes, from, to}, more...)
}

// each reads one result of a batch.
func each(res pgx.BatchResults, row func(pgx.Rows) error) error {
	rows, err := res.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readStrips reads a result of seats.
func (r *run) readStrips(res pgx.BatchResults) error {
	return each(res, func(rows pgx.Rows) error {
		number, s, err := scanStrip(rows)
		r.strips[number] = s
		return err
	})
}

// keptFor names what is kept for an order in a class.
type keptFor struct {
	order int64
	class string
}

// readKept reads a result of seats that are kept. A strip that was not read by now
// has no free leg.
func (r *run) readKept(res pgx.BatchResults) error {
	legs := 0
	for _, s := range r.strips {
		legs = len(s.until)
		break
	}
	return each(res, func(rows pgx.Rows) error {
		var k keptFor
		var number int
		var coach, row string
		if err := rows.Scan(&k.order, &k.class, &number, &coach, &row); err != nil {
			return err
		}
		if _, ok := r.strips[number]; !ok {
			r.strips[number] = strip{class: k.class, until: slices.Repeat([]int64{math.MaxInt64}, legs), version: anyVersion, coach: coach, row: row}
		}
		r.kept[k] = append(r.kept[k], number)
		return nil
	})
}

// fits says whether the class has as many seats free on the interval as the
// order wants: without them nothing more is read for it.
func (r *run) fits(class string, n plan.Newcomer) bool {
	want, now := n.Quantity, seat.Moment(r.at)
	for _, s := range r.strips {
		if s.class == class && n.To <= len(s.until) && s.free(n.Interval, now) {
			if want--; want == 0 {
				return true
			}
		}
	}
	return false
}

func (s strip) free(iv plan.Interval, now int64) bool {
	for _, u := range s.until[iv.From-1 : iv.To] {
		if u > now {
			return false
		}
	}
	return true
}

// strips are rows of a strip, as seat.ScanStrip reads them, with columns more.
type strips struct{ pgx.Rows }

// Scan leaves the other columns out.
func (r strips) Scan(dest ...any) error {
	for range len(r.FieldDescriptions()) - len(dest) {
		dest = append(dest, nil)
	}
	return r.Rows.Scan(dest...)
}

func scanStrip(rows pgx.Rows) (number int, s strip, err error) {
	n, class, considered, until, err := seat.ScanStrip(strips{rows}, nil)
	if err != nil {
		return 0, strip{}, err
	}
	texts := rows.RawValues()[4:] // the same in both forms of the protocol
	version, err := strconv.ParseInt(string(texts[0]), 10, 64)
	return int(n), strip{class, considered, until, version, string(texts[1]), string(texts[2])}, err
}

func (s strip) seat(number int, now int64) plan.Seat {
	p := plan.Seat{Number: number, Free: make([]bool, len(s.until)), Fresh: make([]bool, len(s.until))}
	for i, u := range s.until {
		p.Free[i], p.Fresh[i] = u <= now, u > s.considered
	}
	return p
}

// readQueues reads a result with the first of some queues, at most limit of each.
// cut: there may be more of those that have so many, and a plan may need them.
// There are thousands: they are read as they came.
func (r *run) readQueues(res pgx.BatchResults, limit int, cut bool) error {
	return each(res, func(rows pgx.Rows) error {
		var n [7]int64
		raw := rows.RawValues()
		fields := rows.FieldDescriptions()
		for i := range n {
			v, err := whole(raw[i+1], fields[i+1].Format)
			if err != nil {
				return err
			}
			n[i] = v
		}
		class := string(raw[0])
		iv := plan.Interval{From: int(n[0]), To: int(n[1])}
		o := plan.Order{Number: n[2], Score: n[3], Quantity: int(n[4]), Together: plan.Together(n[5]), Passed: int(n[6])}
		o.Kept = r.kept[keptFor{o.Number, class}]
		if r.queues[class] == nil {
			r.queues[class], r.cut[class] = map[plan.Interval][]plan.Order{}, map[plan.Interval]bool{}
		}
		orders := append(r.queues[class][iv], o)
		r.queues[class][iv] = orders
		if cut && len(orders) == limit {
			r.cut[class][iv] = true
		}
		return nil
	})
}

// whole is a whole number of two, four or eight bytes, or its text, as a pooler's
// simple protocol gives it.
func whole(raw []byte, format int16) (int64, error) {
	if format == pgx.BinaryFormatCode {
		switch len(raw) {
		case 2:
			return int64(int16(binary.BigEndian.Uint16(raw))), nil
		case 4:
			return int64(int32(binary.BigEndian.Uint32(raw))), nil
		case 8:
			return int64(binary.BigEndian.Uint64(raw)), nil
		}
		return 0, fmt.Errorf("standby: a number of %d bytes", len(raw))
	}
	return strconv.ParseInt(string(raw), 10, 64)
}

// classes is what the plan is made of.
func (r *run) classes() []plan.Class {
	now := seat.Moment(r.at)
	byID := map[string]*plan.Class{}
	type rowKey struct{ coach, row string }
	coaches, rows := map[string]int{}, map[rowKey]int{} // their keys, from 1
	for _, number := range slices.Sorted(maps.Keys(r.strips)) {
		s := r.strips[number]
		c := byID[s.class]
		if c == nil {
			c = &plan.Class{ID: s.class, Legs: len(s.until), Queues: r.queues[s.class], Cut: r.cut[s.class]}
			byID[s.class] = c
		}
		p := s.seat(number, now)
		p.Coach, p.Row = -number, -number // nowhere known: beside nobody
		if s.coach != "" {
			at := rowKey{s.coach, s.row}
			if coaches[s.coach] == 0 {
				coaches[s.coach] = len(coaches) + 1
			}
			if rows[at] == 0 {
				rows[at] = len(rows) + 1
			}
			p.Coach, p.Row = coaches[s.coach], rows[at]
		}
		c.Seats = append(c.Seats, p)
	}
	for _, d := range r.releases {
		if c := byID[d.class]; c != nil {
			c.Due = append(c.Due, plan.Release{ID: d.id, Seat: d.seat, Interval: d.interval})
		}
	}
	var all []plan.Class
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		all = append(all, *byID[id])
	}
	return all
}

// touched are the seats of a plan, ascending, and the versions that were read.
func (r *run) touched(made plan.Plan) (numbers []int, versions []int64) {
	seats := map[int]bool{}
	for _, s := range made.Serves {
		for _, n := range s.Seats {
			seats[n] = true
		}
	}
	for _, k := range made.Keeps {
		seats[k.Seat] = true
	}
	for _, n := range made.Considered {
		seats[n] = true
	}
	numbers = slices.Sorted(maps.Keys(seats))
	for _, n := range numbers {
		versions = append(versions, r.strips[n].version)
	}
	return numbers, versions
}

// why is what stands in the history of order and booking.
func why(s plan.Serve) string {
	switch {
	case s.Release == 0:
		return "a seat was free"
	case s.Exact:
		return "exactly this interval came free"
	}
	return "seats on the way came free"
}

// write locks what the plan touches, in the one order, sees whether the seats are
// still as they were read, and does what was planned. An order that may not be
// served is remembered and all is planned anew without it.
func (r *run) write(ctx context.Context, tx pgx.Tx, made plan.Plan, did *Did) (map[string][]line.Outcome, error) {
	b := &pgx.Batch{}
	var served, letGoOf, keepFor []int64
	var classes, whys, keepClasses []string
	var counts, seats, letGo, from, to, keep []int
	for _, s := range made.Serves {
		served, classes, whys = append(served, s.Order), append(classes, s.Class), append(whys, why(s))
		counts, seats = append(counts, len(s.Seats)), append(seats, s.Seats...)
		for _, n := range s.LetGo {
			letGoOf, letGo = append(letGoOf, s.Order), append(letGo, n)
		}
	}
	for _, k := range made.Keeps {
		keepFor, keepClasses, keep = append(keepFor, k.Order), append(keepClasses, k.Class), append(keep, k.Seat)
		from, to = append(from, k.From), append(to, k.To)
	}
	moves := 0
	move := func(name string, args ...any) {
		b.Queue(matchSQL[name], append([]any{r.sale}, args...)...)
		moves++
	}
	if len(served) > 0 {
		move("lock-accounts", served)
	}
	if numbers, versions := r.touched(made); len(numbers) > 0 {
		move("still", numbers, versions, r.at)
	}
	if len(served) > 0 {
		move("seat", served, classes, counts, seats, letGoOf, letGo, whys)
	}
	// Whoever has seats kept for it was passed: all rows of queues are locked at once.
	if classes, orders, times := passes(made.Passes); len(orders) > 0 {
		move("passed", classes, orders, times)
	}
	if len(keep) > 0 {
		move("keep", keepFor, keepClasses, keep, from, to)
	}
	tail := 0
	var done []int64
	var results [][]byte
	outcomes := map[string][]line.Outcome{}
	for _, d := range r.releases {
		o := r.outcome(d, made)
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		done, results = append(done, d.id), append(results, raw)
		if r.waiting[d.class] {
			outcomes[d.class] = append(outcomes[d.class], o)
		}
	}
	if len(done) > 0 {
		b.Queue(matchSQL["considered"], r.sale, made.Considered)
		b.Queue(matchSQL["done"], r.sale, done, results)
		tail += 2
	}
	if len(r.newcomers) > 0 {
		var checked []int64
		for _, n := range r.newcomers {
			checked = append(checked, n.Score)
		}
		b.Queue(matchSQL["checked"], r.sale, checked)
		tail++
	}
	res := tx.SendBatch(ctx, b)
	defer res.Close()
	for range moves {
		if _, err := res.Exec(); err != nil {
			return nil, r.refusal(err)
		}
	}
	did.Matched += len(made.Serves)
	for range tail {
		if _, err := res.Exec(); err != nil {
			return nil, err
		}
	}
	if err := res.Close(); err != nil {
		return nil, err
	}
	did.Kept += len(made.Keeps)
	did.Releases += len(done)
	did.Checked += len(r.newcomers)
	return outcomes, nil
}

// refusal is errAnew for what the plan was made in vain by: an order that left, a
// seat that moved. An order that may not be served at all is remembered.
func (r *run) refusal(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case stateRefused:
		if pg.Message == "gone" {
			return errAnew
		}
		order, err := strconv.ParseInt(pg.Detail, 10, 64)
		if err != nil {
			return err
		}
		r.refused[order] = pg.Message
		return errAnew
	case stateTaken, stateAnew:
		return errAnew
	}
	return err
}

// passes counts how often each order was passed in a class: in one gap or more.
func passes(list []plan.Pass) (classes []string, orders []int64, times []int) {
	type pass struct {
		class string
		order int64
	}
	at := map[pass]int{}
	for _, p := range list {
		k := pass{p.Class, p.Order}
		i, ok := at[k]
		if !ok {
			i = len(orders)
			at[k] = i
			classes, orders, times = append(classes, p.Class), append(orders, p.Order), append(times, 0)
		}
		times[i]++
	}
	return classes, orders, times
}

// outcome is what became of a release: of its whole seat, as its gaps were
// offered together.
func (r *run) outcome(d dueRelease, made plan.Plan) line.Outcome {
	o := line.Outcome{Event: d.event, At: d.releasedAt.UTC(), From: d.interval.From, To: d.interval.To}
	for _, g := range plan.Gaps(r.strips[d.seat].seat(d.seat, seat.Moment(r.at))) {
		o.Gaps = append(o.Gaps, [2]int{g.From, g.To})
	}
	for _, s := range made.Serves {
		if slices.Contains(s.Seats, d.seat) {
			o.Served = append(o.Served, line.Served{From: s.From, To: s.To, Quantity: len(s.Seats), Score: r.score(s.Class, s.Interval, s.Order), Exact: s.Exact})
		}
	}
	for _, k := range made.Keeps {
		if k.Seat == d.seat {
			o.Kept = append(o.Kept, r.score(k.Class, k.Interval, k.Order))
		}
	}
	return o
}

func (r *run) score(class string, iv plan.Interval, order int64) int64 {
	for _, o := range r.queues[class][iv] {
		if o.Number == order {
			return o.Score
		}
	}
	return 0
}
