package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions says how a server is started.
type RedisOptions struct {
	Dir  string // data folder; made when missing, used again when not
	Port int    // 0: a free one
	// ReplicaOf is the port of another server on this machine (and with the
	// same Dir-independent password) to follow; 0: none. For fault tests.
	ReplicaOf int
	// Password; empty: one is made and kept in the folder.
	Password string
	// Persist writes the append-only file. Tests of rules need none.
	Persist bool
}

// Redis is a running server.
type Redis struct {
	*Process
	Port     int
	Password string
}

// URL is the server's address for go-redis.
func (r *Redis) URL() string { return fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", r.Password, r.Port) }

// StartRedis starts redis-server and returns when it answers.
//
// With Persist it keeps an append-only file written every second, as a
// production server for Holdfast should: losing it all is survived (law 1), but
// joins then answer "place later" until the stream was read back, and a second
// of loss is cheaper to mend than an empty server. fsync on every write would
// buy nothing, since Postgres and the stream decide; snapshots are off, as
// their fork doubles memory at the moment of the rush.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("no redis-server on this machine: apt-get install redis-server (or give one with --redis-url)")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := endOrphan(filepath.Join(dir, "redis.pid"), dir, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	password := o.Password
	if password == "" {
		if password, err = kept(filepath.Join(dir, "password"), nil); err != nil {
			return nil, err
		}
	}
	r := &Redis{Password: password}
	setAside := false
	for try := 1; ; try++ {
		r.Port = o.Port
		if r.Port == 0 {
			if r.Port, err = FreePort(); err != nil {
				return nil, err
			}
		}
		err = r.launch(ctx, bin, dir, o)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		if try >= 3 && o.Persist && !setAside {
			// A file that cannot be loaded is put aside: Redis only hints.
			aof := filepath.Join(dir, "appendonlydir")
			if _, statErr := os.Stat(aof); statErr == nil {
				setAside = true
				if err := os.Rename(aof, aof+"."+time.Now().UTC().Format("20060102T150405.000")); err != nil {
					return nil, err
				}
				continue
			}
		}
		if try >= 5 {
			return nil, err
		}
	}
}

func (r *Redis) launch(ctx context.Context, bin, dir string, o RedisOptions) error {
	conf := fmt.Sprintf(`bind 127.0.0.1
port %d
requirepass %s
masterauth %s
protected-mode yes
daemonize no
dir %s
pidfile %s
save ""
appendonly no
maxmemory-policy noeviction
`, r.Port, r.Password, r.Password, dir, filepath.Join(dir, "redis.pid"))
	if o.Persist {
		conf += "appendonly yes\nappendfsync everysec\naof-load-truncated yes\n"
	}
	if o.ReplicaOf != 0 {
		conf += fmt.Sprintf("replicaof 127.0.0.1 %d\n", o.ReplicaOf)
	}
	// A file, not arguments: the password must not stand in the process list.
	confFile := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(confFile, []byte(conf), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(bin, confFile)
	cmd.Dir = dir
	logFile := filepath.Join(dir, "redis.log")
	var err error
	if r.Process, err = run("redis-server", cmd, logFile, syscall.SIGTERM); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "redis.pid"), []byte(strconv.Itoa(r.PID())), 0o600); err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + strconv.Itoa(r.Port), Password: r.Password,
		MaxRetries: -1, DialTimeout: time.Second, PoolSize: 1,
	})
	defer c.Close()
	deadline := time.Now().Add(30 * time.Second) // loading a large append-only file answers LOADING
	for {
		err := c.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-r.Done():
			return fmt.Errorf("redis-server ended at once:\n%s", tail(logFile, 1000))
		case <-ctx.Done():
			_ = r.Close()
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = r.Close()
			return fmt.Errorf("redis-server does not answer: %w\n%s", err, tail(logFile, 1000))
		}
	}
}

// Close stops the server in an orderly way.
func (r *Redis) Close() error { return r.Stop(syscall.SIGTERM, 10*time.Second) }
