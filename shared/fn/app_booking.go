package fn

import (
	"context"
	"sync"
	"time"

	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/room"
)

// Bookings makes and reads bookings.
func (a *App) Bookings() (*booking.Service, error) {
	return once(a, "bookings", func() (*booking.Service, error) {
		db, err := a.DB()
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
		ids, err := a.IDs()
		if err != nil {
			return nil, err
		}
		return booking.New(db, sales, maps, ids), nil
	})
}

// lookKept is how long a replica believes what it read about a room.
const lookKept = time.Second

// looks remembers what was read about rooms.
type looks struct {
	mu  sync.Mutex
	all map[int64]look
}

type look struct {
	off        bool  // switched off
	generation int64 // 0: not known
	at         time.Time
}

// Admission is the admission that the caller shows for a sale: verified by its
// signature, and by what this replica knows of the room, which it reads at most
// once a second whoever calls (law 7). The zero Admit is for sales without a
// room, or with one that is switched off, and for sellers of the sale's own
// organisation. what is room.ForHold or room.ForStandby. Errors: admit-required,
// admit-expired, admit-other, bad-token, room-reset.
func (r *Request) Admission(ctx context.Context, app *App, sale *catalog.Sale, who account.Account, what string) (room.Admit, error) {
	if sale.Room == 0 || who.Role == account.Seller && who.Org == sale.Org {
		return room.Admit{}, nil
	}
	tokens, err := app.Tokens()
	if err != nil {
		return room.Admit{}, err
	}
	admit, err := tokens.VerifyAdmit(r.Header.Get("Admit-Token"))
	if err == nil {
		err = admit.Check(sale.Room, who.ID, what)
	}
	now := app.lookAt(ctx, sale.Room)
	switch {
	case err != nil && now.off:
		return room.Admit{}, nil
	case err == nil && admit.Generation < now.generation:
		return room.Admit{}, room.WasReset()
	}
	return admit, err
}

// lookAt is what is known of a room, read at most once a second. While one call
// reads it anew, and while Postgres is away, the last answer stands.
func (a *App) lookAt(ctx context.Context, id int64) look {
	known, err := once(a, "looks", func() (*looks, error) { return &looks{all: map[int64]look{}}, nil })
	if err != nil {
		return look{}
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	last := known.all[id]
	if time.Since(last.at) < lookKept {
		return last
	}
	db, err := a.DB()
	if err != nil {
		return last
	}
	first := last.at.IsZero() // then the others wait for the answer
	last.at = time.Now()
	if !first {
		known.all[id] = last
		known.mu.Unlock()
	}
	loaded, err := room.Load(ctx, db, id)
	if !first {
		known.mu.Lock()
	}
	if err == nil || problem.Is(err, problem.NotFound) {
		last.off, last.generation = err == nil && loaded.Mode == room.Off, loaded.Generation
	}
	known.all[id] = last
	return last
}
