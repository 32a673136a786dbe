// Package chaos lets eight clients do a hundred thousand random things to one
// sale while functions die, messages are dropped and Redis is wiped, and then
// looks at what is left: the invariants, the gateway's books, and every seat's
// history (package model).
package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/alert"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/clock"
	"handler/function/shared/event"
	"handler/function/shared/fn"
	"handler/function/shared/id"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
	"handler/function/shared/queue"
	"handler/function/shared/reconcile"
	"handler/function/shared/release"
	"handler/function/shared/sandbox"
	"handler/function/shared/standby"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// The sale: a train of six legs, two classes, 240 seats before any is added.
const (
	legs         = 6
	firstSeats   = 40
	secondSeats  = 200
	rowSeats     = 4
	coachSeats   = 40
	accountLimit = 5
	bookingLimit = 4
	longestHold  = 60  // seconds
	holdOps      = 900 // operations of all clients that a hold lasts
	mostAdded    = 15  // coaches, of eight seats each
)

var classes = []string{"first", "second"}

// fares are those of one leg of one seat.
var fares = map[string]int64{"first": 800, "second": 500}

// world is the platform in the test's process: two replicas of every function as
// package fn wires them, on real servers, with the sandbox gateway in between.
type world struct {
	*testing.T
	ctx      context.Context
	services *harness.Services
	gateway  *sandboxgw.Server
	till     *till
	replicas []*replica
	postman  *outbox.Box
	sale     int64
	fault    fault

	// gate is held by whoever is at work, and taken whole to look while nobody is.
	gate   sync.RWMutex
	isShut bool
	spans  spans
	deaf   atomic.Int64 // no nudge is heard before this moment
	keys   atomic.Int64
	added  atomic.Int64 // coaches
	seats  atomic.Int64 // of the sale
	hot    hotSeats
	hold   int // seconds, as the sale has it

	mailed sync.Map // mail → true
}

// replica is one process of each function.
type replica struct {
	app       *fn.App
	db        *store.DB
	redis     *queue.Client
	bus       *event.Bus
	ids       *id.Maker
	sales     *catalog.Reader
	catalog   *catalog.Service
	bookings  *booking.Service
	orders    *standby.Orders
	matcher   *standby.Matcher
	lines     *line.Lines
	releases  *release.Service
	payments  *payment.Service
	exchanges *payment.Exchanges
	alerts    *alert.Board
	net       *reconcile.Net
}

// must is what a wiring function of fn gives.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (w *world) newReplica(gateways ...payment.Gateway) *replica {
	app := fn.NewApp(fn.Config{Secrets: w.services.Secrets, Test: true, Pool: 8})
	r := &replica{app: app, db: must(app.DB()), redis: must(app.Redis()), bus: must(app.Bus()), ids: must(app.IDs()), sales: must(app.Sales()),
		bookings: must(app.Bookings()), orders: must(app.Orders()), matcher: must(app.Matcher()), lines: must(app.Lines()),
		releases: must(app.Releases()), alerts: must(app.Alerts())}
	// Those that call a gateway are made as fn makes them, but for the gateway: the
	// till lets them die between two of its answers.
	r.payments = payment.New(payment.Options{DB: r.db, IDs: r.ids, Gateways: gateways, Test: true, Bus: r.bus, Alerts: r.alerts,
		Releases: r.releases, Orders: r.orders})
	r.exchanges = payment.NewExchanges(r.payments, r.sales, must(app.Maps()))
	r.net = reconcile.New(reconcile.Options{DB: r.db, Payments: r.payments, Outbox: must(app.Outbox()), Idempotency: must(app.Idempotency()),
		Releases: r.releases, Lines: r.lines, Bus: r.bus, Redis: r.redis})
	r.catalog = catalog.NewService(r.db, r.sales, nil, clock.System, r.releases.Committed)
	w.Cleanup(func() {
		r.bus.Close()
		_ = r.redis.Close()
		r.db.Close()
	})
	return r
}

func newWorld(t *testing.T, f fault) *world {
	t.Helper()
	// What the product says of the trouble we make would be a hundred thousand
	// lines.
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })

	w := &world{T: t, ctx: context.Background(), services: harness.New(t), fault: f}
	mux := http.NewServeMux()
	platform := httptest.NewServer(mux)
	t.Cleanup(platform.Close)
	ring := must(fn.NewApp(fn.Config{Secrets: w.services.Secrets}).Keys("sandbox-key"))
	w.gateway = must(sandboxgw.New(sandboxgw.Config{URL: platform.URL + "/dev/gateway", Platform: platform.URL, Keys: ring}))
	t.Cleanup(w.gateway.Close)
	w.till = &till{Client: must(sandbox.New(platform.URL+"/dev/gateway", ring)), world: w}
	for range 2 {
		w.replicas = append(w.replicas, w.newReplica(w.till))
	}
	t.Cleanup(func() { // before the gateway is closed, which waits for its webhooks
		if w.isShut {
			w.open()
		}
	})
	w.postman = outbox.New(w.replicas[0].db, w.replicas[0].alerts)
	mux.Handle("/dev/gateway/", w.gateway)
	mux.HandleFunc("POST /function/confirm", w.webhook)
	w.newSale()
	for _, e := range f.edits {
		var def string
		w.scan(&def, `SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = $1`, e.function)
		if !strings.Contains(def, e.old) {
			w.Fatalf("%s has no %q any more", e.function, e.old)
		}
		w.exec(strings.ReplaceAll(def, e.old, e.fresh))
	}
	return w
}

