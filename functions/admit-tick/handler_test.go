package function

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/shared/fn"
)

func TestWithoutPostgresTheTickSaysSo(t *testing.T) {
	dir := t.TempDir()
	line := "k1:" + strings.Repeat("11", 32)
	for name, text := range map[string]string{
		"room-key": line, "draw-secret": line,
		"postgres-url": "postgres://none:none@127.0.0.1:1/none?connect_timeout=1", "redis-url": "redis://127.0.0.1:1/0", "nats-url": "nats://127.0.0.1:1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: dir, Test: true}))
	res, err := Handle(handler.Request{Method: http.MethodPost, Body: []byte(`anything`)})
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %s %v", res.StatusCode, res.Body, err)
	}
}
