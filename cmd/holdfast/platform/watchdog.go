package platform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	handler "github.com/openfaas/templates-sdk/go-http"
)

// Handle is a function's entry, as the template calls it.
type Handle func(handler.Request) (handler.Response, error)

// Watch wraps a function as its container does: of-watchdog's limit on requests
// at a time and its exec_timeout around the golang-http template's server,
// which turns a request into a handler.Request and back. The same code serves a
// function inside the workbench and in a process of its own.
func Watch(handle Handle, l Limits) http.Handler {
	var inflight atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		if l.MaxInflight > 0 {
			defer inflight.Add(-1)
			if inflight.Add(1) > int64(l.MaxInflight) {
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprintf(w, "Concurrent request limit exceeded. Max concurrent requests: %d\n", l.MaxInflight)
				return
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				tooLarge(w)
				return
			}
			// The caller went away or was too slow; nobody reads the answer.
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ctx, cancel := r.Context(), func() {}
		if l.ExecTimeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, l.ExecTimeout)
		}
		defer cancel()
		req := handler.Request{Body: body, Header: r.Header, Method: r.Method, QueryString: r.URL.RawQuery}
		req.WithContext(ctx)
		type result struct {
			res handler.Response
			err error
		}
		done := make(chan result, 1)
		go func() {
			var a result
			defer func() {
				if p := recover(); p != nil {
					a.err = fmt.Errorf("panic: %v", p)
				}
				done <- a
			}()
			a.res, a.err = handle(req)
		}()
		select {
		case a := <-done:
			writeResult(w, a.res, a.err, started)
		case <-ctx.Done():
			// As the watchdog: the caller has its answer, the handler its
			// cancelled context; what it returns now is dropped.
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				w.Header().Set("X-Duration-Seconds", seconds(started))
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		}
	})
}

func writeResult(w http.ResponseWriter, res handler.Response, err error, started time.Time) {
	h := w.Header()
	for name, values := range res.Header {
		h[name] = values
	}
	h.Set("X-Duration-Seconds", seconds(started))
	switch {
	case err != nil:
		slog.Error("the function returned an error", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
	case res.StatusCode == 0:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(res.StatusCode)
	}
	_, _ = w.Write(res.Body)
}

func seconds(since time.Time) string { return fmt.Sprintf("%f", time.Since(since).Seconds()) }

// TemplateServer is the golang-http template's server around a function.
func TemplateServer(h http.Handler, l Limits) *http.Server {
	return &http.Server{
		Handler:        h,
		ReadTimeout:    l.ReadTimeout,
		WriteTimeout:   l.WriteTimeout,
		MaxHeaderBytes: 1 << 20,
	}
}
