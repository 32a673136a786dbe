package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"handler/function/cmd/holdfast/proc"
	"handler/function/cmd/holdfast/wire"
)

// workersRead is how many connections a read's load has.
const workersRead = 32

// readSeats is the size of the sale that is read.
const readSeats = 1000

// pollContest: the room's public document, against an echo function.
func (g Ground) pollContest(ctx context.Context) (*contest, error) {
	m, err := g.makeSale(ctx, readSeats, 0)
	if err != nil {
		return nil, err
	}
	return g.readContest("join-room", url.Values{"room": {m.room}})
}

// mapContest: the seat map, against an echo function.
func (g Ground) mapContest(ctx context.Context) (*contest, error) {
	m, err := g.makeSale(ctx, readSeats, 0)
	if err != nil {
		return nil, err
	}
	return g.readContest("seat-map", url.Values{"sale": {m.sale}, "from": {"0"}, "to": {"1"}, "class": {class}})
}

// readContest asks two processes with the template's server by turns, with the
// same query: the function, and an echo.
func (g Ground) readContest(name string, q url.Values) (*contest, error) {
	c := &contest{workers: workersRead, rounds: 15, each: time.Second, what: "an echo function on the template's server"}
	var closers []func()
	c.close = func() {
		for _, f := range closers {
			f()
		}
	}
	for i, who := range []string{name, "echo"} {
		s, err := g.Serve(who)
		if err != nil {
			c.close()
			return nil, err
		}
		closers = append(closers, s.Close)
		client, err := wire.New(s.URL, workersRead)
		if err != nil {
			c.close()
			return nil, err
		}
		closers = append(closers, client.Close)
		path := "/?" + q.Encode()
		c.sides = append(c.sides, side{
			name: []string{"ours", "limit"}[i],
			setup: func(context.Context) (func(context.Context, int) error, int, error) {
				return func(ctx context.Context, _ int) error {
					a, err := client.Do(ctx, http.MethodGet, path, nil, nil, nil)
					if err == nil && a.Status != http.StatusOK {
						err = fmt.Errorf("%s answered %d: %.300s", who, a.Status, a.Body)
					}
					return err
				}, 1 << 40, nil
			},
			cpu: func() float64 {
				p, _ := proc.Read(s.PID)
				return p.Own
			},
		})
	}
	return c, nil
}
