package line

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// outcomesKept is how many outcomes of a class are kept in Redis.
const outcomesKept = 50

// Outcome is what became of a release that `match` considered. It is stored with
// the release (seat_release.outcome) and, the last ones, beside the queues.
type Outcome struct {
	Event  string    `json:"event"` // the release's type
	At     time.Time `json:"at"`
	From   int       `json:"from"` // legs that came free, 1-based and inclusive
	To     int       `json:"to"`
	Gaps   [][2]int  `json:"gaps"` // free runs of the seat that were offered
	Served []Served  `json:"served"`
	Kept   []int64   `json:"kept"` // scores of the groups that it is kept for
}

// Served is one order that got the seat, or a part of a group.
type Served struct {
	From     int   `json:"from"`
	To       int   `json:"to"`
	Quantity int   `json:"quantity"`
	Score    int64 `json:"score"`
	Exact    bool  `json:"exact"` // from the queue of exactly the legs that came free
}

// Why says what became of the last release that touched an interval.
type Why struct {
	At       time.Time
	Event    string   // the release's type
	From, To int      // the free run of legs that touched the interval
	Freed    [2]int   // the legs of it that this release freed: from, to
	Reason   string   // one of the codes below
	Served   []Served // who got the seat; none for Kept and Sale
}

// Reasons why a release passed an order by.
const (
	ReasonSameQueue = "same-queue" // someone ahead in the same queue got it
	ReasonExact     = "exact"      // the queue of exactly the legs that came free was first
	ReasonFuller    = "fuller"     // orders that fill more of the free legs
	ReasonGroup     = "group"      // this order needs more seats than were free
	ReasonPart      = "part"       // only a part of this order's legs came free
	ReasonKept      = "kept"       // kept for a group that was passed too often
	ReasonYours     = "yours"      // kept for this order, whose other seats are still missing
	ReasonSale      = "sale"       // nobody who waited could use it
)

// Considered puts what became of releases of a class, the newest last, where
// positions are read. It is called after the commit; when it is lost, reconcile
// restores it.
func (l *Lines) Considered(ctx context.Context, sale int64, class string, outcomes []Outcome) {
	values := make([]any, 0, len(outcomes))
	for _, o := range outcomes[max(0, len(outcomes)-outcomesKept):] {
		if len(o.Gaps) == 0 {
			continue // it had been taken again: nobody was passed by
		}
		b, err := json.Marshal(o)
		if err != nil {
			slog.ErrorContext(ctx, "standby: an outcome that is no JSON", "sale", sale, "error", err)
			return
		}
		values = append(values, b)
	}
	if err := l.say(ctx, sale, class, values); err != nil {
		slog.WarnContext(ctx, "standby: outcomes not kept beside the queues", "sale", sale, "class", class, "error", err)
	}
}

func (l *Lines) say(ctx context.Context, sale int64, class string, values []any) error {
	if len(values) == 0 {
		return nil
	}
	return l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		pipe.LPush(ctx, saidKey(sale, class), values...)
		pipe.LTrim(ctx, saidKey(sale, class), 0, outcomesKept-1)
		pipe.Expire(ctx, saidKey(sale, class), keep)
		_, err := pipe.Exec(ctx)
		return err
	})
}

// heard reads outcomes, the newest first. One that cannot be read is left out.
func heard(values []string) []Outcome {
	all := make([]Outcome, 0, len(values))
	for _, v := range values {
		var o Outcome
		if json.Unmarshal([]byte(v), &o) == nil {
			all = append(all, o)
		}
	}
	slices.SortStableFunc(all, func(a, b Outcome) int { return b.At.Compare(a.At) })
	return all
}

// why explains to the order with this score in queue q what became of the last
// release that touched its interval; nil when there is none. lookedAt says whether it
// is among the first of its queue, which are all that `match` looks at.
func why(said []Outcome, q Queue, score int64, lookedAt bool) *Why {
	for _, o := range said {
		for _, g := range o.Gaps {
			if g[0] <= q.To && q.From <= g[1] {
				return &Why{At: o.At, Event: o.Event, From: g[0], To: g[1], Freed: [2]int{o.From, o.To}, Served: o.Served, Reason: o.reason(g, q, score, lookedAt)}
			}
		}
	}
	return nil
}

// reason is why a gap passed the order by.
func (o Outcome) reason(gap [2]int, q Queue, score int64, lookedAt bool) string {
	var rival *Served // who got legs of the interval
	for i, s := range o.Served {
		if s.From == q.From && s.To == q.To {
			if s.Score < score {
				return ReasonSameQueue
			}
			// Someone behind in the same queue: a smaller group.
			return ReasonGroup
		}
		if s.From <= q.To && q.From <= s.To && (rival == nil || s.Exact) {
			rival = &o.Served[i]
		}
	}
	switch {
	case slices.Contains(o.Kept, score):
		return ReasonYours
	case gap[0] > q.From || gap[1] < q.To:
		return ReasonPart
	case rival != nil && rival.Exact:
		return ReasonExact
	case rival != nil:
		return ReasonFuller
	case len(o.Kept) > 0:
		return ReasonKept
	case lookedAt:
		// It was offered the whole interval and nobody else got it: one seat would
		// have been enough for a single person.
		return ReasonGroup
	}
	return ReasonSale
}
