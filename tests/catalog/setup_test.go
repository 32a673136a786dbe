// Package catalog_test tries the catalog on a real Postgres.
package catalog_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/clock"
	"handler/function/shared/idempotency"
	"handler/function/shared/problem"
	"handler/function/shared/store"
	"handler/function/tests/harness"
)

// world is a catalog on a database of the test's own.
type world struct {
	*testing.T
	ctx    context.Context
	db     *harness.Database
	store  *store.DB
	reader *catalog.Reader
	rooms  *rooms
	now    time.Time
	keys   atomic.Int64
	// released is what each call about freed seats could see committed: untold rows.
	released []int
}

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, ctx: context.Background(), db: harness.DB(t), now: time.Now()}
	w.store = store.New(w.db.App)
	w.reader = catalog.NewReader(w.store)
	w.rooms = &rooms{made: map[int64][]int64{}}
	return w
}

func (w *world) service() *catalog.Service {
	return catalog.NewService(w.store, w.reader, w.rooms, clock.Func(func() time.Time { return w.now }),
		func(_ context.Context, saleID int64) {
			w.released = append(w.released, w.count(`SELECT count(*) FROM seat_release WHERE sale_id = $1 AND told_at IS NULL`, saleID))
		})
}

// rooms stands in for package room, which stands above the catalog.
type rooms struct {
	made    map[int64][]int64
	patched []catalog.RoomPatch
	resets  int
	fail    error // of the next Attach
}

func (r *rooms) Create(context.Context, catalog.RoomSettings) (int64, error) {
	id := int64(len(r.made) + 1)
	r.made[id] = nil
	return id, nil
}

func (r *rooms) Attach(_ context.Context, roomID, saleID int64) error {
	if err := r.fail; err != nil {
		r.fail = nil
		return err
	}
	for _, s := range r.made[roomID] {
		if s == saleID {
			return nil
		}
	}
	r.made[roomID] = append(r.made[roomID], saleID)
	return nil
}

func (r *rooms) Sales(_ context.Context, roomID int64) ([]int64, error) {
	sales, ok := r.made[roomID]
	if !ok {
		return nil, problem.New(problem.NotFound, "There is no such waiting room.")
	}
	return sales, nil
}

func (r *rooms) Patch(_ context.Context, _ int64, p catalog.RoomPatch) error {
	r.patched = append(r.patched, p)
	return nil
}

func (r *rooms) Reset(context.Context, int64) error { r.resets++; return nil }

// as is who posts in these tests.
const org = "railway"

// post does a request given as JSON, with a key of its own.
func (w *world) post(body string) (map[string]any, error) {
	return w.postAs(catalog.Caller{Account: "anna", Org: org, Key: fmt.Sprint("key-", w.keys.Add(1))}, body)
}

func (w *world) postAs(who catalog.Caller, body string) (map[string]any, error) {
	a, err := w.send(who, body)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(a.Body, &m); err != nil {
		w.Fatal(err)
	}
	return m, nil
}

func (w *world) send(who catalog.Caller, body string) (idempotency.Answer, error) {
	w.Helper()
	var r catalog.Request
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		w.Fatalf("request: %v", err)
	}
	sum := sha256.Sum256([]byte(body))
	who.Hash = sum[:]
	return w.service().Do(w.ctx, who, r, "trace")
}

// must posts what has to work.
func (w *world) must(body string) map[string]any {
	w.Helper()
	m, err := w.post(body)
	if err != nil {
		w.Fatalf("%s\n%v", body, err)
	}
	return m
}

// refused posts what has to be refused with a code, naming a field if one is given.
func (w *world) refused(code problem.Code, field, body string) {
	w.Helper()
	_, err := w.post(body)
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != code {
		w.Fatalf("%s\nwant %s, got %v", body, code, err)
	}
	if field == "" {
		return
	}
	for _, f := range p.Fields {
		if f.Field == field {
			return
		}
	}
	w.Fatalf("%s\nwant field %s, got %v", body, field, err)
}

// train is a document of five stops, leaving in a day, with 8 seats in two
// classes.
func (w *world) train(change ...func(*catalog.Document)) catalog.Document {
	zone, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		w.Fatal(err)
	}
	start := w.now.Add(24 * time.Hour).In(zone).Truncate(time.Second)
	d := catalog.Document{
		Kind: catalog.Train, Title: "Beijing – Qingdao", Number: "G12", ServiceDate: start.Format(time.DateOnly),
		Timezone: "Asia/Shanghai", State: catalog.Open, Currency: "CNY", Gateways: []string{"sandbox"}, Test: true,
		Classes: []catalog.Class{
			{ID: "first", Title: "First", Stock: catalog.Numbered, Fare: catalog.Fare{Kind: catalog.PerLeg, Amounts: []int64{100, 200, 300, 400}}},
			{ID: "second", Title: "Second", Stock: catalog.Numbered, Fare: catalog.Fare{Kind: catalog.Distance, Base: 50, PerKm: 12.5}},
		},
		Coaches: []catalog.Coach{
			{Coach: "1", Class: "first", Seats: []catalog.Seat{{Seat: "1A", Row: 1, Column: "A", Attributes: []string{"window"}}, {Seat: "1C", Row: 1, Column: "C"}}},
			{Coach: "2", Class: "second"},
		},
	}
	for i, name := range []string{"Beijing", "Tianjin", "Jinan", "Zibo", "Qingdao"} {
		at := start.Add(time.Duration(i) * time.Hour)
		d.Stops = append(d.Stops, catalog.Stop{ID: name, Name: name, Timezone: "Asia/Shanghai", Arrives: &at, Departs: &at, Km: float64(i) * 100})
	}
	d.Stops[0].Arrives, d.Stops[4].Departs = nil, nil
	for row := 1; row <= 3; row++ {
		for _, column := range []string{"A", "B"} {
			d.Coaches[1].Seats = append(d.Coaches[1].Seats, catalog.Seat{Seat: fmt.Sprint(row, column), Row: row, Column: column})
		}
	}
	for i := range d.Coaches[1].Seats {
		d.Coaches[1].Seats[i].Seat = fmt.Sprintf("%d%s", d.Coaches[1].Seats[i].Row, d.Coaches[1].Seats[i].Column)
	}
	for _, f := range change {
		f(&d)
	}
	return d
}

// create makes a sale of a document and loads it.
func (w *world) create(d catalog.Document) *catalog.Sale {
	w.Helper()
	return w.load(w.must(w.body(d))["sale"].(string))
}

func (w *world) body(d catalog.Document) string {
	b, err := json.Marshal(map[string]any{"sale": d})
	if err != nil {
		w.Fatal(err)
	}
	return string(b)
}

func (w *world) load(id string) *catalog.Sale {
	w.Helper()
	n, ok := catalog.ParseID(id)
	if !ok {
		w.Fatalf("sale id %q", id)
	}
	s, err := w.reader.Sale(w.ctx, n)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// count asks the database as its owner.
func (w *world) count(sql string, args ...any) (n int) {
	w.Helper()
	if err := w.db.Owner.QueryRow(w.ctx, sql, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}
