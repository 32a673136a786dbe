package fn

import (
	"context"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/room"
	"handler/function/shared/seat"
)

// Maps are the replica's maps of seats.
func (a *App) Maps() (*seat.Maps, error) {
	return once(a, "maps", func() (*seat.Maps, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		redis, err := a.Redis()
		if err != nil {
			return nil, err
		}
		maps := seat.NewMaps(db, redis)
		maps.OnGone(func(ctx context.Context, sale *catalog.Sale) error {
			return room.SayGone(ctx, redis, sale.Room, sale.ID)
		})
		return maps, nil
	})
}

// listedFor is how much older than a second the counts of a list may be: a page
// of it shows many sales.
const listedFor = 3 * time.Second

// Left counts what a class has free on legs f..t, by the map; for the catalog.
func (a *App) Left() (catalog.Counter, error) {
	maps, err := a.Maps()
	if err != nil {
		return nil, err
	}
	sales, err := a.Sales()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, saleID int64, class string, f, t int) (int, bool) {
		m := maps.Fresh(saleID)
		if m == nil {
			sale, err := sales.Sale(ctx, saleID)
			if err != nil {
				return 0, false
			}
			if m, err = maps.Recent(ctx, sale, listedFor); err != nil {
				return 0, false
			}
		}
		return m.Left(class, f, t), true
	}, nil
}
