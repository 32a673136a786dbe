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
)

const (
	workersJoin = 256    // a crowd's join waits for Redis and the stream: many at a time
	joins       = 40_000 // people of a turn
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
	limit := func(ctx context.Context) (func(context.Context, int) error, int, error) {
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
		return func(ctx context.Context, i int) error {
			return script.EvalSha(ctx, rdb, keys, "1", "0", names[i], rand.Int64N(1<<52), "").Err()
		}, joins, nil
	}
	return &contest{
		workers: workersJoin, rounds: 9, each: time.Second, close: func() { _ = rdb.Close() },
		what:  "the join script alone, one call a person",
		sides: []side{{"ours", ours, tree}, {"limit", limit, tree}},
	}, nil
}
