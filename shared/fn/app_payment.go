package fn

import (
	"errors"

	"handler/function/shared/alert"
	"handler/function/shared/idempotency"
	"handler/function/shared/outbox"
	"handler/function/shared/payment"
	"handler/function/shared/reconcile"
	"handler/function/shared/sandbox"
)

// Alerts is where trouble is put up; the secret alert-url, where it is mounted,
// names an address that gets each new alert.
func (a *App) Alerts() (*alert.Board, error) {
	return once(a, "alerts", func() (*alert.Board, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		url, err := a.OptionalSecret("alert-url")
		if err != nil {
			return nil, err
		}
		return alert.New(db, url), nil
	})
}

// Outbox is the outbox of every sale.
func (a *App) Outbox() (*outbox.Box, error) {
	return once(a, "outbox", func() (*outbox.Box, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		alerts, err := a.Alerts()
		if err != nil {
			return nil, err
		}
		return outbox.New(db, alerts), nil
	})
}

// Idempotency keeps the answers of requests that call the outside.
func (a *App) Idempotency() (*idempotency.Store, error) {
	return once(a, "idempotency", func() (*idempotency.Store, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		return idempotency.New(db), nil
	})
}

// Payments takes money and gives it back. The sandbox gateway is there where
// HOLDFAST_SANDBOX_URL says so and HOLDFAST_ENV says test.
func (a *App) Payments() (*payment.Service, error) {
	return once(a, "payments", func() (*payment.Service, error) {
		o := payment.Options{Test: a.Config.Test}
		var err error
		if o.DB, err = a.DB(); err != nil {
			return nil, err
		}
		if o.IDs, err = a.IDs(); err != nil {
			return nil, err
		}
		if o.Alerts, err = a.Alerts(); err != nil {
			return nil, err
		}
		if o.Bus, err = a.Bus(); err != nil {
			return nil, err
		}
		if o.Releases, err = a.Releases(); err != nil {
			return nil, err
		}
		if o.Orders, err = a.Orders(); err != nil {
			return nil, err
		}
		if o.Gateways, err = a.gateways(); err != nil {
			return nil, err
		}
		return payment.New(o), nil
	})
}

func (a *App) gateways() ([]payment.Gateway, error) {
	var all []payment.Gateway
	if a.Config.SandboxURL != "" {
		if !a.Config.Test {
			return nil, errors.New("fn: HOLDFAST_SANDBOX_URL is set, but HOLDFAST_ENV is not test")
		}
		ring, err := a.Keys("sandbox-key")
		if err != nil {
			return nil, err
		}
		g, err := sandbox.New(a.Config.SandboxURL, ring)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// Reconcile is the safety net.
func (a *App) Reconcile() (*reconcile.Net, error) {
	return once(a, "reconcile", func() (*reconcile.Net, error) {
		var o reconcile.Options
		var err error
		if o.DB, err = a.DB(); err != nil {
			return nil, err
		}
		if o.Payments, err = a.Payments(); err != nil {
			return nil, err
		}
		if o.Outbox, err = a.Outbox(); err != nil {
			return nil, err
		}
		if o.Idempotency, err = a.Idempotency(); err != nil {
			return nil, err
		}
		if o.Releases, err = a.Releases(); err != nil {
			return nil, err
		}
		if o.Bus, err = a.Bus(); err != nil {
			return nil, err
		}
		if o.Redis, err = a.Redis(); err != nil {
			return nil, err
		}
		if o.Lines, err = a.Lines(); err != nil {
			return nil, err
		}
		return reconcile.New(o), nil
	})
}
