package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/cmd/holdfast/platform"
	"handler/function/shared/queue"
)

const (
	workersJoin = 256    // a crowd's join waits for Redis and the stream: many at a time
	joins       = 40_000 // people of a turn
	pipes       = 4      // pipelines at a time
)

// joinContest: joining an open draw, against the room's script alone, one call
// for each person on the same Redis.
func (g Ground) joinContest(ctx context.Context) (*contest, error) {
	root, err := platform.Root()
	if err != nil {
		return nil, err
	}
	var text string
	for _, file := range []string{"identity.lua", "join.lua"} {
		b, err := os.ReadFile(filepath.Join(root, "shared", "room", file))
		if err != nil {
			return nil, err
		}
		text += string(b)
	}
	script := redis.NewScript(text)
	opts, err := redis.ParseURL(g.Platform.RedisURL)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(opts)
	ours := func(ctx context.Context) (func(context.Context, int) error, int, error) {
		m, err := g.makeSale(ctx, 100, time.Hour)
		if err != nil {
			return nil, 0, err
		}
		if _, err := call(ctx, "admit-tick", http.MethodPost, "", []byte("{}"), nil, http.StatusOK); err != nil {
			return nil, 0, err
		}
		_, tokens, err := g.tokens(joins)
		if err != nil {
			return nil, 0, err
		}
		body, err := json.Marshal(map[string]any{"sale": m.sale})
		if err != nil {
			return nil, 0, err
		}
		return func(ctx context.Context, i int) error {
			_, err := call(ctx, "join-room", http.MethodPost, "", body, headers("Authorization", "Bearer "+tokens[i]), http.StatusCreated)
			return err
		}, joins, nil
	}
	alone := func(run func(ctx context.Context, keys []string, account string) error) func(ctx context.Context) (func(context.Context, int) error, int, error) {
		return func(ctx context.Context) (func(context.Context, int) error, int, error) {
			tag := fmt.Sprintf("{bench-%d}", g.serial.Add(1))
			keys := []string{tag + ":meta", tag + ":draw", tag + ":late", tag + ":block", tag + ":whole"}
			if err := rdb.HSet(ctx, keys[0], "generation", "1", "phase", "open").Err(); err != nil {
				return nil, 0, err
			}
			if err := script.Load(ctx, rdb).Err(); err != nil {
				return nil, 0, err
			}
			names, _, err := g.tokens(joins)
			if err != nil {
				return nil, 0, err
			}
			return func(ctx context.Context, i int) error { return run(ctx, keys, names[i]) }, joins, nil
		}
	}
	args := func(account string) []any { return []any{"1", "0", account, rand.Int64N(1 << 52), ""} }
	limit := alone(func(ctx context.Context, keys []string, account string) error {
		return script.EvalSha(ctx, rdb, keys, args(account)...).Err()
	})
	// What waits together goes out in one write, still one script run a person.
	type call struct {
		keys    []string
		account string
	}
	pipe := queue.NewGather(workersJoin, pipes, func(calls []call) ([]error, error) {
		p := rdb.Pipeline()
		cmds := make([]*redis.Cmd, len(calls))
		for i, c := range calls {
			cmds[i] = script.EvalSha(ctx, p, c.keys, args(c.account)...)
		}
		_, _ = p.Exec(ctx)
		errs := make([]error, len(calls))
		for i, c := range cmds {
			errs[i] = c.Err()
		}
		return errs, nil
	})
	pipelined := alone(func(ctx context.Context, keys []string, account string) error {
		failed, err := pipe.Do(ctx, call{keys, account})
		if err == nil {
			err = failed
		}
		return err
	})
	return &contest{
		workers: workersJoin, rounds: 9, each: time.Second, close: func() { _ = rdb.Close() },
		what:  "the join script alone, one call a person",
		sides: []side{{"ours", ours, tree}, {"limit", limit, tree}, {"script, pipelined", pipelined, tree}},
	}, nil
}
