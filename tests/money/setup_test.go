// Package money tries paying, the confirm step, refunds and the safety net on a
// real Postgres, with the sandbox gateway in the test's own process.
package money

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/cmd/holdfast/sandboxgw"
	"handler/function/shared/alert"
	"handler/function/shared/audit"
	"handler/function/shared/catalog"
	"handler/function/shared/event"
	"handler/function/shared/id"
	"handler/function/shared/idempotency"
	"handler/function/shared/key"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
	"handler/function/shared/reconcile"
	"handler/function/shared/release"
	"handler/function/shared/sandbox"
	"handler/function/shared/seat"
	"handler/function/shared/standby"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"
	"handler/function/tests/harness"

	"github.com/jackc/pgx/v5"
)

const price = 12900 // of one seat, CAD cents

// world is one test's platform: a database, the sandbox gateway, and the
// payment service behind a webhook address.
type world struct {
	*testing.T
	ctx      context.Context
	db       *harness.Database
	store    *store.DB
	payments *payment.Service
	orders   *standby.Orders
	match    *standby.Matcher
	maps     *seat.Maps
	sales    *catalog.Reader
	alerts   *alert.Board
	box      *outbox.Box
	net      *reconcile.Net
	ids      *id.Maker
	ring     key.Ring
	gateway  *sandboxgw.Server
	client   *sandbox.Client
	bus      *event.Bus
	sale     int64
	keys     atomic.Int64
	hook     string // where webhooks go

	mu       sync.Mutex
	statuses []int // what webhooks were answered
}

type options struct {
	bus    *event.Bus
	db     *store.DB // in place of the database's own, for faults
	faults sandboxgw.Faults
	extend int // seconds
	// gateway stands between the payments and the sandbox.
	gateway func(*sandbox.Client) payment.Gateway
}

// nothing follows a match here: the tests do what comes next themselves.
type nothing struct{}

func (nothing) Seated(context.Context, int64)                             {}
func (nothing) Considered(context.Context, int64, string, []line.Outcome) {}

func setup(t *testing.T, o options) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, ctx: context.Background(), db: harness.DB(t), bus: o.bus}
	w.store = o.db
	if w.store == nil {
		w.store = store.New(w.db.App)
	}
	w.ring, _ = key.Parse("k1:" + strings.Repeat("ab", 32))
	w.ids = id.New(w.ring)
	w.alerts = alert.New(w.store, "")
	w.box = outbox.New(w.store, w.alerts)

	mux := http.NewServeMux()
	platform := httptest.NewServer(mux)
	t.Cleanup(platform.Close)
	var err error
	w.gateway, err = sandboxgw.New(sandboxgw.Config{URL: platform.URL + "/dev/gateway", Platform: platform.URL, Keys: w.ring, Faults: o.faults})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.gateway.Close)
	w.client, err = sandbox.New(platform.URL+"/dev/gateway", w.ring)
	if err != nil {
		t.Fatal(err)
	}
	releases := release.New(w.store, o.bus, w.alerts)
	w.maps = seat.NewMaps(w.store, nil)
	w.sales = catalog.NewReader(w.store)
	w.orders = standby.NewOrders(w.store, w.ids, w.sales, w.maps)
	w.match = standby.NewMatcher(w.store, w.alerts, nothing{})
	var gateway payment.Gateway = w.client
	if o.gateway != nil {
		gateway = o.gateway(w.client)
	}
	w.payments = payment.New(payment.Options{DB: w.store, IDs: w.ids, Gateways: []payment.Gateway{gateway}, Test: true, Bus: o.bus, Alerts: w.alerts,
		Releases: releases, Orders: w.orders})
	w.net = reconcile.New(reconcile.Options{DB: w.store, Payments: w.payments, Outbox: w.box, Idempotency: idempotency.New(w.store), Releases: releases, Bus: o.bus})
	mux.Handle("/dev/gateway/", w.gateway)
	mux.HandleFunc("POST /function/confirm", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status := http.StatusOK
		if _, err := w.payments.Receive(r.Context(), r.URL.Query().Get("gateway"), r.Header, body, time.Now()); err != nil {
			t.Logf("webhook: %v", err)
			status = http.StatusServiceUnavailable
		}
		w.mu.Lock()
		w.statuses = append(w.statuses, status)
		w.mu.Unlock()
		rw.WriteHeader(status)
	})
	w.hook = platform.URL + "/function/confirm?gateway=sandbox"
	w.sale = w.newSale(o.extend)
	return w
}

