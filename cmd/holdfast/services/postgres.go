package services

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Names of the database and of its two roles. The owner runs the migrations;
// the application's role has only what the migrations grant it.
const (
	Database = "holdfast"
	Owner    = "holdfast"
	App      = "holdfast_app"
)

// PostgresOptions says how a server is started.
type PostgresOptions struct {
	Dir  string // data folder; made when missing, used again when not
	Port int    // 0: a free one
	// Unsafe switches fsync, synchronous_commit and full_page_writes off: only
	// for tests of rules, never where speed or loss is measured.
	Unsafe bool
	// Connections bounds the connections; 0: 200.
	Connections int
	// CommitTimes keeps the time of every commit, for benchmarks that measure from
	// one commit to another.
	CommitTimes bool
}

// Postgres is a running server.
type Postgres struct {
	*Process
	Port             int
	ownerPW, appPW   string
	dataDir, logFile string
}

// OwnerURL is the DSN of the role that owns the schema. An empty database means
// the platform's.
func (p *Postgres) OwnerURL(database string) string { return p.dsn(Owner, p.ownerPW, database) }

// AppURL is the DSN of the application's role.
func (p *Postgres) AppURL(database string) string { return p.dsn(App, p.appPW, database) }

func (p *Postgres) dsn(role, password, database string) string {
	if database == "" {
		database = Database
	}
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword(role, password),
		Host: "127.0.0.1:" + strconv.Itoa(p.Port), Path: "/" + database, RawQuery: "sslmode=disable",
	}).String()
}

// StartPostgres makes the cluster when the folder has none, starts the server,
// makes the roles and the database, and returns when it answers. A cluster
// whose server was killed is recovered by Postgres itself.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	cred, err := serviceUser()
	if err != nil {
		return nil, err
	}
	dir, err := clusterFolder(o.Dir, cred)
	if err != nil {
		return nil, err
	}
	ownerPW, err := kept(filepath.Join(dir, "owner.password"), cred)
	if err != nil {
		return nil, err
	}
	appPW, err := kept(filepath.Join(dir, "app.password"), cred)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := initdb(ctx, bin, dir, data, cred); err != nil {
		return nil, err
	}
	if err := endOrphan(filepath.Join(data, "postmaster.pid"), data, syscall.SIGINT); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	p := &Postgres{ownerPW: ownerPW, appPW: appPW, dataDir: data, logFile: filepath.Join(dir, "postgres.log")}
	for try := 1; ; try++ {
		p.Port = o.Port
		if p.Port == 0 {
			if p.Port, err = FreePort(); err != nil {
				return nil, err
			}
		}
		err = p.launch(ctx, bin, cred, o)
		if err == nil {
			break
		}
		if o.Port != 0 || try == 5 || ctx.Err() != nil {
			return nil, err
		}
	}
	if err := p.prepare(ctx); err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Postgres) launch(ctx context.Context, bin string, cred *syscall.Credential, o PostgresOptions) error {
	connections := o.Connections
	if connections == 0 {
		connections = 200
	}
	settings := map[string]string{
		"listen_addresses":                    "127.0.0.1",
		"port":                                strconv.Itoa(p.Port),
		"unix_socket_directories":             "",
		"max_connections":                     strconv.Itoa(connections),
		"shared_buffers":                      "512MB",
		"shared_preload_libraries":            "pg_stat_statements",
		"fsync":                               "on",
		"synchronous_commit":                  "on",
		"full_page_writes":                    "on",
		"idle_in_transaction_session_timeout": "10s",
		"max_wal_size":                        "2GB",
		"jit":                                 "off", // every statement is short; compiling one costs more than it saves
		"timezone":                            "UTC",
		"log_timezone":                        "UTC",
	}
	if o.Unsafe {
		for _, s := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			settings[s] = "off"
		}
		settings["shared_buffers"] = "64MB"
	}
	if o.CommitTimes {
		settings["track_commit_timestamp"] = "on"
	}
	args := []string{"-D", p.dataDir}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	cmd.Dir = p.dataDir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	// SIGINT is Postgres's fast shutdown: connections are ended, the log is kept whole.
	var err error
	if p.Process, err = run("postgres", cmd, p.logFile, syscall.SIGINT); err != nil {
		return err
	}
	deadline := time.Now().Add(60 * time.Second) // crash recovery replays at most max_wal_size
	for {
		c, err := connect(ctx, p.OwnerURL("postgres"))
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-p.Done():
			return fmt.Errorf("postgres ended at once:\n%s", tail(p.logFile, 2000))
		case <-ctx.Done():
			_ = p.Close()
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = p.Close()
			return fmt.Errorf("postgres does not answer: %w\n%s", err, tail(p.logFile, 2000))
		}
	}
}

