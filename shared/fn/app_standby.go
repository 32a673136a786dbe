package fn

import "handler/function/shared/standby/line"

// Lines are the queues of standby in Redis.
func (a *App) Lines() (*line.Lines, error) {
	return once(a, "lines", func() (*line.Lines, error) {
		var o line.Options
		var err error
		if o.DB, err = a.DB(); err != nil {
			return nil, err
		}
		if o.Redis, err = a.Redis(); err != nil {
			return nil, err
		}
		if o.Outbox, err = a.Outbox(); err != nil {
			return nil, err
		}
		if o.Bus, err = a.Bus(); err != nil {
			return nil, err
		}
		if o.Alerts, err = a.Alerts(); err != nil {
			return nil, err
		}
		return line.New(o), nil
	})
}
