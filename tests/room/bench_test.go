package room_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/room"
	"handler/function/tests/harness"
)

// How near a join is to the bare script, one call a person, on the same Redis
// and with as many at a time. `holdfast bench join` measures the same with the
// function's Handle around it.

func BenchmarkJoin(b *testing.B) {
	w := setup(b)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(3600)})
	join(b, s, id, "first", "")
	var n atomic.Int64
	b.SetParallelism(128)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprint("account-", n.Add(1))}); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkScript(b *testing.B) {
	r := harness.Redis(b)
	var text string
	for _, f := range []string{"identity.lua", "join.lua"} {
		part, err := os.ReadFile(filepath.Join(harness.Root(), "shared", "room", f))
		if err != nil {
			b.Fatal(err)
		}
		text += string(part)
	}
	ctx := context.Background()
	script := redis.NewScript(text)
	keys := []string{"{r}:meta", "{r}:draw", "{r}:late", "{r}:block", "{r}:whole"}
	if err := r.Client.HSet(ctx, keys[0], "generation", "1", "phase", "open").Err(); err != nil {
		b.Fatal(err)
	}
	if err := script.Load(ctx, r.Client).Err(); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	b.SetParallelism(128)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			if err := script.EvalSha(ctx, r.Client, keys, "1", "0", fmt.Sprint("account-", i), i*7919%(1<<52), "").Err(); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkPoll is one POST of a waiting person.
func BenchmarkPoll(b *testing.B) {
	w := setup(b)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0), AdmitPerSecond: 0.01})
	w.run(w.replica(""))
	until(b, "the list", func() bool { return status(b, s, id).DrawListHash != "" })
	join(b, s, id, "front", "")
	token := join(b, s, id, "a", "").PlaceToken
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Join(context.Background(), room.Ask{Room: id, Account: "a", PlaceToken: token}); err != nil {
				b.Error(err)
			}
		}
	})
}