func (w *world) newSale() {
	stops := make([]string, legs+1)
	for i := range stops {
		stops[i] = fmt.Sprintf(`{"id":"%d","name":"Stop %d","timezone":"UTC","arrives":null,"departs":null,"board":"yes","alight":"yes","km":%d}`, i, i, i)
	}
	w.scan(&w.sale, `INSERT INTO sale (org, kind, title, service_date, timezone, state, legs, stops, currency, opens_at, closes_at, departs_at,
			gateways, test, hold_seconds, extend_seconds, booking_limit, account_limit)
		VALUES ('o', 'train', 'Train 15', '2026-12-24', 'UTC', 'open', $1, $2, 'CAD', now() - interval '1 hour', now() + interval '1 day',
			now() + interval '2 days', '{sandbox}', true, $3, $4, $5, $6) RETURNING sale_id`,
		legs, "["+strings.Join(stops, ",")+"]", longestHold, longestHold/2, bookingLimit, accountLimit)
	w.hold = longestHold
	next := 1
	for i, class := range classes {
		n := map[string]int{"first": firstSeats, "second": secondSeats}[class]
		amounts := strings.TrimSuffix(strings.Repeat(strconv.FormatInt(fares[class], 10)+",", legs), ",")
		w.exec(`INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES ($1, $2, $3, $2, 'numbered', $4)`,
			w.sale, class, i, `{"kind":"per_leg","amounts":[`+amounts+`]}`)
		w.exec(`SELECT seat_create($1, $2, $3, (SELECT array_agg(n) FROM generate_series($4::integer, $5::integer) n), false)`, w.sale, class, legs, next, next+n-1)
		next += n
	}
	w.exec(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name)
		SELECT $1, n, (n - 1) / $3 + 1 || '-' || (n - 1) % $3 / $4 + 1 || chr(65 + (n - 1) % $4), ((n - 1) / $3 + 1)::text, (n - 1) % $3 / $4 + 1, chr(65 + (n - 1) % $4)
		FROM generate_series(1, $2) n`, w.sale, next-1, coachSeats, rowSeats)
	w.seats.Store(int64(next - 1))
}

// holdFor makes holds as long as so many operations take: many end unpaid, and most
// of what is paid for is paid in time, however busy the machine is.
func (w *world) holdFor(opsPerSecond float64) {
	w.hold = max(2, min(longestHold, int(holdOps/opsPerSecond)))
	w.exec(`UPDATE sale SET hold_seconds = $2, extend_seconds = ($2 + 1) / 2 WHERE sale_id = $1`, w.sale, w.hold)
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.services.DB.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) scan(to any, sql string, args ...any) {
	w.Helper()
	if err := w.services.DB.Owner.QueryRow(w.ctx, sql, args...).Scan(to); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// read reads rows as the owner.
func read[T any](w *world, row pgx.RowToFunc[T], sql string, args ...any) []T {
	w.Helper()
	rows, err := w.services.DB.Owner.Query(w.ctx, sql, args...)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, row)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return all
}

// now is the moment in microseconds, as the database counts it: both are on one
// machine and read the same clock.
func now() int64 { return time.Now().UnixMicro() }

// span is when something was at work. One that died may still be at it in the
// database until unsure; it touches the bookings of its account alone, or of
// anybody where that is empty.
type span struct {
	from, to, unsure int64
	account          string
}

// spans are those of everybody since the last quiet moment.
type spans struct {
	mu  sync.Mutex
	all []span
}

func (s *spans) add(sp span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sp)
}

func (s *spans) take() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// unknown is the end of what may go on until the next quiet moment.
const unknown = int64(1) << 62

// work runs something that may change the sale, inside the gate, and notes when.
// Of what failed nobody knows when it ends: of a client's operation until the next
// quiet moment, of others until no transaction is left that is as old.
func (w *world) work(account string, do func() error) span {
	w.gate.RLock()
	defer w.gate.RUnlock()
	sp := span{from: now(), account: account}
	err := do()
	sp.to = now() + 1
	sp.unsure = sp.to
	switch {
	case uncertain(err) && account != "":
		sp.unsure = unknown
	case uncertain(err):
		sp.unsure = w.settled()
	}
	w.spans.add(sp)
	return sp
}

// straggler is how long a statement may take from a dead caller's socket into a
// transaction.
const straggler = 1_000_000

// settled waits until every transaction has ended that is at work now.
func (w *world) settled() int64 {
	began := time.Now()
	for {
		var busy bool
		err := w.services.DB.Owner.QueryRow(w.ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'holdfast_app' AND xact_start <= $1)`, began).Scan(&busy)
		if err != nil {
			return unknown
		}
		if !busy {
			return now() + straggler
		}
		time.Sleep(time.Millisecond)
	}
}

