package fn

import (
	"context"
	"errors"
	"log/slog"

	"handler/function/shared/booking"
	"handler/function/shared/event"
	"handler/function/shared/payment"
	"handler/function/shared/release"
	"handler/function/shared/store"
)

// Releases tells of seats that came free.
func (a *App) Releases() (*release.Service, error) {
	return once(a, "releases", func() (*release.Service, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		bus, err := a.Bus()
		if err != nil {
			return nil, err
		}
		alerts, err := a.Alerts()
		if err != nil {
			return nil, err
		}
		return release.New(db, bus, alerts), nil
	})
}

// Exchanges gives bookings other seats.
func (a *App) Exchanges() (*payment.Exchanges, error) {
	return once(a, "exchanges", func() (*payment.Exchanges, error) {
		payments, err := a.Payments()
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
		return payment.NewExchanges(payments, sales, maps), nil
	})
}

// endHolds moves ended holds to expired, of every sale, and tells of their seats
// and of whatever else nobody was told of. Without NATS only the telling waits.
func endHolds(ctx context.Context, db *store.DB, releases *release.Service) (int, error) {
	n, err := booking.ExpireEnded(ctx, db, 0)
	if _, told := releases.TellAll(ctx); told != nil && !errors.Is(told, event.ErrDown) {
		slog.WarnContext(ctx, "releases left to the next tick", "error", told)
	}
	return n, err
}