// prepare makes the application's role and the database. Safe to repeat.
func (p *Postgres) prepare(ctx context.Context) error {
	c, err := connect(ctx, p.OwnerURL("postgres"))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	// The password is hexadecimal (kept), so quoting it is safe.
	for _, s := range []string{
		`DO $$ BEGIN CREATE ROLE ` + App + ` LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`,
		`ALTER ROLE ` + App + ` LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '` + p.appPW + `'`,
	} {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("make the application's role: %w", err)
		}
	}
	var there bool
	if err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, Database).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := c.Exec(ctx, `CREATE DATABASE `+Database); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	d, err := connect(ctx, p.OwnerURL(""))
	if err != nil {
		return err
	}
	defer d.Close(ctx)
	if _, err := d.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
		return fmt.Errorf("pg_stat_statements: %w", err)
	}
	return nil
}

// Close stops the server in an orderly way.
func (p *Postgres) Close() error { return p.Stop(syscall.SIGINT, 30*time.Second) }

func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return pgx.Connect(ctx, dsn)
}

// initdb makes a cluster in data unless one is there. It is made beside and
// renamed, so that a killed initdb leaves nothing that looks like a cluster.
func initdb(ctx context.Context, bin, dir, data string, cred *syscall.Credential) error {
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		return sameVersion(bin, data)
	}
	making := data + ".new"
	if err := os.RemoveAll(making); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"--pgdata", making, "--username", Owner, "--pwfile", filepath.Join(dir, "owner.password"),
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync", "--no-instructions")
	cmd.Dir = dir
	cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return os.Rename(making, data)
}

// sameVersion refuses a cluster of another major version with words that help.
func sameVersion(bin, data string) error {
	b, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		return err
	}
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return fmt.Errorf("postgres --version: %w", err)
	}
	want := strings.TrimSpace(string(b))
	if f := strings.Fields(string(out)); len(f) >= 3 && strings.Split(f[2], ".")[0] != want {
		return fmt.Errorf("the data in %s is of Postgres %s, the server found is %s: install that version or name another folder with --data", data, want, f[2])
	}
	return nil
}

// postgresBin is the folder of initdb and postgres: PATH first, then where
// Debian keeps them (newest version).
func postgresBin() (string, error) {
	var found []string
	if p, err := exec.LookPath("initdb"); err == nil {
		found = append(found, filepath.Dir(p))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	sort.Slice(debian, func(i, j int) bool { return version(debian[i]) > version(debian[j]) })
	for _, dir := range append(found, debian...) {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errors.New("no Postgres server on this machine: apt-get install postgresql (or give one with --postgres-url)")
}

func version(debianBin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(debianBin)))
	return n
}

func executable(file string) bool {
	i, err := os.Stat(file)
	return err == nil && !i.IsDir() && i.Mode()&0o111 != 0
}

// serviceUser is whom Postgres runs as: itself refuses root. Nil: as we are.
func serviceUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil || uid == 0 {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("Postgres refuses to run as root and there is neither a user postgres nor nobody")
}

// clusterFolder makes the folder that holds the cluster and gives it to the
// service's user. That user must be able to reach it: below a home that only
// root may enter it cannot, and then the cluster stands in /var/lib/holdfast
// under a name made of the folder asked for.
func clusterFolder(dir string, cred *syscall.Credential) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if cred != nil && !reachable(filepath.Dir(dir), cred) {
		base := "/var/lib/holdfast"
		if err := os.MkdirAll(base, 0o755); err != nil {
			return "", err
		}
		dir = filepath.Join(base, strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-"))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return "", err
		}
	}
	return dir, os.Chmod(dir, 0o700)
}

// reachable reports whether the user may pass every folder of the path that
// exists; what does not exist yet is made by us, passable.
func reachable(path string, cred *syscall.Credential) bool {
	for ; ; path = filepath.Dir(path) {
		i, err := os.Stat(path)
		if err == nil {
			s, ok := i.Sys().(*syscall.Stat_t)
			if !ok {
				return true
			}
			mode := i.Mode().Perm()
			may := mode&0o001 != 0 || (s.Gid == cred.Gid && mode&0o010 != 0) || (s.Uid == cred.Uid && mode&0o100 != 0)
			if !may {
				return false
			}
		}
		if path == "/" || path == "." {
			return true
		}
	}
}

// kept reads a secret from the file, or makes one of 128 bits in hexadecimal
// and keeps it there.
func kept(file string, cred *syscall.Credential) (string, error) {
	b, err := os.ReadFile(file)
	if err == nil && len(b) >= 32 {
		return strings.TrimSpace(string(b)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	s := hex.EncodeToString(raw)
	if err := os.WriteFile(file+".new", []byte(s), 0o600); err != nil {
		return "", err
	}
	if cred != nil {
		if err := os.Chown(file+".new", int(cred.Uid), int(cred.Gid)); err != nil {
			return "", err
		}
	}
	return s, os.Rename(file+".new", file)
}
