package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// numbers lists what a filter finds, all pages, by the sales' numbers.
func (w *world) numbers(f catalog.Filter) (found []string) {
	w.Helper()
	w.reader.Forget(0) // lists are kept a second
	for range 100 {
		page, next, err := w.reader.List(w.ctx, f)
		if err != nil {
			w.Fatal(err)
		}
		for _, s := range page {
			found = append(found, s.Number)
		}
		if f.After = next; next == "" {
			return found
		}
	}
	w.Fatal("the list has no end")
	return nil
}

func (w *world) wantNumbers(f catalog.Filter, want ...string) {
	w.Helper()
	if got := w.numbers(f); !slices.Equal(got, want) {
		w.Errorf("%+v: found %v, want %v", f, got, want)
	}
}

func number(n string) func(*catalog.Document) { return func(d *catalog.Document) { d.Number = n } }

func shifted(by time.Duration) func(*catalog.Document) {
	return func(d *catalog.Document) {
		for i := range d.Stops {
			for _, at := range []**time.Time{&d.Stops[i].Arrives, &d.Stops[i].Departs} {
				if *at != nil {
					t := (*at).Add(by)
					*at = &t
				}
			}
		}
	}
}

func TestList(t *testing.T) {
	w := setup(t)
	w.create(w.train(number("A")))
	w.create(w.train(number("B"), shifted(time.Hour), func(d *catalog.Document) { d.Stops[2].Board = catalog.CallNo }))
	w.create(w.train(number("C"), shifted(-10*time.Hour), func(d *catalog.Document) { d.State = catalog.Draft }))
	w.create(w.train(number("D"), shifted(2*time.Hour), func(d *catalog.Document) {
		d.Kind, d.Title, d.Stops, d.ServiceDate = catalog.Show, "Metropolis", d.Stops[:2], "2027-01-01"
		d.Classes = d.Classes[1:]
		d.Coaches = d.Coaches[1:]
	}))
	w.wantNumbers(catalog.Filter{}, "A", "B", "D")
	w.wantNumbers(catalog.Filter{Mine: true, Org: org}, "C", "A", "B", "D")
	w.wantNumbers(catalog.Filter{Mine: true, Org: org, Kind: catalog.Show}, "D")
	w.wantNumbers(catalog.Filter{Mine: true, Org: "circus"})
	w.wantNumbers(catalog.Filter{Kind: catalog.Show}, "D")
	w.wantNumbers(catalog.Filter{Date: "2027-01-01"}, "D")
	w.wantNumbers(catalog.Filter{Date: "2027-01-02"})
	w.wantNumbers(catalog.Filter{From: "Jinan"}, "A")
	w.wantNumbers(catalog.Filter{From: "tianjin", To: "JINAN"}, "A", "B")
	w.wantNumbers(catalog.Filter{From: "Jinan", To: "Tianjin"})
	w.wantNumbers(catalog.Filter{To: "Beijing"})
	w.wantNumbers(catalog.Filter{Text: "metro"}, "D")
	w.wantNumbers(catalog.Filter{Text: "qingdao JINAN"}, "A", "B")
	w.wantNumbers(catalog.Filter{Text: "qingdao metropolis"})
	page, _, err := w.reader.List(w.ctx, catalog.Filter{From: "Tianjin", To: "Zibo"})
	if err != nil || page[0].F != 2 || page[0].T != 3 {
		t.Fatalf("%+v %v", page, err)
	}
	view := page[0].Summary(w.ctx, 2, 3, func(context.Context, int64, string, int, int) (int, bool) { return 5, true })
	if p := view.Classes[0].Prices[0]; p.From != "Tianjin" || p.To != "Zibo" || p.Price.Amount != 500 || *view.Classes[1].Left != 5 {
		t.Errorf("%+v", view.Classes)
	}
}

func TestPages(t *testing.T) {
	w := setup(t)
	var want []string
	for i := range 2*catalog.PageSize + 1 {
		n := fmt.Sprint("N", i)
		want = append(want, n)
		// Three leave at each moment: pages split among equals.
		w.create(w.train(number(n), shifted(time.Duration(i/3)*time.Minute)))
	}
	w.wantNumbers(catalog.Filter{}, want...)
}

// Field case 51: after midnight yesterday's train is listed under its service
// day, and among what has not left.
func TestAfterMidnight(t *testing.T) {
	w := setup(t)
	zone, err := time.LoadLocation("America/Toronto")
	if err != nil {
		t.Fatal(err)
	}
	// The departure at 25:10 of yesterday's service day, asked for at 00:30: now
	// is the hour that lets it leave in 40 minutes.
	departs := w.now.Add(40 * time.Minute).In(zone)
	yesterday := departs.AddDate(0, 0, -1).Format(time.DateOnly)
	s := w.create(w.train(number("25:10"), func(d *catalog.Document) {
		d.Timezone, d.ServiceDate = zone.String(), yesterday
		for i := range d.Stops {
			at := departs.Add(time.Duration(i) * time.Hour)
			d.Stops[i].Timezone, d.Stops[i].Departs = zone.String(), &at
			if i > 0 {
				d.Stops[i].Arrives = &at
			}
		}
		d.Stops[4].Departs = nil
	}))
	w.wantNumbers(catalog.Filter{Date: yesterday}, "25:10")
	w.wantNumbers(catalog.Filter{Date: departs.Format(time.DateOnly)})
	w.wantNumbers(catalog.Filter{}, "25:10")
	if err := s.OpenAt(w.now, 1); err != nil {
		t.Errorf("cannot be bought: %v", err)
	}
}