// newSale is a train of three legs and six seats, 300 s to hold.
func (w *world) newSale(extend int) int64 {
	w.Helper()
	if extend == 0 {
		extend = 300
	}
	var sale int64
	w.scan(&sale, `INSERT INTO sale (org, kind, title, service_date, timezone, state, legs, stops, currency, opens_at, closes_at, departs_at,
		gateways, test, hold_seconds, extend_seconds, account_limit)
		VALUES ('o', 'train', 'Train 15', current_date, 'UTC', 'open', 3, '[]', 'CAD', now() - interval '1 hour', now() + interval '1 hour',
		now() + interval '2 hours', '{sandbox}', true, 300, $1, 6) RETURNING sale_id`, extend)
	w.exec(`INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES ($1, 'economy', 1, 'Economy', 'numbered', '{}')`, sale)
	w.exec(`SELECT seat_create($1, 'economy', 3, '{1,2,3,4,5,6}', false)`, sale)
	w.exec(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name) SELECT $1, n, '3-' || n || 'A', '3', n, 'A' FROM generate_series(1, 6) n`, sale)
	return sale
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Owner.Exec(w.ctx, sql, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) scan(to any, sql string, args ...any) {
	w.Helper()
	if err := w.db.Owner.QueryRow(w.ctx, sql, args...).Scan(to); err != nil {
		w.Fatal(err)
	}
}

func (w *world) count(sql string, args ...any) int {
	w.Helper()
	var n int
	w.scan(&n, sql, args...)
	return n
}

// hold holds seats for all legs and returns the booking's number.
func (w *world) hold(account string, seats ...int) int64 {
	w.Helper()
	var raw []byte
	w.scan(&raw, `SELECT hold_seats($1, $2, $3, 'h', NULL, NULL, 'economy', 1, 3, $4, NULL, $5, $6, now() + interval '2 hours', '[]', '{}', NULL, 'customer', '')`,
		w.sale, account, w.key(), seats, len(seats), price*len(seats))
	var a struct {
		Code   string
		Number int64
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Code != "held" {
		w.Fatalf("hold of %v: %s, %v", seats, raw, err)
	}
	return a.Number
}

func (w *world) key() string { return fmt.Sprintf("key-%d", w.keys.Add(1)) }

func (w *world) request(account string, number int64) payment.Request {
	return payment.Request{Account: account, Booking: w.ids.Booking(w.sale, number), Gateway: "sandbox", Key: w.key(), Hash: []byte("h")}
}

// pay begins a payment.
func (w *world) pay(account string, number int64) payment.Started {
	w.Helper()
	p, _, err := w.payments.Pay(w.ctx, w.request(account, number))
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// act makes something happen at the gateway.
func (w *world) act(reference string, a sandboxgw.Act) {
	w.Helper()
	w.post("/api/payments/"+reference+"/act", a, nil)
}

func (w *world) post(path string, body, answer any) {
	w.Helper()
	b, _ := json.Marshal(body)
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(b))))
	if rec.Code > 299 {
		w.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
	}
	if answer != nil {
		if err := json.Unmarshal(rec.Body.Bytes(), answer); err != nil {
			w.Fatal(err)
		}
	}
}

// webhook posts an event signed by us and returns the status.
func (w *world) webhook(h sandbox.Webhook) int {
	w.Helper()
	body, _ := json.Marshal(h)
	req, _ := http.NewRequest(http.MethodPost, w.hook, strings.NewReader(string(body)))
	req.Header.Set(sandbox.SignatureHeader, sandbox.Sign(w.ring.Sign(), time.Now(), body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// paidEvent is a success of a payment, with an event id of its own.
func paidEvent(id string, p payment.Started) sandbox.Webhook {
	return sandbox.Webhook{ID: id, Type: payment.PaymentSucceeded, Payment: sandbox.WebhookPayment{
		Reference: p.Gateway.Reference, Amount: p.Price.Amount, Currency: p.Price.Currency,
		Metadata: map[string]string{sandbox.MetadataPayment: p.Payment},
	}}
}

// eventually waits for a condition; what is behind it comes from webhooks.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			w.Fatalf("not within 20 s: %s\n%s", what, w.story())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// story is what a failed wait shows.
func (w *world) story() string {
	var s string
	w.scan(&s, `SELECT COALESCE((SELECT string_agg(number || ' ' || state || ' ' || history, E'\n') FROM booking), '') || E'\n' ||
		COALESCE((SELECT string_agg(event_id || ' ' || event_type || ' ' || COALESCE(effect, ''), E'\n') FROM gateway_event), '') || E'\n' ||
		COALESCE((SELECT string_agg(COALESCE(booking::text, 'none') || ' ' || state || ' ' || step || ' ' || COALESCE(outcome, ''), E'\n') FROM payment), '') || E'\n' ||
		COALESCE((SELECT string_agg('order ' || number || ' ' || state || ' ' || step || ' ' || COALESCE(reason, '') || ' ' || history, E'\n') FROM standby_order), '') || E'\n' ||
		COALESCE((SELECT string_agg(kind || ' ' || subject || ' tries ' || tries || COALESCE(' ' || error, ''), E'\n') FROM outbox WHERE done_at IS NULL), '')`)
	return s
}

func (w *world) state(number int64) string {
	w.Helper()
	var s string
	w.scan(&s, `SELECT state FROM booking WHERE sale_id = $1 AND number = $2`, w.sale, number)
	return s
}

func (w *world) becomes(number int64, state string) {
	w.Helper()
	w.eventually(fmt.Sprintf("booking %d %s", number, state), func() bool { return w.state(number) == state })
}

// endHold lets a hold's end be past, and its limit after that.
func (w *world) endHold(number int64, limit time.Duration) {
	w.Helper()
	w.exec(`UPDATE booking SET made_at = now() - interval '1 hour', ends_at = now() - interval '1 second',
		limit_at = now() + $3::interval WHERE sale_id = $1 AND number = $2`, w.sale, number, limit)
	w.exec(`UPDATE seat s SET taken_until = array_fill(b.ends_at, ARRAY[3]) FROM booking b
		WHERE s.sale_id = $1 AND b.sale_id = $1 AND b.number = $2 AND s.number = ANY (b.seats)`, w.sale, number)
}

func (w *world) outbox(kind string, where string) int {
	w.Helper()
	return w.count(`SELECT count(*) FROM outbox WHERE sale_id = $1 AND kind = $2 AND `+where, w.sale, kind)
}

// due makes everything that waits for its time due now, and runs the net.
func (w *world) reconcile() reconcile.Did {
	w.Helper()
	w.exec(`UPDATE outbox SET due_at = now() WHERE done_at IS NULL`)
	w.exec(`UPDATE payment SET ask_at = now() WHERE ask_at IS NOT NULL`)
	w.exec(`UPDATE gateway_event SET due_at = now() WHERE applied_at IS NULL`)
	return w.net.Run(w.ctx)
}

// refunded is what the gateway gave back of a payment, and how often.
func (w *world) refunded(reference string) (amount int64, times int) {
	w.Helper()
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/api/payments/"+reference, nil))
	var p sandbox.Payment
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
		w.Fatal(err)
	}
	return p.Refunded, len(p.Refunds)
}

// check holds the invariants of money and seats, once `match` has seen what came
// free.
func (w *world) check() {
	w.Helper()
	if _, err := w.match.Match(w.ctx, w.sale); err != nil {
		w.Error(err)
	}
	rows, err := w.db.Owner.Query(w.ctx, `SELECT subject || ': captured ' || captured || ', due ' || due FROM money_faults($1, 100)`, w.sale)
	if err != nil {
		w.Fatal(err)
	}
	faults, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(faults) > 0 {
		w.Errorf("money: %v %v", faults, err)
	}
	report, err := audit.Run(w.ctx, w.db.Owner, w.sale, nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range report.Broken {
		w.Errorf("audit: %+v", b)
	}
}
