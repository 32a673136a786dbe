package fn

import (
	"context"
	"time"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/room"
	"handler/function/shared/seat"
)

// busiest is how many intervals of a class the status document names.
const busiest = 5

// Tokens issues and verifies place and admit tokens (the secret room-key).
func (a *App) Tokens() (*room.Tokens, error) {
	return once(a, "tokens", func() (*room.Tokens, error) {
		ring, err := a.Keys("room-key")
		if err != nil {
			return nil, err
		}
		return room.NewTokens(ring, nil), nil
	})
}

// Room is the waiting rooms' service: join-room and admit-tick.
func (a *App) Room() (*room.Service, error) {
	return once(a, "room", func() (*room.Service, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		redis, err := a.Redis()
		if err != nil {
			return nil, err
		}
		bus, err := a.Bus()
		if err != nil {
			return nil, err
		}
		tokens, err := a.Tokens()
		if err != nil {
			return nil, err
		}
		draw, err := a.Keys("draw-secret")
		if err != nil {
			return nil, err
		}
		sales, err := a.Sales()
		if err != nil {
			return nil, err
		}
		maps, err := a.Maps()
		if err != nil {
			return nil, err
		}
		releases, err := a.Releases()
		if err != nil {
			return nil, err
		}
		replicas := 3
		if a.Config.Test {
			replicas = 1
		}
		return room.New(room.Options{
			DB: db, Redis: redis, Bus: bus, Tokens: tokens, Draw: draw, StreamReplicas: replicas, Standby: true,
			Count: func(ctx context.Context, id int64) (room.Count, error) { return count(ctx, sales, maps, id) },
			RoomOf: func(ctx context.Context, id int64) (int64, error) {
				sale, err := sales.Sale(ctx, id)
				if err != nil {
					return 0, err
				}
				if sale.State == catalog.Draft {
					return 0, problem.New(problem.NotFound, "There is no such sale.")
				}
				return sale.Room, nil
			},
			Used: func(ctx context.Context, ids []int64, admission int64) (bool, error) {
				return booking.PaidBy(ctx, db, ids, admission)
			},
			ExpireHolds: func(ctx context.Context) (int, error) { return endHolds(ctx, db, releases) },
		}), nil
	})
}

// count is what a sale has left by its map.
func count(ctx context.Context, sales *catalog.Reader, maps *seat.Maps, id int64) (room.Count, error) {
	sale, err := sales.Sale(ctx, id)
	if err != nil {
		return room.Count{}, err
	}
	m, err := maps.Get(ctx, sale)
	if err != nil {
		return room.Count{}, err
	}
	if m.Stale {
		return room.Count{}, problem.New(problem.Unavailable, "Under maintenance, you keep your place")
	}
	now := time.Now()
	c := room.Count{
		Open:  sale.State == catalog.Open && !now.Before(sale.OpensAt) && now.Before(sale.ClosesAt),
		Ended: sale.State == catalog.Closed || sale.State == catalog.Cancelled || !now.Before(sale.ClosesAt),
	}
	for _, class := range sale.Classes {
		left := room.ClassLeft{Class: class.ID, Left: m.LeftAny(class.ID), Whole: m.Left(class.ID, 1, sale.Legs)}
		if sale.Legs > 1 {
			for _, i := range m.Busiest(class.ID, busiest) {
				left.Busiest = append(left.Busiest, room.IntervalLeft{From: sale.Stops[i.LegFrom-1].ID, To: sale.Stops[i.LegTo].ID, Left: i.Left})
			}
		}
		c.Left += left.Left
		c.Classes = append(c.Classes, left)
	}
	return c, nil
}

// SaleRoom reads `room` or `sale` of a request to join-room, exactly one of which
// is given, as the room's id.
func SaleRoom(ctx context.Context, rooms *room.Service, roomID, saleID string) (int64, error) {
	switch {
	case (roomID == "") == (saleID == ""):
		return 0, problem.Invalid("room", "exactly one of room and sale must be given")
	case roomID != "":
		return publicID("room", roomID)
	}
	sale, err := publicID("sale", saleID)
	if err != nil {
		return 0, err
	}
	return rooms.RoomFor(ctx, sale)
}

func publicID(field, s string) (int64, error) {
	n, ok := catalog.ParseID(s)
	if !ok {
		return 0, problem.Invalid(field, "must be an id as the catalogue gives it, a number")
	}
	return n, nil
}
