package rush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"handler/function/cmd/holdfast/wire"
)

// crowdStays is how long after its arrival the last of a demo's crowd goes home,
// whatever it got.
const crowdStays = 20 * time.Minute

// CrowdOptions say who comes to a demo sale.
type CrowdOptions struct {
	URL    string // of the platform
	Sale   string // that has a room
	People int
	Window time.Duration // within which they arrive
	Party  int
	Seed   uint64
	// Token makes an account token (of the local platform).
	Token func(account string) (string, error)
}

// Crowd lets simulated people come to a sale that is there, so that someone who
// tries Holdfast out stands in a line. It is polite: few connections, and one
// poll of the room's document a second for all. It returns when everybody has
// gone home or ctx ends. What they got is nobody's business: no judging.
func Crowd(ctx context.Context, o CrowdOptions) error {
	w, err := wire.New(o.URL, 16)
	if err != nil {
		return err
	}
	defer w.Close()
	a, err := w.Do(ctx, "GET", "/function/catalog?sale="+o.Sale, nil, nil, nil)
	if err != nil {
		return fmt.Errorf("rush: the sale: %w", err)
	}
	if !a.OK() {
		return fmt.Errorf("rush: the sale: %s", reason(a, nil))
	}
	var sale struct {
		Room    string    `json:"room"`
		OpensAt time.Time `json:"opens_at"`
		Stops   []struct {
			ID string `json:"id"`
		} `json:"stops"`
		Classes []struct {
			Class string `json:"class"`
		} `json:"classes"`
	}
	if err := json.Unmarshal(a.Body, &sale); err != nil {
		return fmt.Errorf("rush: the sale: %w", err)
	}
	if sale.Room == "" || len(sale.Stops) < 2 || len(sale.Classes) == 0 {
		return fmt.Errorf("rush: sale %s has no room to stand in", o.Sale)
	}
	c := &crowd{
		w: w, judge: &judge{}, line: newLineJudge(), gateway: &gateway{w: w}, cdn: &cdn{}, token: o.Token,
		party: o.Party, over: make(chan struct{}), prefix: "guest",
		target: target{sale: o.Sale, room: sale.Room, class: sale.Classes[0].Class, opens: sale.OpensAt, hold: time.Minute},
	}
	if a, err = w.Do(ctx, "GET", "/function/join-room?room="+sale.Room, nil, nil, nil); err == nil && a.OK() {
		var doc status
		if json.Unmarshal(a.Body, &doc) == nil && doc.DrawOpensAt != nil {
			c.target.opens = *doc.DrawOpensAt
		}
	}
	for _, s := range sale.Stops {
		c.target.stops = append(c.target.stops, s.ID)
	}
	c.m = newMeasure(time.Now())
	c.story = &story{start: c.target.opens, opens: c.target.opens}
	seed := rand.New(rand.NewPCG(o.Seed, 2))
	people := draft(seed, o.People, len(sale.Stops)-1, o.Window, 10*time.Minute, 0.3)
	for i := range people {
		people[i].chooser = false // needs the layout, which only a rush of our own knows
	}
	c.gather(people, seed)
	ctx, cancel := context.WithDeadline(ctx, c.target.opens.Add(o.Window+crowdStays))
	defer cancel()
	c.run(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return ctx.Err()
}
