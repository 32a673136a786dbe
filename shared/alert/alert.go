// Package alert tells people about trouble: a row in the table alert (kind,
// subject, count, first, last), one error line in the log, a metric, and a
// webhook where one is configured. `holdfast audit` lists the open ones;
// whoever finds that a trouble has healed closes it.
package alert

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

//go:embed alert.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Limits of an alert.
const (
	maxText     = 500             // characters of a subject or a detail
	maxOpen     = 1000            // listed by Open
	hookTimeout = 2 * time.Second // of the webhook
	quiet       = time.Minute     // between two log lines of one alert in a replica
)

var raised = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "holdfast_alerts_total", Help: "Alerts raised, by kind.",
}, []string{"kind"})

// Alert is one open trouble. Sale 0 means that it is about no sale.
type Alert struct {
	Sale    int64     `json:"sale"`
	Kind    string    `json:"kind"`
	Subject string    `json:"subject"`
	Count   int64     `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Detail  string    `json:"detail"`
}

// Board is where alerts are put up. It is safe for concurrent use.
type Board struct {
	db      *store.DB
	webhook string
	client  *http.Client
	said    sayings
}

// New makes a Board; webhook is an address that gets each new alert as JSON, or
// empty.
func New(db *store.DB, webhook string) *Board {
	return &Board{db: db, webhook: webhook, client: &http.Client{Timeout: hookTimeout}}
}

// Raise puts an alert up or counts it up. It never fails: when Postgres is away
// the log line and the metric remain. kind is a short constant, subject what it
// is about (alerts with the same sale, kind and subject are one), detail for
// people.
func (b *Board) Raise(ctx context.Context, sale int64, kind, subject, detail string) {
	subject, detail = cut(subject), cut(detail)
	raised.WithLabelValues(kind).Inc()
	if b.said.first(sale, kind, subject, time.Now()) {
		slog.ErrorContext(ctx, "alert", "sale", sale, "kind", kind, "subject", subject, "detail", detail)
	}
	var count int64
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["raise"], sale, kind, subject, detail).Scan(&count)
	})
	if err != nil {
		slog.ErrorContext(ctx, "alert not kept", "sale", sale, "kind", kind, "subject", subject, "error", err)
		return
	}
	if count == 1 && b.webhook != "" {
		b.tell(ctx, Alert{Sale: sale, Kind: kind, Subject: subject, Count: 1, First: time.Now(), Last: time.Now(), Detail: detail})
	}
}

// Close says that a trouble has healed. Closing what is not open does nothing.
func (b *Board) Close(ctx context.Context, sale int64, kind, subject string) error {
	return b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, sql["close"], sale, kind, cut(subject))
		return err
	})
}

// About names an alert of some kind.
type About struct {
	Sale    int64
	Subject string
}

// CloseOthers closes every open alert of a kind but those that still hold.
func (b *Board) CloseOthers(ctx context.Context, kind string, still []About) error {
	keep := make(map[About]bool, len(still))
	for _, a := range still {
		keep[About{a.Sale, cut(a.Subject)}] = true
	}
	var open []About
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["open-of-kind"], kind, maxOpen)
		if err != nil {
			return err
		}
		open, err = pgx.CollectRows(rows, pgx.RowToStructByPos[About])
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range open {
		if keep[a] {
			continue
		}
		if err := b.Close(ctx, a.Sale, kind, a.Subject); err != nil {
			return err
		}
	}
	return nil
}

// Open lists the open alerts, oldest first, at most 1,000.
func (b *Board) Open(ctx context.Context) ([]Alert, error) {
	var all []Alert
	err := b.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["open"], maxOpen)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Alert])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("alert: %w", err)
	}
	return all, nil
}

// tell posts a new alert to the webhook. Nobody waits for it to succeed: the
// row is what counts.
func (b *Board) tell(ctx context.Context, a Alert) {
	body, err := json.Marshal(a)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.webhook, bytes.NewReader(body))
	if err != nil {
		slog.ErrorContext(ctx, "alert webhook", "error", err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(req)
	if err != nil {
		slog.WarnContext(ctx, "alert webhook", "error", err)
		return
	}
	_ = resp.Body.Close()
}

func cut(s string) string {
	if r := []rune(s); len(r) > maxText {
		return string(r[:maxText])
	}
	return s
}
