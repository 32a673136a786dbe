package harness_test

import (
	"context"
	"testing"

	"handler/function/tests/harness"
)

// The services answer, and one test's are not another's.
func TestServices(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := harness.New(t)
			if _, err := s.DB.Owner.Exec(ctx, `CREATE TABLE mine (a int)`); err != nil {
				t.Fatal(err)
			}
			if _, err := s.DB.App.Exec(ctx, `INSERT INTO mine VALUES (1)`); err == nil {
				t.Fatal("the application's role wrote to a table it has no right to")
			}
			if n, err := s.Redis.Client.DBSize(ctx).Result(); err != nil || n != 0 {
				t.Fatalf("redis: %d keys, %v", n, err)
			}
			if err := s.Redis.Client.Set(ctx, "k", name, 0).Err(); err != nil {
				t.Fatal(err)
			}
			s.Redis.Restart(t)
			if n, err := s.Redis.Client.DBSize(ctx).Result(); err != nil || n != 0 {
				t.Fatalf("redis after a restart: %d keys, %v", n, err)
			}
			if err := s.NATS.Conn.Publish("a", []byte("x")); err != nil {
				t.Fatal(err)
			}
		})
	}
}
