package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"handler/function/shared/audit"
	"handler/function/shared/queue"
	"handler/function/shared/standby/line"
	"handler/function/shared/store"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// auditCmd checks the invariants (DESIGN section 12). Its exit status is 1 if
// one is broken.
type auditCmd struct {
	PostgresURL string `env:"HOLDFAST_POSTGRES_URL" help:"The database to audit; without it, that of the local platform."`
	NATSURL     string `name:"nats-url" env:"HOLDFAST_NATS_URL" help:"Where the stream of joins is; without it places are checked on lists and admissions alone."`
	RedisURL    string `name:"redis-url" env:"HOLDFAST_REDIS_URL" help:"Where the queues of standby are; without it they are not compared with Postgres."`
	Sale        int64  `help:"One sale; without it, all." default:"0"`
	Data        string `default:"${data}" help:"The local platform's data folder." type:"path"`
}

func (c *auditCmd) Run(ctx context.Context, out *output) error {
	postgres, natsURL, redisURL := c.PostgresURL, c.NATSURL, c.RedisURL
	if postgres == "" {
		var err error
		if postgres, err = readSecret(c.Data, "postgres-url"); err != nil {
			return fmt.Errorf("there is no platform in %s to audit: name one with --data or --postgres-url (%w)", c.Data, err)
		}
		if natsURL == "" {
			if natsURL, err = readSecret(c.Data, "nats-url"); err != nil {
				return err
			}
		}
		if redisURL == "" {
			if redisURL, err = readSecret(c.Data, "redis-url"); err != nil {
				return err
			}
		}
	}
	report, err := auditPlatform(ctx, postgres, natsURL, redisURL, c.Sale)
	if err != nil {
		return err
	}
	if err := out.result(report, func(w io.Writer) { writeAudit(w, report) }); err != nil {
		return err
	}
	if !report.OK() {
		return failed{1}
	}
	return nil
}

func readSecret(data, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(data, "secrets", name))
	return strings.TrimSpace(string(b)), err
}

// auditPlatform audits a database and, where their addresses are not empty, the
// stream of joins and the queues of standby beside it.
func auditPlatform(ctx context.Context, postgres, natsURL, redisURL string, sale int64) (audit.Report, error) {
	db, err := store.OpenSize(postgres, 2)
	if err != nil {
		return audit.Report{}, err
	}
	defer db.Close()
	var joins []audit.Join
	if natsURL != "" {
		if joins, err = readJoins(ctx, natsURL); err != nil {
			return audit.Report{}, err
		}
	}
	report, err := audit.Run(ctx, db.Pool(), sale, joins)
	if err != nil || redisURL == "" {
		return report, err
	}
	broken, err := auditQueues(ctx, db, redisURL, sale)
	report.Broken = append(report.Broken, broken...)
	return report, err
}

// auditQueues compares the queues of standby in Redis with Postgres.
func auditQueues(ctx context.Context, db *store.DB, redisURL string, sale int64) ([]audit.Broken, error) {
	client, err := queue.Open(redisURL)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	lines := line.New(line.Options{DB: db, Redis: client})
	sales, err := audit.Sales(ctx, db.Pool(), sale)
	if err != nil {
		return nil, err
	}
	var all []audit.Broken
	for _, s := range sales {
		placed, err := lines.Read(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		inRedis := make([]audit.Queued, len(placed))
		for i, p := range placed {
			inRedis[i] = audit.Queued{Class: p.Class, From: p.From, To: p.To, Number: p.Number, Score: p.Score}
		}
		broken, err := audit.Queues(ctx, db.Pool(), s, inRedis)
		if err != nil {
			return nil, err
		}
		all = append(all, broken...)
	}
	return all, nil
}

// readJoins reads the whole stream of joins as it stands.
func readJoins(ctx context.Context, url string) ([]audit.Join, error) {
	nc, err := nats.Connect(url, nats.Timeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	stream, err := js.Stream(ctx, "JOINS")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	left := stream.CachedInfo().State.Msgs
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	var joins []audit.Join
	for left > 0 {
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, fmt.Errorf("nats: %w", err)
		}
		read := uint64(0)
		for msg := range batch.Messages() {
			read++
			joins = append(joins, readJoin(msg.Subject(), msg.Data())...)
		}
		if read == 0 {
			return nil, fmt.Errorf("nats: %d joins of the stream did not come: %w", left, batch.Error())
		}
		left -= min(left, read)
	}
	return joins, nil
}

func readJoin(subject string, data []byte) []audit.Join {
	var m struct {
		Generation int64    `json:"g"`
		Accounts   []string `json:"a"`
		Late       []int64  `json:"k"`
	}
	room, err := strconv.ParseInt(strings.TrimPrefix(subject, "room.joins."), 10, 64)
	if err != nil || json.Unmarshal(data, &m) != nil || len(m.Late) != len(m.Accounts) {
		return nil
	}
	joins := make([]audit.Join, len(m.Accounts))
	for i, account := range m.Accounts {
		joins[i] = audit.Join{Room: room, Generation: m.Generation, Account: account, Late: m.Late[i]}
	}
	return joins
}

func writeAudit(w io.Writer, r audit.Report) {
	fmt.Fprintf(w, "%d sales: %d seats sold, %d held, %d refunded, %d oversold\n", r.Sales, r.Sold, r.Held, r.Refunded, r.Oversold)
	for _, b := range r.Broken {
		where := fmt.Sprintf("sale %d", b.Sale)
		if b.Room != 0 {
			where = fmt.Sprintf("room %d", b.Room)
		}
		fmt.Fprintf(w, "BROKEN invariant %d (%s), %s: %s\n", b.Invariant, b.Check, where, b.Detail)
	}
	for _, a := range r.Alerts {
		fmt.Fprintf(w, "alert %s, sale %d, %s: %d times since %s: %s\n", a.Kind, a.Sale, a.Subject, a.Count, a.First.Format(time.RFC3339), a.Detail)
	}
	if r.OK() {
		fmt.Fprintln(w, "every invariant holds")
	}
}
