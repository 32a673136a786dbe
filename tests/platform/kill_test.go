package platform

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"handler/function/tests/harness"
)

// `holdfast up` with services of its own: killed with SIGKILL it leaves nothing
// running and starts again on the same folder at once, with its data and keys;
// stopped and started it does too; a second one on the folder is refused.
func TestKilledPlatform(t *testing.T) {
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			p := harness.StartPlatform(t, harness.PlatformOptions{Processes: processes, Own: true})
			token := p.Token(t, "ann", "")
			execSQL(t, p.PostgresURL, `CREATE TABLE mine AS SELECT 7 AS n`)
			var safe string
			for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
				if row(t, p.PostgresURL, `SHOW `+setting, &safe); safe != "on" {
					t.Errorf("%s is %s", setting, safe)
				}
			}
			for setting, want := range map[string]string{
				"listen_addresses": "127.0.0.1", "idle_in_transaction_session_timeout": "10s",
				"shared_preload_libraries": "pg_stat_statements",
			} {
				if row(t, p.PostgresURL, `SHOW `+setting, &safe); safe != want {
					t.Errorf("%s is %q", setting, safe)
				}
			}
			for range 2 {
				before := p.Processes(t)
				p.Kill()
				p.Again(t) // at once: its predecessor's children may still be ending
				after := p.Processes(t)
				if before.Postgres == after.Postgres || before.Redis == after.Redis {
					t.Errorf("before %+v, after %+v", before, after)
				}
				for _, pid := range append([]int{before.Postgres, before.Redis}, before.Functions["hold"]...) {
					if alive(pid) {
						t.Errorf("process %d outlived the platform", pid)
					}
				}
				works(t, p, token)
			}
			var n int
			if row(t, p.PostgresURL, `SELECT n FROM mine`, &n); n != 7 {
				t.Errorf("the data is gone: %d", n)
			}
			if out, err := second(ctx, t, p); err == nil {
				t.Errorf("a second platform started on the folder:\n%s", out)
			}
			works(t, p, token)

			// A service killed under the platform comes back on its port.
			x := p.Processes(t)
			if err := syscall.Kill(x.Redis, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			opts, err := redis.ParseURL(p.RedisURL)
			if err != nil {
				t.Fatal(err)
			}
			rdb := redis.NewClient(opts)
			defer rdb.Close()
			eventually(t, "redis", func() bool { return rdb.Ping(ctx).Err() == nil })
			if err := syscall.Kill(x.Postgres, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "postgres", func() bool {
				c, err := pgx.Connect(ctx, p.PostgresURL)
				if err != nil {
					return false
				}
				return c.Close(ctx) == nil
			})
			p.Stop()
			p.Again(t)
			works(t, p, token)
		})
	}
}

// works asks a function that needs Postgres; the token is of before the kill, so
// the key was kept.
func works(t *testing.T, p *harness.Platform, token string) {
	t.Helper()
	eventually(t, "hold", func() bool {
		status, _, body := call(t, "GET", p.URL+"/function/hold", "", http.Header{"Authorization": {"Bearer " + token}})
		if status == 401 {
			t.Fatalf("the token of before is refused: %s", body)
		}
		return status == 200
	})
}

// alive says whether a process runs: one that has ended but that nobody waited
// for has no command line any more.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(b) > 0
}

// second tries another platform on the folder in use.
func second(ctx context.Context, t *testing.T, p *harness.Platform) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, harness.Binary(t), "up", "--port", "0", "--data", p.Data).CombinedOutput()
	return string(out), err
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%s does not work", what)
		}
	}
}

func execSQL(t *testing.T, url, sql string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func row(t *testing.T, url, sql string, to any) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), sql).Scan(to); err != nil {
		t.Fatal(err)
	}
}
