package fn

import (
	"context"
	"encoding/json"
	"log/slog"

	"handler/function/shared/event"
	"handler/function/shared/id"
	"handler/function/shared/standby"
	"handler/function/shared/standby/line"
)

// Matcher gives what comes free to who waits.
func (a *App) Matcher() (*standby.Matcher, error) {
	return once(a, "matcher", func() (*standby.Matcher, error) {
		db, err := a.DB()
		if err != nil {
			return nil, err
		}
		alerts, err := a.Alerts()
		if err != nil {
			return nil, err
		}
		bus, err := a.Bus()
		if err != nil {
			return nil, err
		}
		lines, err := a.Lines()
		if err != nil {
			return nil, err
		}
		return standby.NewMatcher(db, alerts, aftermath{bus, lines}), nil
	})
}

// aftermath is what follows a match: `pay` is told to capture, and the queues in
// Redis are brought up to date.
type aftermath struct {
	bus   *event.Bus
	lines *line.Lines
}

// Seated implements standby.Aftermath.
func (a aftermath) Seated(ctx context.Context, sale int64) {
	data, err := json.Marshal(map[string]string{"sale": id.Format(sale)})
	if err == nil {
		err = a.bus.Nudge(event.OrderMatched, sale, data)
	}
	if err != nil {
		slog.WarnContext(ctx, "match: pay not told, reconcile will", "sale", sale, "error", err)
	}
	a.lines.MirrorSoon(sale)
}

// Considered implements standby.Aftermath.
func (a aftermath) Considered(ctx context.Context, sale int64, class string, outcomes []line.Outcome) {
	a.lines.Considered(ctx, sale, class, outcomes)
}
