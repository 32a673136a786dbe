// Package ticket tries sending and checking in on a real Postgres, an SMTP server
// and an SMS provider.
package ticket

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/alert"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/id"
	"handler/function/shared/key"
	"handler/function/shared/mail"
	"handler/function/shared/outbox"
	"handler/function/shared/sms"
	"handler/function/shared/store"
	"handler/function/shared/ticket"
	"handler/function/tests/harness"
)

// world is one test's platform.
type world struct {
	*testing.T
	ctx    context.Context
	db     *harness.Database
	store  *store.DB
	alerts *alert.Board
	box    *outbox.Box
	signer *ticket.Signer
	smtp   *harness.SMTPServer
	sms    *provider
	ids    *id.Maker
	books  *booking.Service
	sales  *catalog.Reader
	sale   int64
	holds  atomic.Int64
}

const departure = "2026-12-24T17:00:00Z"

// setup makes a train of two legs and six seats.
func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, ctx: t.Context(), db: harness.DB(t), smtp: harness.SMTP(t), sms: newProvider(t)}
	w.store = store.New(w.db.App)
	w.alerts = alert.New(w.store, "")
	w.box = outbox.New(w.store, w.alerts)
	w.sales = catalog.NewReader(w.store)
	ring, err := key.Parse("t1:" + strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	if w.signer, err = ticket.NewSigner(ring); err != nil {
		t.Fatal(err)
	}
	w.ids = id.New(ring)
	w.books = booking.New(w.store, w.sales, nil, w.ids)
	stops := `[{"id":"HLFX","name":"Halifax","timezone":"America/Halifax","arrives":null,"departs":"` + departure + `","board":"yes","alight":"no","km":0},
		{"id":"MCTN","name":"Moncton","timezone":"America/Moncton","arrives":null,"departs":null,"board":"yes","alight":"yes","km":100},
		{"id":"MTRL","name":"Montréal","timezone":"America/Toronto","arrives":"2026-12-25T15:03:00Z","departs":null,"board":"no","alight":"yes","km":200}]`
	w.scan(&w.sale, `INSERT INTO sale (org, kind, title, number, service_date, timezone, state, legs, stops, currency, opens_at, closes_at, departs_at,
		gateways, test, account_limit)
		VALUES ('via', 'train', 'Ocean', '15', '2026-12-24', 'America/Toronto', 'open', 2, $1, 'CAD', now() - interval '1 hour', now() + interval '1 hour',
		now() + interval '2 hours', '{sandbox}', true, 100) RETURNING sale_id`, stops)
	w.exec(`INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES ($1, 'economy', 1, 'Economy', 'numbered', '{"kind":"per_leg","amounts":[5000,7900]}')`, w.sale)
	w.exec(`SELECT seat_create($1, 'economy', 2, '{1,2,3,4,5,6}', false)`, w.sale)
	w.exec(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name) SELECT $1, n, '3-' || n || 'A', '3', n, 'A' FROM generate_series(1, 6) n`, w.sale)
	return w
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

// count is a number from Postgres.
func (w *world) count(sql string, args ...any) int {
	w.Helper()
	var n int
	w.scan(&n, sql, args...)
	return n
}

// service is a replica of its own.
func (w *world) service() *ticket.Service {
	w.Helper()
	fonts, err := ticket.Fonts(os.DirFS(filepath.Join(harness.Root(), "functions", "ticket", "static", "fonts")))
	if err != nil {
		w.Fatal(err)
	}
	sender, err := mail.New(w.smtp.URL)
	if err != nil {
		w.Fatal(err)
	}
	phones, err := sms.New(w.sms.url)
	if err != nil {
		w.Fatal(err)
	}
	s, err := ticket.New(ticket.Options{
		DB: w.store, Bookings: w.books, Sales: w.sales, Box: w.box, Alerts: w.alerts, Signer: w.signer, Fonts: fonts,
		Mail: sender, SMS: phones, PublicURL: "https://tickets.example.org",
	})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// book makes a paid booking, its outbox row included, and returns its number.
func (w *world) book(passengers []booking.Passenger, contact booking.Contact, seats ...int) int64 {
	w.Helper()
	var raw []byte
	w.scan(&raw, `SELECT hold_seats($1, $2, $3, 'h', NULL, NULL, 'economy', 1, 2, $4, NULL, $5, $6, now() + interval '2 hours', $7, $8, NULL, 'customer', '')`,
		w.sale, "ana", string(rune('a'+w.holds.Add(1))), seats, len(seats), 12900*len(seats), passengers, contact)
	var a struct {
		Code   string
		Number int64
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Code != "held" {
		w.Fatalf("hold of %v: %s, %v", seats, raw, err)
	}
	w.exec(`SELECT seat_book($1, $2, $3, 1, 2)`, w.sale, a.Number, seats)
	w.exec(`UPDATE booking SET state = 'booked' WHERE sale_id = $1 AND number = $2`, w.sale, a.Number)
	w.exec(`INSERT INTO outbox (sale_id, kind, subject, payload) VALUES ($1, 'ticket', $2::bigint::text, jsonb_build_object('booking', $2::bigint))`, w.sale, a.Number)
	return a.Number
}

// due makes every undone row due now, as if its wait were over.
func (w *world) due() {
	w.Helper()
	w.exec(`UPDATE outbox SET due_at = now() - interval '1 second' WHERE done_at IS NULL`)
}

// provider takes SMS.
type provider struct {
	url string

	mu    sync.Mutex
	sent  []map[string]string
	fails bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		m := map[string]string{}
		_ = json.Unmarshal(b, &m)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.fails {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		p.sent = append(p.sent, m)
		rw.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

func (p *provider) messages() []map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]map[string]string(nil), p.sent...)
}

func (p *provider) fail(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = yes
}

// eventually waits until it is so; what is waited for takes milliseconds.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	w.Fatalf("it never came: %s", what)
}
