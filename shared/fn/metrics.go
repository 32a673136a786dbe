package fn

import (
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var seconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "holdfast_function_seconds",
	Help:    "Time a function took, by function and status.",
	Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
}, []string{"function", "status"})

var metricsOnce sync.Once

// observe counts an answer. A function's own address has no path for metrics,
// so they are served on HOLDFAST_METRICS_ADDR where that is set.
func observe(name string, status int, took time.Duration) {
	metricsOnce.Do(serveMetrics)
	seconds.WithLabelValues(name, strconv.Itoa(status)).Observe(took.Seconds())
}

func serveMetrics() {
	addr := os.Getenv("HOLDFAST_METRICS_ADDR")
	if addr == "" {
		return
	}
	server := &http.Server{Addr: addr, Handler: promhttp.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { slog.Error("metrics", "error", server.ListenAndServe()) }()
}