// fate ends an operation at a chosen point: after so many answers of the gateway,
// with nothing of it written.
type fate struct {
	cancel context.CancelFunc
	left   atomic.Int32
}

type fateKey struct{}

// fated is a context that is cut: at a moment, or after an answer of the gateway.
func fated(ctx context.Context, rng *rand.Rand) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	f := &fate{cancel: cancel}
	if rng.IntN(2) == 0 {
		t := time.AfterFunc(time.Duration(rng.IntN(8000))*time.Microsecond, cancel)
		return ctx, func() { t.Stop(); cancel() }
	}
	f.left.Store(1 + rng.Int32N(2))
	return context.WithValue(ctx, fateKey{}, f), cancel
}

// answered is called when the gateway has answered.
func answered(ctx context.Context) error {
	if f, ok := ctx.Value(fateKey{}).(*fate); ok && f.left.Add(-1) == 0 {
		f.cancel()
		return context.Canceled
	}
	return nil
}

// till is the sandbox as the functions call it. It remembers every payment that
// was asked for, by its key, so that the gateway can be asked about all of them.
type till struct {
	*sandbox.Client
	world *world

	mu   sync.Mutex
	keys []string
}

func (t *till) asked(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = append(t.keys, key)
}

// Create implements payment.Gateway.
func (t *till) Create(ctx context.Context, o payment.Order) (payment.Charge, error) {
	t.asked(o.Key)
	c, err := t.Client.Create(ctx, o)
	return c, errors.Join(err, answered(ctx))
}

// Authorise implements payment.Gateway.
func (t *till) Authorise(ctx context.Context, o payment.Order) (payment.Charge, error) {
	t.asked(o.Key)
	c, err := t.Client.Authorise(ctx, o)
	return c, errors.Join(err, answered(ctx))
}

// Capture implements payment.Gateway.
func (t *till) Capture(ctx context.Context, reference string, amount int64, key string) (payment.Charge, error) {
	c, err := t.Client.Capture(ctx, reference, amount, key)
	if err == nil && t.world.fault.chargeTwice {
		t.chargeAgain(c, key)
	}
	return c, errors.Join(err, answered(ctx))
}

// chargeAgain is a planted fault: the same sum is taken once more.
func (t *till) chargeAgain(c payment.Charge, key string) {
	key += "-again"
	t.asked(key)
	again, err := t.Client.Create(t.world.ctx, payment.Order{Key: key, Payment: c.Payment, Amount: c.Amount})
	if err == nil {
		_ = t.world.act(again.Reference, sandboxgw.Act{Do: "succeed", Silent: true})
	}
}

// Cancel implements payment.Gateway.
func (t *till) Cancel(ctx context.Context, reference, key string) (payment.Charge, error) {
	c, err := t.Client.Cancel(ctx, reference, key)
	return c, errors.Join(err, answered(ctx))
}

// act is what the payer or the bank does.
func (w *world) act(reference string, a sandboxgw.Act) error {
	return w.atGateway(http.MethodPost, "/api/payments/"+reference+"/act", a, nil)
}

// atGateway calls the sandbox as its own page does.
func (w *world) atGateway(method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(string(b))))
	if rec.Code == http.StatusNotFound {
		return payment.ErrUnknown
	}
	if rec.Code > 299 {
		return fmt.Errorf("%s: %d %s", path, rec.Code, rec.Body)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(rec.Body.Bytes(), answer)
}

// webhook is the function confirm. Some of its calls die.
func (w *world) webhook(rw http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	status := http.StatusOK
	w.work("", func() error {
		ctx := w.ctx
		if rng.IntN(1000) < cutRuns {
			var cancel context.CancelFunc
			ctx, cancel = fated(ctx, rng)
			defer cancel()
		}
		got, err := w.replicas[rng.IntN(len(w.replicas))].payments.Receive(ctx, req.URL.Query().Get("gateway"), req.Header, body, time.Now())
		if err != nil {
			status = http.StatusServiceUnavailable
		} else if strings.HasPrefix(got.Effect, "failed") {
			err = errors.New(got.Effect)
		}
		return err
	})
	rw.WriteHeader(status)
}

// hotSeats are seats that came free a moment ago, as far as clients know: those
// that many want.
type hotSeats struct {
	mu   sync.Mutex
	ring [64]int
	n    int
}

func (h *hotSeats) add(seats ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range seats {
		h.ring[h.n%len(h.ring)] = s
		h.n++
	}
}

func (h *hotSeats) pick(rng *rand.Rand) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == 0 {
		return 0
	}
	return h.ring[rng.IntN(min(h.n, len(h.ring)))]
}
