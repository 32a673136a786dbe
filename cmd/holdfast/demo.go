package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"handler/function/cmd/holdfast/gtfs"
	"handler/function/cmd/holdfast/layout"
	"handler/function/cmd/holdfast/platform"
	"handler/function/cmd/holdfast/rush"
	"handler/function/demo"
	"handler/function/shared/account"
	"handler/function/shared/catalog"
)

// The demo: a train on sale at once, a hall that opens soon after with a room in
// front and a crowd in it.
const (
	demoOrg       = "demo"
	demoOpensIn   = 2 * time.Minute
	demoDraw      = demoOpensIn // from the start until the hall opens
	demoAdmit     = 5           // a second: a newcomer has a while to stand in line
	demoPeople    = 2000
	demoArrive    = 90 * time.Second // within which they come
	demoParty     = 2
	demoHallStart = 20 // o'clock, the day after tomorrow
)

// demoSales are what a demo put on sale.
type demoSales struct {
	Train imported `json:"train"`
	Hall  imported `json:"hall"`
}

// loadDemo puts the demo sales on sale and lets the crowd come, beside the
// platform's own work, until ctx ends.
func loadDemo(ctx context.Context, p *platform.Running, out *output) error {
	token, err := devToken(ctx, p.URL, "organiser", demoOrg)
	if err != nil {
		return err
	}
	made, err := importDemo(ctx, p.URL, token)
	if err != nil {
		return err
	}
	out.log("demo: train (sale %s) is on sale; hall (sale %s) opens in %s, and %d simulated people are coming",
		made.Train.Sale, made.Hall.Sale, demoOpensIn, demoPeople)
	go func() {
		err := rush.Crowd(ctx, rush.CrowdOptions{
			URL: p.URL, Sale: made.Hall.Sale, People: demoPeople, Window: demoArrive, Party: demoParty, Seed: 1,
			Token: func(name string) (string, error) {
				token, _, err := platform.Token(p.Secrets, account.DefaultAudience, name, account.Customer, "")
				return token, err
			},
		})
		if err != nil && ctx.Err() == nil {
			out.log("demo: the crowd went home: %s", err)
		}
	}()
	return nil
}

// importDemo makes the demo's sales through the catalog of the platform at a
// URL, by an organiser's token. A train of the demo that is still on sale is
// taken as it is; the hall is a new one each time, as it opens in two minutes.
func importDemo(ctx context.Context, url, token string) (made demoSales, err error) {
	o := organiser{url: url, token: token}
	now := time.Now()
	feed, err := gtfs.Read(demo.Feed(), "day")
	if err != nil {
		return made, err
	}
	coaches, err := layout.Parse("demo/train.yaml", demo.Train())
	if err != nil {
		return made, err
	}
	train, _, err := trainDocument(feed, "day", "next", coaches, now)
	if err != nil {
		return made, err
	}
	if made.Train, err = o.upcoming(ctx, train); err != nil {
		return made, err
	}
	if made.Train.Sale == "" {
		train.State = catalog.Open
		if made.Train, _, err = o.create(ctx, "", train); err != nil {
			return made, fmt.Errorf("train: %w", err)
		}
	}
	hall, err := demoHall(now)
	if err != nil {
		return made, err
	}
	if made.Hall, _, err = o.create(ctx, "", hall); err != nil {
		return made, fmt.Errorf("hall: %w", err)
	}
	return made, nil
}

// demoHall is the screening, with its room's draw from now until shortly before
// it opens.
func demoHall(now time.Time) (doc catalog.Document, err error) {
	h, err := layout.ParseHall("demo/hall.yaml", demo.Hall())
	if err != nil {
		return doc, err
	}
	zone, err := time.LoadLocation(h.Timezone)
	if err != nil {
		return doc, err
	}
	day := now.In(zone).AddDate(0, 0, 2)
	if err := h.Begin(time.Date(day.Year(), day.Month(), day.Day(), demoHallStart, 0, 0, 0, zone)); err != nil {
		return doc, err
	}
	if doc, err = h.Document(); err != nil {
		return doc, err
	}
	opens := now.Add(demoOpensIn).Truncate(time.Second)
	draw, rate := int(demoDraw.Seconds()), float64(demoAdmit)
	doc.State, doc.OpensAt = catalog.Open, &opens
	doc.Room = &catalog.RoomWish{RoomSettings: catalog.RoomSettings{DrawOpensAt: &now, DrawSeconds: &draw, AdmitPerSecond: &rate}}
	return doc, nil
}

// upcoming finds a sale like this one, of any day to come; none is no error.
func (o organiser) upcoming(ctx context.Context, doc catalog.Document) (found imported, err error) {
	q := url.Values{"mine": {"true"}, "kind": {string(doc.Kind)}, "q": {doc.Title + " " + doc.Number}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(o.url, "/")+"/function/catalog?"+q.Encode(), nil)
	if err != nil {
		return found, err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	var list struct {
		Sales []imported `json:"sales"`
	}
	if _, err := call(req, &list); err != nil {
		return found, err
	}
	for _, s := range list.Sales {
		if s.State == catalog.Open {
			return s, nil
		}
	}
	return found, nil
}
