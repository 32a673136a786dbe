package fn

import "handler/function/shared/standby"

// Orders makes and reads standby orders. After each change the queues in Redis are
// brought up to date, and `match` is told.
func (a *App) Orders() (*standby.Orders, error) {
	return once(a, "orders", func() (*standby.Orders, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		ids, err := a.IDs()
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
		lines, err := a.Lines()
		if err != nil {
			return nil, err
		}
		orders := standby.NewOrders(db, ids, sales, maps)
		orders.OnChange(lines, lines.Reachable)
		orders.ShowPlaces(lines)
		return orders, nil
	})
}
