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

// modeKept is how long a replica believes what it read about a room's mode.
const modeKept = time.Second

// modes remembers which rooms are switched off.
type modes struct {
	mu  sync.Mutex
	all map[int64]mode
}

type mode struct {
	off bool
	at  time.Time
}

// Admission is the admission that the caller shows for a sale: verified by its
// signature alone, before anything asks Postgres (law 7). The zero Admit is for
// sales without a room, or with one that is switched off, and for sellers of the
// sale's own organisation. what is room.ForHold or room.ForStandby. Errors:
// admit-required, admit-expired, admit-other, bad-token.
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
	if err != nil && app.roomOff(ctx, sale.Room) {
		return room.Admit{}, nil
	}
	return admit, err
}

// roomOff says whether a room is switched off, as read at most once a second.
// While Postgres is away the last answer stands.
func (a *App) roomOff(ctx context.Context, id int64) bool {
	known, err := once(a, "modes", func() (*modes, error) { return &modes{all: map[int64]mode{}}, nil })
	if err != nil {
		return false
	}
	known.mu.Lock()
	defer known.mu.Unlock() // one look at a time: the others read its answer
	m := known.all[id]
	if time.Since(m.at) < modeKept {
		return m.off
	}
	db, err := a.DB()
	if err != nil {
		return false
	}
	loaded, err := room.Load(ctx, db, id)
	if err == nil || problem.Is(err, problem.NotFound) {
		m.off = err == nil && loaded.Mode == room.Off
	}
	m.at = time.Now()
	known.all[id] = m
	return m.off
}
