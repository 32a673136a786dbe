package fn

import (
	"context"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/room"
	"handler/function/shared/store"
)

// Sales is the replica's reader of sales.
func (a *App) Sales() (*catalog.Reader, error) {
	return once(a, "sales", func() (*catalog.Reader, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		return catalog.NewReader(db), nil
	})
}

// Catalog changes sales; it needs the secret draw-secret, as new rooms commit to
// their draw.
func (a *App) Catalog() (*catalog.Service, error) {
	return once(a, "catalog", func() (*catalog.Service, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		sales, err := a.Sales()
		if err != nil {
			return nil, err
		}
		secret, err := a.Keys("draw-secret")
		if err != nil {
			return nil, err
		}
		releases, err := a.Releases()
		if err != nil {
			return nil, err
		}
		return catalog.NewService(db, sales, rooms{db, secret}, clock.System, releases.Committed), nil
	})
}

// rooms is what the catalog asks of package room.
type rooms struct {
	db     *store.DB
	secret key.Ring
}

func (r rooms) Create(ctx context.Context, s catalog.RoomSettings) (int64, error) {
	settings := room.Settings{
		Draw: span(s.DrawSeconds), AdmitPerSecond: or(s.AdmitPerSecond), StandbyPerSecond: or(s.StandbyPerSecond),
		Lapse: or(span(s.LapseSeconds)), Admit: or(span(s.AdmitSeconds)), Mode: room.Mode(or(s.Mode)), DrawOpensAt: or(s.DrawOpensAt),
	}
	return room.Create(ctx, r.db, r.secret, settings)
}

func (r rooms) Attach(ctx context.Context, roomID, saleID int64) error {
	return room.Attach(ctx, r.db, roomID, saleID)
}

func (r rooms) Sales(ctx context.Context, roomID int64) ([]int64, error) {
	loaded, err := room.Load(ctx, r.db, roomID)
	return loaded.Sales, err
}

func (r rooms) Patch(ctx context.Context, roomID int64, p catalog.RoomPatch) error {
	change := room.Change{
		Paused: p.Paused, Closed: p.Closed, DrawOpensAt: p.DrawOpensAt, Draw: span(p.DrawSeconds),
		AdmitPerSecond: p.AdmitPerSecond, StandbyPerSecond: p.StandbyPerSecond, Lapse: span(p.LapseSeconds), Admit: span(p.AdmitSeconds),
	}
	if p.Mode != nil {
		mode := room.Mode(*p.Mode)
		change.Mode = &mode
	}
	return room.Patch(ctx, r.db, roomID, change)
}

func (r rooms) Reset(ctx context.Context, roomID int64) error {
	return room.Reset(ctx, r.db, r.secret, roomID)
}

// or is the value, or the zero value that stands for the room's default.
func or[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

func span(seconds *int) *time.Duration {
	if seconds == nil {
		return nil
	}
	d := time.Duration(*seconds) * time.Second
	return &d
}