// What has left its first stop can still be had further on, until its last.
func TestUnderWay(t *testing.T) {
	w := setup(t)
	s := w.create(w.train(number("going"), shifted(-26*time.Hour), func(d *catalog.Document) {
		at := w.now.Add(-30 * time.Hour)
		d.OpensAt = &at
	}))
	w.create(w.train(number("gone"), shifted(-30*time.Hour), func(d *catalog.Document) {
		at := w.now.Add(-40 * time.Hour)
		d.OpensAt = &at
	}))
	w.wantNumbers(catalog.Filter{}, "going")
	if err := s.OpenAt(w.now, 1); !problem.Is(err, problem.SaleClosed) {
		t.Errorf("from the first stop: %v", err)
	}
	if err := s.OpenAt(w.now, 4); err != nil {
		t.Errorf("from the fourth stop: %v", err)
	}
}

// A change is seen by another replica within a second, and the still part is
// not read again for it.
func TestFresh(t *testing.T) {
	w := setup(t)
	s := w.create(w.train())
	other := catalog.NewReader(w.store)
	before, err := other.Sale(w.ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.must(fmt.Sprintf(`{"sale":"%d","patch":{"state":"paused"}}`, s.ID))
	start := time.Now()
	for {
		now, err := other.Sale(w.ctx, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State == catalog.Paused {
			if &now.Places[0] != &before.Places[0] {
				t.Error("the places were read again")
			}
			break
		}
		if time.Since(start) > time.Second {
			t.Fatal("not seen after a second")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Many readers cost Postgres a few queries a second; ids that do not exist too.
func TestCrowd(t *testing.T) {
	w := setup(t)
	s := w.create(w.train())
	line := w.line()
	reader := catalog.NewReader(line.store)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range 8 {
		wg.Go(func() {
			for n := 0; time.Since(start) < time.Second; n++ {
				if _, err := reader.Sale(w.ctx, s.ID); err != nil {
					t.Error(err)
				}
				if _, err := reader.Sale(w.ctx, int64(1000+i*100000+n)); !problem.Is(err, problem.NotFound) {
					t.Error(err)
				}
				if _, _, err := reader.List(w.ctx, catalog.Filter{Text: fmt.Sprint(n)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// Two heads, twenty looks for the newest id, one list with its two still parts.
	if n := line.queries.Load(); n > 40 {
		t.Errorf("%d queries in a second of eight busy readers", n)
	}
}

// line is a pool of its own whose queries are counted and which can be cut.
type line struct {
	store   *store.DB
	queries atomic.Int64
	cut     atomic.Bool
	mu      sync.Mutex
	open    []net.Conn
}

func (w *world) line() *line {
	w.Helper()
	l := &line{}
	c, err := pgxpool.ParseConfig(w.db.AppURL)
	if err != nil {
		w.Fatal(err)
	}
	c.MaxConns = 4
	c.ConnConfig.Tracer = l
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.cut.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("cut")}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, conn)
		return conn, err
	}
	pool, err := pgxpool.NewWithConfig(w.ctx, c)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(pool.Close)
	l.store = store.New(pool)
	return l
}

// TraceQueryStart counts.
func (l *line) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	l.queries.Add(1)
	return ctx
}

// TraceQueryEnd does nothing.
func (l *line) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *line) down() {
	l.cut.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.Close()
	}
}

// While Postgres is away sales and lists are what they were.
func TestPostgresAway(t *testing.T) {
	w := setup(t)
	s := w.create(w.train(number("A")))
	line := w.line()
	reader := catalog.NewReader(line.store)
	look := func() {
		t.Helper()
		if got, err := reader.Sale(w.ctx, s.ID); err != nil || got.Title != s.Title {
			t.Fatalf("%v %v", got, err)
		}
		if page, _, err := reader.List(w.ctx, catalog.Filter{}); err != nil || len(page) != 1 {
			t.Fatalf("%v %v", page, err)
		}
	}
	look()
	line.down()
	for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); { // past every copy's time
		look()
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := catalog.NewReader(line.store).Sale(w.ctx, s.ID); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a sale never read: %v", err)
	}
}

// Field case 52: one number that runs twice on one date is two sales, both of
// which can be bought.
func TestOneNumberTwice(t *testing.T) {
	w := setup(t)
	day := w.now.AddDate(0, 0, 2).Format(time.DateOnly)
	at := func(clock string) func(*catalog.Document) {
		start, err := time.Parse(time.DateTime+"-07:00", day+" "+clock+":00+08:00")
		if err != nil {
			t.Fatal(err)
		}
		return func(d *catalog.Document) {
			by := start.Sub(*d.Stops[0].Departs)
			shifted(by)(d)
			d.Number, d.ServiceDate = "K1", day
		}
	}
	early, late := w.create(w.train(at("00:05"))), w.create(w.train(at("23:50")))
	if early.ID == late.ID || early.Number != late.Number || early.ServiceDate != late.ServiceDate {
		t.Fatalf("%+v %+v", early, late)
	}
	w.wantNumbers(catalog.Filter{Date: day}, "K1", "K1")
	for _, s := range []*catalog.Sale{early, late} {
		if err := s.OpenAt(w.now, 1); err != nil {
			t.Errorf("the one of %s: %v", s.DepartsAt, err)
		}
		if _, err := w.db.App.Exec(w.ctx, `SELECT hold_seats($1, 'ann', 'k', '\x00', NULL, NULL, 'first', 1, 4, ARRAY[1], NULL, 1, 1000, $2, '[]', '{}', NULL, 'customer', '')`, s.ID, s.DepartsFrom(1)); err != nil {
			t.Error(err)
		}
		if n := w.count(`SELECT count(*) FROM booking WHERE sale_id = $1 AND state = 'held'`, s.ID); n != 1 {
			t.Errorf("the one of %s: %d holds", s.DepartsAt, n)
		}
	}
}
