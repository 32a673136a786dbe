package platform

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/openfaas/go-sdk/stack"
	"github.com/robfig/cron/v3"
)

// cronTopic is the value of the annotation `topic` that cron-connector looks for.
const cronTopic = "cron-function"

// triggers are the two connectors, with their habits (DESIGN 3).
type triggers struct {
	cron   *cron.Cron
	nats   *nats.Conn
	client *http.Client
	base   string // http://HOST:PORT/function/
}

// startTriggers reads the annotations and starts calling the gateway.
func startTriggers(functions map[string]stack.Function, natsURL, gatewayURL string) (*triggers, error) {
	t := &triggers{
		cron: cron.New(), // five fields and @every; not six
		base: gatewayURL + "/function/",
		client: &http.Client{
			// The connectors' upstream_timeout; a function's own is shorter.
			Timeout:       2 * time.Minute,
			Transport:     &http.Transport{MaxIdleConnsPerHost: 32, IdleConnTimeout: 5 * time.Second, DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	subscribe := map[string][]string{}
	for name, f := range functions {
		for _, topic := range topics(f) {
			if topic != cronTopic {
				subscribe[topic] = append(subscribe[topic], name)
				continue
			}
			// Each run is a goroutine of its own: a slow run is overtaken by the next.
			// One call for the function, not for each replica.
			schedule := (*f.Annotations)["schedule"]
			if _, err := t.cron.AddFunc(schedule, func() { t.call(name, cronTopic, "cron-connector", nil) }); err != nil {
				// The connector says nothing at all; a developer is told.
				slog.Warn("schedule ignored, as cron-connector does", "function", name, "schedule", schedule, "error", err)
			}
		}
	}
	if len(subscribe) > 0 {
		var err error
		t.nats, err = nats.Connect(natsURL, nats.Name("nats-connector"), nats.MaxReconnects(-1),
			nats.RetryOnFailedConnect(true), nats.ReconnectWait(250*time.Millisecond))
		if err != nil {
			return nil, err
		}
	}
	for subject, names := range subscribe {
		// One subscription a subject: its messages are taken one by one. The
		// subject stands for itself (no wildcards), headers are dropped, there is
		// no reply, and a failed call is a lost message.
		_, err := t.nats.QueueSubscribe(subject, "holdfast", func(m *nats.Msg) {
			for _, name := range names {
				t.call(name, subject, "nats-connector", m.Data)
			}
		})
		if err != nil {
			t.nats.Close()
			return nil, err
		}
	}
	t.cron.Start()
	return t, nil
}

func (t *triggers) call(function, topic, connector string, body []byte) {
	req, err := http.NewRequest(http.MethodPost, t.base+function, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.GetBody = nil // lost, not sent twice
	req.Header.Set("X-Connector", connector)
	req.Header.Set("X-Topic", topic)
	res, err := t.client.Do(req)
	if err != nil {
		slog.Warn("trigger lost", "function", function, "topic", topic, "error", err)
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	res.Body.Close()
	if res.StatusCode >= 300 {
		slog.Warn("trigger lost", "function", function, "topic", topic, "status", res.StatusCode)
	}
}

// close stops calling and waits for cron's running calls, for at most 5 s.
func (t *triggers) close() {
	if t.nats != nil {
		t.nats.Close()
	}
	ctx, cancel := context.WithTimeout(t.cron.Stop(), 5*time.Second)
	defer cancel()
	<-ctx.Done()
	t.client.CloseIdleConnections()
}
