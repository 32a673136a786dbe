package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/cmd/holdfast/platform"
	"handler/function/cmd/holdfast/proc"
	"handler/function/shared/account"
	"handler/function/shared/catalog"
	"handler/function/shared/key"
	"handler/function/shared/room"
)

// Sizes of what is measured on.
const (
	seatsASale = 8_000 // of hold: enough for a turn of two seats each
	class      = "standard"
	party      = 2
)

// PoolSize is how many connections each side has: a replica's (shared/store).
const PoolSize = 4

// Ground is the platform that a benchmark stands on: services and schema, with
// every function inside this process and without triggers.
type Ground struct {
	Platform *platform.Running
	// Serve starts a function, or "echo", with the template's server as a
	// process of its own.
	Serve func(name string) (*Server, error)

	serial *atomic.Int64
}

// Server is a function's process.
type Server struct {
	URL   string
	PID   int
	Close func()
}

// tree is the processor time of this process with everything below it: the
// functions, Postgres with its backends, Redis, and NATS.
func tree() float64 { return proc.Tree(os.Getpid()) }

// call calls a function's Handle and checks the status of its answer.
func call(ctx context.Context, name, method, query string, body []byte, h http.Header, want int) ([]byte, error) {
	f := platform.Functions[name]
	if f == nil {
		return nil, fmt.Errorf("there is no function %s", name)
	}
	if h == nil {
		h = http.Header{}
	}
	req := handler.Request{Method: method, QueryString: query, Body: body, Header: h}
	req.WithContext(ctx)
	res, err := f(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if res.StatusCode != want {
		return nil, fmt.Errorf("%s answered %d: %.300s", name, res.StatusCode, res.Body)
	}
	return res.Body, nil
}

func (g Ground) ring(name string) (key.Ring, error) {
	file, err := os.ReadFile(filepath.Join(g.Platform.Secrets, name))
	if err != nil {
		return key.Ring{}, err
	}
	return key.Parse(string(file))
}

// tokens makes account tokens for n accounts nobody has used.
func (g Ground) tokens(n int) (accounts, tokens []string, err error) {
	ring, err := g.ring("account-key")
	if err != nil {
		return nil, nil, err
	}
	first := g.serial.Add(int64(n)) - int64(n)
	for i := range int64(n) {
		name := fmt.Sprintf("bench-%09d", first+i)
		token, _, err := account.Issue(ring, "", account.Account{ID: name}, time.Now(), time.Hour)
		if err != nil {
			return nil, nil, err
		}
		accounts, tokens = append(accounts, name), append(tokens, token)
	}
	return accounts, tokens, nil
}

// made is a sale made for a turn.
type made struct {
	id, roomID int64
	sale, room string
	names      []string // of its seats, in layout order
}

// makeSale makes an open screening with one class, by the catalog function. With
// a draw the room's draw is open that long from now; with none it admits.
func (g Ground) makeSale(ctx context.Context, seats int, draw time.Duration) (made, error) {
	return g.makeRoute(ctx, seats, 1, party, draw)
}

// makeRoute is makeSale with more legs: of more than one it is a train. limit is
// how many seats an account may have.
func (g Ground) makeRoute(ctx context.Context, seats, legs, limit int, draw time.Duration) (made, error) {
	opens, departs := time.Now().Add(-time.Second).UTC(), time.Now().Add(48*time.Hour).UTC()
	ends := departs.Add(2 * time.Hour)
	seconds := int(draw / time.Second)
	d := catalog.Document{
		Kind: catalog.Show, Title: "Benchmark", Number: "1", ServiceDate: departs.Format(time.DateOnly), Timezone: "UTC",
		State: catalog.Open, Currency: "CAD", OpensAt: &opens, Gateways: []string{"sandbox"}, Test: true,
		BookingLimit: &limit, AccountLimit: &limit,
		Stops: []catalog.Stop{
			{ID: "0", Name: "Doors", Timezone: "UTC", Departs: &departs},
			{ID: "1", Name: "End", Timezone: "UTC", Arrives: &ends},
		},
		Classes: []catalog.Class{{ID: class, Title: "Standard", Stock: catalog.Numbered, Fare: catalog.Fare{Kind: catalog.PerLeg, Amounts: []int64{2500}}}},
		Room:    &catalog.RoomWish{RoomSettings: catalog.RoomSettings{DrawOpensAt: &opens, DrawSeconds: &seconds}},
	}
	if legs > 1 {
		d.Kind = catalog.Train
	}
	for leg := 1; leg < legs; leg++ { // an hour from stop to stop
		at := departs.Add(time.Duration(leg) * time.Hour)
		ends = at.Add(time.Hour)
		d.Stops = slices.Insert(d.Stops, leg, catalog.Stop{
			ID: strconv.Itoa(leg), Name: "Stop " + strconv.Itoa(leg), Timezone: "UTC", Arrives: &at, Departs: &at,
		})
		d.Stops[leg+1].ID, d.Stops[leg+1].Arrives = strconv.Itoa(leg+1), &ends
		d.Classes[0].Fare.Amounts = append(d.Classes[0].Fare.Amounts, 2500)
	}
	var m made
	for n := range seats {
		if n%100 == 0 {
			d.Coaches = append(d.Coaches, catalog.Coach{Coach: strconv.Itoa(1 + n/100), Class: class})
		}
		c := &d.Coaches[len(d.Coaches)-1]
		s := catalog.Seat{Seat: fmt.Sprintf("%d%c", 1+len(c.Seats)/10, 'A'+len(c.Seats)%10), Row: 1 + len(c.Seats)/10, Column: string(rune('A' + len(c.Seats)%10))}
		c.Seats = append(c.Seats, s)
		m.names = append(m.names, catalog.SeatPlace{Coach: c.Coach, Seat: s.Seat}.Name())
	}
	body, err := json.Marshal(map[string]any{"sale": d})
	if err != nil {
		return m, err
	}
	ring, err := g.ring("account-key")
	if err != nil {
		return m, err
	}
	token, _, err := account.Issue(ring, "", account.Account{ID: "bench-organiser", Role: account.Organiser, Org: "bench"}, time.Now(), time.Hour)
	if err != nil {
		return m, err
	}
	auth := headers("Authorization", "Bearer "+token, "Idempotency-Key", fmt.Sprintf("bench-sale-%d", g.serial.Add(1)))
	answer, err := call(ctx, "catalog", http.MethodPost, "", body, auth, http.StatusCreated)
	if err != nil { // a machine that is busy with other things may need a second try
		if answer, err = call(ctx, "catalog", http.MethodPost, "", body, auth, http.StatusCreated); err != nil {
			return m, err
		}
	}
	var ids struct {
		Sale string `json:"sale"`
		Room string `json:"room"`
	}
	if err := json.Unmarshal(answer, &ids); err != nil {
		return m, err
	}
	m.sale, m.room = ids.Sale, ids.Room
	if m.id, err = strconv.ParseInt(ids.Sale, 10, 64); err != nil {
		return m, err
	}
	m.roomID, err = strconv.ParseInt(ids.Room, 10, 64)
	return m, err
}

// admits signs an Admit-Token for each account, as join-room does.
func (g Ground) admits(m made, accounts []string) ([]string, error) {
	ring, err := g.ring("room-key")
	if err != nil {
		return nil, err
	}
	t := room.NewTokens(ring, nil)
	now := time.Now()
	list := make([]string, len(accounts))
	for i, a := range accounts {
		list[i], err = t.IssueAdmit(room.Admit{
			Room: m.roomID, Generation: 1, Account: a, Admission: int64(i + 1), For: room.ForHold,
			Issued: now, Ends: now.Add(time.Hour),
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// owner is a pool of the schema's owner, as large as a replica's: the bare
// driver writes seats without our functions, which only the owner may.
func (g Ground) owner(ctx context.Context) (*pgxpool.Pool, error) {
	conf, err := pgxpool.ParseConfig(g.Platform.PostgresURL)
	if err != nil {
		return nil, err
	}
	conf.MaxConns = PoolSize
	return pgxpool.NewWithConfig(ctx, conf)
}

// safe refuses a Postgres that could lose what it has acknowledged.
func safe(ctx context.Context, q *pgxpool.Pool) error {
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var v string
		if err := q.QueryRow(ctx, "SELECT current_setting($1)", setting).Scan(&v); err != nil {
			return err
		}
		if v != "on" {
			return fmt.Errorf("Postgres runs with %s = %s: a benchmark needs its safe settings", setting, v)
		}
	}
	return nil
}

// vacuum settles the tables before a turn, so that no turn pays for another's
// dead rows.
func vacuum(ctx context.Context, q *pgxpool.Pool) error {
	for _, s := range []string{"VACUUM ANALYZE seat", "VACUUM ANALYZE booking", "CHECKPOINT"} {
		if _, err := q.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// pairs is a random order of neighbouring seats, by number (from 1).
func pairs(seats int) [][]int32 {
	list := make([][]int32, seats/party)
	for i := range list {
		list[i] = []int32{int32(party*i + 1), int32(party*i + 2)}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func headers(kv ...string) http.Header {
	h := make(http.Header, len(kv)/2)
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

// bare is what every design must do to move seats: one batch, one round trip,
// with the condition in the UPDATE and the booking beside it.
func bare(ctx context.Context, pool *pgxpool.Pool, update string, args []any, insert []any) error {
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue(update, args...)
	b.Queue(insertBooking, insert...)
	b.Queue("COMMIT")
	res := pool.SendBatch(ctx, &b)
	defer res.Close()
	if _, err := res.Exec(); err != nil {
		return err
	}
	tag, err := res.Exec()
	if err != nil {
		return err
	}
	if tag.RowsAffected() != party {
		return fmt.Errorf("%d of %d seats were moved", tag.RowsAffected(), party)
	}
	if _, err := res.Exec(); err != nil {
		return err
	}
	_, err = res.Exec()
	return err
}

const (
	bareHold = `UPDATE seat
SET taken_until[$3:$4] = array_fill($5::timestamptz, ARRAY[$4::int - $3::int + 1]),
    taken_by[$3:$4] = array_fill($6::bigint, ARRAY[$4::int - $3::int + 1])
WHERE sale_id = $1 AND number = ANY ($2::int[]) AND now() >= ALL (taken_until[$3:$4])`

	bareBook = `UPDATE seat
SET taken_until[$3:$4] = array_fill('infinity'::timestamptz, ARRAY[$4::int - $3::int + 1])
WHERE sale_id = $1 AND number = ANY ($2::int[]) AND $5::bigint = ALL (taken_by[$3:$4]) AND now() < ALL (taken_until[$3:$4])`

	insertBooking = `INSERT INTO booking (sale_id, number, account, admission, class, leg_from, leg_to, seats, quantity, state,
    amount, currency, made_at, ends_at, limit_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'CAD', now(), $12, $12)`
)

// NewGround makes the ground of a benchmark.
func NewGround(p *platform.Running, serve func(name string) (*Server, error)) Ground {
	return Ground{Platform: p, Serve: serve, serial: new(atomic.Int64)}
}
