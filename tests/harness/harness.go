// Package harness gives tests real services. Nothing has to be started before
// `go test ./tests/...`: a test binary starts one Postgres when a test first
// asks for it and everything ends with the binary, however it ends. Each test
// that asks gets a database, a Redis and a NATS server of its own, so tests may
// run in parallel, empty Redis or sweep every sale.
//
// Postgres runs without fsync here: tests look at rules, not at loss of power.
// Benchmarks and `holdfast rush` start a platform of their own with safe settings.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"handler/function/cmd/holdfast/services"
	"handler/function/migrations"
)

// Root is the folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Dir is a folder for this test binary, gone after it. Other users (Postgres is
// not run as root) may pass it.
var Dir = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "holdfast-test-")
	if err != nil {
		panic(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	remover(dir)
	return dir
})

// remover is a child that waits for this process to end, in whatever way, and
// then removes the folder, once the servers in it (which end with us by signal)
// have let go of it. Its output is /dev/null: `go test` waits for whoever holds its.
func remover(dir string) {
	cmd := exec.Command("/bin/sh", "-c", `trap '' INT TERM HUP; cat >/dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do
	[ -e "$1/postgres/data/postmaster.pid" ] || break
	sleep 0.5
done
[ -e "$1/postgres/data/postmaster.pid" ] && kill -9 "$(head -n1 "$1/postgres/data/postmaster.pid")"
sleep 0.2
rm -rf "$1"`, "sh", dir)
	if _, err := cmd.StdinPipe(); err != nil {
		panic(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	// The pipe is closed by the kernel at our end. Until then this keeps the
	// command in use: the garbage collector closes a pipe that nothing refers to.
	go func() { _ = cmd.Wait() }()
}

// server is the one Postgres of this test binary, its database migrated: the
// template of every test's database.
var server = sync.OnceValues(func() (*services.Postgres, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p, err := services.StartPostgres(ctx, services.PostgresOptions{
		Dir: filepath.Join(Dir(), "postgres"), Unsafe: true, Connections: 400,
	})
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, p.OwnerURL("")); err != nil {
		return nil, err
	}
	return p, nil
})

// Server is the Postgres server that this test binary shares: for tests of the
// server itself. Use DB otherwise.
func Server(t testing.TB) *services.Postgres {
	t.Helper()
	p, err := server()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Database is a migrated database of one test.
type Database struct {
	Name     string
	OwnerURL string        // the role that owns the schema, may do everything
	AppURL   string        // the application's role, may do what functions may
	Owner    *pgxpool.Pool // made at the first test's wish, closed after it
	App      *pgxpool.Pool
}

var databases atomic.Int64

// making keeps two copies of the template apart: it may have no connection
// meanwhile, and copying twice at once gains nothing.
var making sync.Mutex

// DB makes a database of this test's own from the migrated one (some tens of
// milliseconds) and drops it afterwards.
func DB(t testing.TB) *Database {
	t.Helper()
	p := Server(t)
	ctx := context.Background()
	name := fmt.Sprintf("t%d", databases.Add(1))
	admin := func(sql string) error {
		c, err := pgx.Connect(ctx, p.OwnerURL("postgres"))
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		_, err = c.Exec(ctx, sql)
		return err
	}
	making.Lock()
	err := admin(`CREATE DATABASE ` + name + ` TEMPLATE ` + services.Database)
	making.Unlock()
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
	d := &Database{Name: name, OwnerURL: p.OwnerURL(name), AppURL: p.AppURL(name)}
	d.Owner, d.App = pool(t, d.OwnerURL), pool(t, d.AppURL)
	// Cleanups run last in, first out: the pools are closed before this.
	t.Cleanup(func() {
		d.Owner.Close()
		d.App.Close()
		if err := admin(`DROP DATABASE ` + name + ` WITH (FORCE)`); err != nil {
			t.Logf("drop the database: %v", err)
		}
	})
	return d
}

// OpenSale is an open sale of a test: one class "second" of numbered seats, in
// rows of four of coach 1, on legs legs (stops 0 to legs) at 5.00 CAD a leg.
func (d *Database) OpenSale(t testing.TB, legs, seats int) (sale int64) {
	t.Helper()
	stops, amounts := make([]string, legs+1), make([]string, legs)
	for i := range stops {
		stops[i] = fmt.Sprintf(`{"id":"%d","name":"Stop %d","timezone":"UTC","arrives":null,"departs":null,"board":"yes","alight":"yes","km":%d}`, i, i, i)
	}
	for i := range amounts {
		amounts[i] = "500"
	}
	ctx := context.Background()
	err := d.Owner.QueryRow(ctx, `INSERT INTO sale (org, kind, title, service_date, timezone, state, legs, stops, currency, opens_at, closes_at, departs_at, gateways, test)
		VALUES ('o', 'train', 'T', '2026-12-24', 'UTC', 'open', $1, $2, 'CAD', now() - interval '1 hour', now() + interval '1 day', now() + interval '2 days', '{sandbox}', true)
		RETURNING sale_id`, legs, "["+strings.Join(stops, ",")+"]").Scan(&sale)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Owner.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES ($1, 'second', 0, 'Second', 'numbered', $2)`,
		sale, `{"kind":"per_leg","amounts":[`+strings.Join(amounts, ",")+`]}`)
	exec(`SELECT seat_create($1, 'second', $2, (SELECT array_agg(n) FROM generate_series(1, $3) n), false)`, sale, legs, seats)
	exec(`INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name)
		SELECT $1, n, '1-' || n, '1', (n - 1) / 4, chr(65 + (n - 1) % 4) FROM generate_series(1, $2) n`, sale, seats)
	return sale
}

// QueueOrder puts a waiting standby order of an account, for quantity seats of one
// class on legs from..to, straight into its queue, without a payment. It returns
// the order's number.
func (d *Database) QueueOrder(t testing.TB, sale int64, account, class string, from, to, quantity int) (number int64) {
	t.Helper()
	err := d.Owner.QueryRow(context.Background(), `WITH o AS (
			INSERT INTO standby_order (sale_id, account, request_key, classes, leg_from, leg_to, quantity, together, fares, currency, gateway,
				state, step, until, authorise_by, score, joined_at, queued_at)
			VALUES ($1, $2, gen_random_uuid()::text, ARRAY[$3::text], $4, $5, $6, 0, '{0}', 'CAD', 'sandbox',
				'queued', 'authorised', now() + interval '1 day', now() + interval '1 day', nextval('standby_score'), now(), now())
			RETURNING sale_id, number, score),
		q AS (
			INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together)
			SELECT o.sale_id, $3, $4, $5, o.score, o.number, $6, 0 FROM o),
		d AS (INSERT INTO standby_due (sale_id, score, number) SELECT o.sale_id, o.score, o.number FROM o),
		a AS (
			INSERT INTO account_sale (sale_id, account, live_seats, seat_limit)
			SELECT s.sale_id, $2, 0, s.account_limit FROM sale s WHERE s.sale_id = $1 ON CONFLICT DO NOTHING)
		SELECT number FROM o`, sale, account, class, from, to, quantity).Scan(&number)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// pool makes a pool that opens no connection before it is used.
func pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 32
	p, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// RedisServer is the Redis of one test.
type RedisServer struct {
	*services.Redis
	URL    string
	Client *redis.Client
}

var redises atomic.Int64

// Redis starts a redis-server of this test's own (some tens of milliseconds).
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	return redisServer(t, services.RedisOptions{})
}

// RedisReplica starts a replica of another server with the same password.
func RedisReplica(t testing.TB, master *RedisServer) *RedisServer {
	t.Helper()
	return redisServer(t, services.RedisOptions{ReplicaOf: master.Port, Password: master.Password})
}

func redisServer(t testing.TB, o services.RedisOptions) *RedisServer {
	t.Helper()
	o.Dir = filepath.Join(Dir(), fmt.Sprintf("redis-%d", redises.Add(1)))
	r, err := services.StartRedis(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := &RedisServer{Redis: r, URL: r.URL(), Client: redis.NewClient(opts)}
	t.Cleanup(func() {
		_ = s.Client.Close()
		_ = r.Stop(syscall.SIGKILL, 5*time.Second)
		_ = os.RemoveAll(o.Dir)
	})
	return s
}

// Restart kills the server and starts another on the same port, empty: what a
// lost machine looks like to a client.
func (s *RedisServer) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	r, err := services.StartRedis(context.Background(), services.RedisOptions{
		Dir: s.dir(), Port: s.Port, Password: s.Password,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Redis = r
	t.Cleanup(func() { _ = r.Stop(syscall.SIGKILL, 5*time.Second) })
}

// Kill kills the server: calls to it fail until Restart.
func (s *RedisServer) Kill() { _ = s.Stop(syscall.SIGKILL, 5*time.Second) }

func (s *RedisServer) dir() string {
	return filepath.Join(Dir(), fmt.Sprintf("redis-%d", redises.Add(1)))
}

// NATSServer is the NATS server of one test, inside the test binary.
type NATSServer struct {
	*services.NATS
	URL  string
	Conn *nats.Conn
	dir  string
}

var natses atomic.Int64

// NATS starts a NATS server with JetStream of this test's own.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	dir := filepath.Join(Dir(), fmt.Sprintf("nats-%d", natses.Add(1)))
	n, err := services.StartNATS(services.NATSOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := &NATSServer{NATS: n, URL: n.URL(), Conn: c, dir: dir}
	t.Cleanup(func() {
		c.Close()
		_ = s.Close()
		_ = os.RemoveAll(dir)
	})
	return s
}

// Restart stops the server and starts it again on the same port and streams.
func (s *NATSServer) Restart(t testing.TB) {
	t.Helper()
	_ = s.Close()
	n, err := services.StartNATS(services.NATSOptions{Dir: s.dir, Port: s.Port})
	if err != nil {
		t.Fatal(err)
	}
	s.NATS = n
}

// Services are a database, a Redis and a NATS server of one test with the
// folder of secrets that names them.
type Services struct {
	DB      *Database
	Redis   *RedisServer
	NATS    *NATSServer
	Secrets string // the folder: HOLDFAST_SECRETS
}

// New starts all three and writes the secrets.
func New(t testing.TB) *Services {
	t.Helper()
	s := &Services{DB: DB(t), Redis: Redis(t), NATS: NATS(t)}
	s.Secrets = Secrets(t, s.DB, s.Redis, s.NATS)
	return s
}

// Secrets writes a folder of secrets with random keys that names the services
// given (nil: an address where nobody answers).
func Secrets(t testing.TB, db *Database, r *RedisServer, n *NATSServer) string {
	t.Helper()
	dir := t.TempDir()
	a := services.Addresses{
		Postgres: "postgres://holdfast_app:none@127.0.0.1:1/none?sslmode=disable&connect_timeout=1",
		Redis:    "redis://127.0.0.1:1/0",
		NATS:     "nats://127.0.0.1:1",
		SMTP:     "smtp://127.0.0.1:1",
		SMS:      "http://127.0.0.1:1/",
	}
	if db != nil {
		a.Postgres = db.AppURL
	}
	if r != nil {
		a.Redis = r.URL
	}
	if n != nil {
		a.NATS = n.URL
	}
	if err := services.WriteSecrets(dir, a); err != nil {
		t.Fatal(err)
	}
	return dir
}

// GTFS is the public feed that some tests load, from HOLDFAST_TEST_GTFS; the
// test is skipped without it (the skip is on the list in tests/skips.txt).
func GTFS(t testing.TB) string {
	t.Helper()
	f := strings.TrimSpace(os.Getenv("HOLDFAST_TEST_GTFS"))
	if f == "" {
		t.Skip("HOLDFAST_TEST_GTFS names no feed")
	}
	return f
}
