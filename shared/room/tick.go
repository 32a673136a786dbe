package room

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/store"
)

const (
	// tickEvery is the interval of admit-tick; a replica that ran within it answers
	// from memory.
	tickEvery = 900 * time.Millisecond
	// tickRooms is how many rooms one replica ticks at a time.
	tickRooms = 4
	// soldOutAfter is how long counts must say none before the room stops (DESIGN 6).
	soldOutAfter = time.Second
	// closeGrace is how long the close waits for Redis or the stream, whichever is
	// away, to hear of everyone. Then it goes on with the other.
	closeGrace = 10 * time.Second
)

// Did is what a tick did.
type Did struct {
	Rooms    int `json:"rooms"`
	Draws    int `json:"draws"`
	Served   int `json:"served"`
	Restored int `json:"restored"`
	Holds    int `json:"holds_ended"`
}

type tickState struct {
	mu    sync.Mutex // held while this replica ticks
	holds sync.Mutex // held while it ends holds
	ended time.Time  // when it last began to, guarded by holds
	seen  sync.Mutex
	at    time.Time
	did   Did

	follow map[int64]follow // by room, guarded by seen
}

// follow is how far this replica has read a room's late numbers in the stream.
type follow struct {
	generation int64
	identity   string
	next       uint64
	lostAt     time.Time // when its map was found not to be whole; zero: it is
}

// Tick does what is due for every room, and ends holds. Calls may overlap, in
// one replica and in several: each room has a lease.
func (s *Service) Tick(ctx context.Context) (Did, error) {
	did, ok := s.tick.recent(s.Clock.Now())
	if ok {
		return did, nil
	}
	if !s.tick.mu.TryLock() {
		// A room takes long (the close of a large draw): no hold's end waits for it.
		if _, err := s.endHolds(ctx, s.Clock.Now()); err != nil {
			slog.Error("room: ending holds failed", "error", err)
		}
		return did, nil
	}
	defer s.tick.mu.Unlock()
	started := s.Clock.Now()

	did = Did{}
	var mu sync.Mutex
	var rooms []int64
	var group errgroup.Group
	group.Go(func() error {
		n, err := s.endHolds(ctx, started)
		mu.Lock()
		did.Holds += n
		mu.Unlock()
		return err
	})
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["due"])
		if err != nil {
			return err
		}
		rooms, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return Did{}, errors.Join(err, group.Wait())
	}
	var each errgroup.Group
	each.SetLimit(tickRooms)
	for _, room := range rooms {
		each.Go(func() error {
			part, err := s.tickRoom(ctx, room)
			mu.Lock()
			did.Rooms += part.Rooms
			did.Draws += part.Draws
			did.Served += part.Served
			did.Restored += part.Restored
			mu.Unlock()
			if err != nil && ctx.Err() == nil {
				slog.Error("room: the tick failed", "room", room, "error", err)
			}
			return nil // one room's trouble is no other's
		})
	}
	_ = each.Wait()
	if err := group.Wait(); err != nil {
		slog.Error("room: ending holds failed", "error", err)
	}
	s.tick.seen.Lock()
	s.tick.at, s.tick.did = started, did
	s.tick.seen.Unlock()
	return did, nil
}

// endHolds ends holds, unless this replica is at it or was within the interval.
func (s *Service) endHolds(ctx context.Context, now time.Time) (int, error) {
	if s.ExpireHolds == nil || !s.tick.holds.TryLock() {
		return 0, nil
	}
	defer s.tick.holds.Unlock()
	if now.Sub(s.tick.ended) < tickEvery {
		return 0, nil
	}
	s.tick.ended = now
	return s.ExpireHolds(ctx)
}

func (t *tickState) recent(now time.Time) (Did, bool) {
	t.seen.Lock()
	defer t.seen.Unlock()
	return t.did, !t.at.IsZero() && now.Sub(t.at) < tickEvery
}

// claimed is a room under this replica's lease.
type claimed struct {
	Room
	progress
	reserved     int64
	soldOutSince *time.Time
	tickedAt     *time.Time
	now          time.Time // of the database, when the lease was taken
	last         *document // nil: never ticked in this generation
}

// tickRoom moves one room on, if its lease is free and it is due.
func (s *Service) tickRoom(ctx context.Context, room int64) (did Did, err error) {
	r, err := s.claim(ctx, room)
	if r == nil || err != nil {
		return did, err
	}
	stored := false
	defer s.keepLease(room)()
	defer func() {
		if !stored {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			s.exec(ctx, "let-lease-go", room, s.owner)
		}
	}()
	did.Rooms = 1
	l := line{s.Redis, room, r.Generation}
	head, err := s.drawHead(ctx, room, r.Generation)
	if err != nil {
		return did, err
	}
	seen, redisErr := l.peek(ctx)
	if redisErr == nil {
		did.Restored += s.restorePhase(ctx, l, r, head, &seen)
	}
	if head == nil && !r.now.Before(r.DrawEndsAt) {
		if head, err = s.closeDraw(ctx, l, r, &seen, redisErr); err != nil {
			return did, err
		}
		if head != nil {
			did.Draws = 1
		}
	}
	lineDown := redisErr != nil
	if head != nil && redisErr == nil {
		ok, restored := s.restoreLate(ctx, l, r, head, &seen)
		did.Restored += restored
		lineDown = !ok
	}

	doc := s.document(r, head, seen)
	doc.LineDown = head != nil && lineDown
	next := s.move(ctx, r, head, seen, doc)
	did.Served = int(next.serving - r.serving)
	stored, err = s.storeTick(ctx, r, next, doc)
	if !stored || err != nil {
		return did, err
	}
	if redisErr == nil {
		if err := l.publish(ctx, doc.encode(), doc.State == Closed); err != nil {
			slog.Warn("room: the status is stored but not published", "room", room, "error", err)
		}
	}
	return did, nil
}

func (s *Service) exec(ctx context.Context, name string, args ...any) {
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		_, err := q.Exec(ctx, sql[name], args...)
		return err
	})
	if err != nil {
		slog.Warn("room: "+name, "error", err)
	}
}

func (s *Service) claim(ctx context.Context, room int64) (*claimed, error) {
	r := &claimed{}
	r.ID = room
	var lapse, admit int
	var status []byte
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["claim"], room, s.owner).Scan(&r.Generation, &r.Mode, &r.Paused, &r.Closed,
			&r.DrawOpensAt, &r.DrawEndsAt, &r.DrawCommitment, &r.AdmitPerSecond, &r.StandbyPerSecond, &lapse, &admit, &r.Sales,
			&r.reserved, &r.serving, &r.part, &r.lapsed, &r.runningMS, &r.soldOutSince, &r.tickedAt, &r.now, &status)
	})
	if store.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.Lapse, r.Admit = time.Duration(lapse)*time.Second, time.Duration(admit)*time.Second
	if len(status) > 0 {
		var d document
		if json.Unmarshal(status, &d) == nil && d.Generation == r.Generation {
			r.last = &d
		}
	}
	return r, nil
}

// keepLease renews the lease while a tick takes long (the close of a large
// draw), until the returned function is called.
func (s *Service) keepLease(room int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(2 * time.Second)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				s.exec(ctx, "renew", room, s.owner)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// drawHead is what is stored of a draw, without its list; nil before the close.
type drawHead struct {
	people int64
	hash   string
}

func (s *Service) drawHead(ctx context.Context, room, generation int64) (*drawHead, error) {
	var h drawHead
	var hash []byte
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["draw-head"], room, generation).Scan(&h.people, &hash)
	})
	if store.IsNoRows(err) {
		return nil, nil
	}
	h.hash = hex.EncodeToString(hash)
	return &h, err
}

// storedList is the list as Postgres has it; nil for none.
func (s *Service) storedList(ctx context.Context, room, generation int64) (*List, error) {
	var b []byte
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["draw-list"], room, generation).Scan(&b)
	})
	if store.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return readList(b)
}

// document begins the status of this tick.
func (s *Service) document(r *claimed, head *drawHead, seen peeked) *document {
	doc := &document{Mode: r.Mode, AdmitFor: "nobody", Status: Status{
		Room: strconv.FormatInt(r.ID, 10), DrawOpensAt: r.DrawOpensAt.UTC(), DrawEndsAt: r.DrawEndsAt.UTC(),
		Joined: seen.drawn, AdmitPerSecond: r.AdmitPerSecond, AsOf: r.now.UTC(), Generation: r.Generation,
		DrawCommitment: hex.EncodeToString(r.DrawCommitment), Sales: []SaleLeft{},
	}}
	if head != nil {
		doc.Listed = true
		doc.Drawn = &head.people
		doc.DrawListHash = head.hash
		if seed, ok := SeedFor(s.Draw, r.ID, r.Generation, r.DrawCommitment); ok {
			doc.DrawSeed = hex.EncodeToString(seed[:])
		}
		given, _ := seen.given()
		doc.Joined = head.people + given
	}
	if r.last != nil {
		doc.Joined = max(doc.Joined, r.last.Joined) // what a lost Redis forgot
	}
	return doc
}

// firstDocument is the status of a room before its first tick, by its settings
// alone; nil when they cannot be read.
func (s *Service) firstDocument(ctx context.Context, room int64) *document {
	r, err := Load(ctx, s.DB, room)
	if err != nil {
		return nil
	}
	now := s.Clock.Now()
	doc := s.document(&claimed{Room: r, now: now}, nil, peeked{})
	switch {
	case r.Closed || r.Mode == Off:
		doc.State = Closed
	case r.Paused:
		doc.State = Paused
	case now.Before(r.DrawOpensAt):
		doc.State = Before
	default:
		doc.State = Drawing
	}
	return doc
}

// counted is what the sales of a room have left, taken together.
type counted struct {
	open, soldOut, ended, failed bool
}

func (s *Service) count(ctx context.Context, r *claimed, doc *document) counted {
	c := counted{soldOut: true, ended: len(r.Sales) > 0}
	for _, sale := range r.Sales {
		n, err := s.Count(ctx, sale)
		if problem.Is(err, problem.NotFound) {
			c.ended = false // not made yet, or not after all
			continue
		}
		if err != nil {
			slog.Warn("room: a sale could not be counted", "sale", sale, "error", err)
			c.failed, c.ended = true, false
			if r.last != nil {
				for _, old := range r.last.Sales {
					if old.Sale == catalogID(sale) {
						doc.Sales = append(doc.Sales, old)
						c.soldOut = c.soldOut && old.SoldOut
					}
				}
			}
			continue
		}
		doc.Sales = append(doc.Sales, SaleLeft{Sale: catalogID(sale), Left: n.Left, SoldOut: n.Left == 0, Classes: n.Classes})
		c.ended = c.ended && n.Ended
		c.open = c.open || n.Open
		if n.Left > 0 || (!n.Open && !n.Ended) {
			c.soldOut = false
		}
	}
	c.soldOut = c.soldOut && len(doc.Sales) > 0
	return c
}

// move counts what is left, decides the room's state, and moves serving and
// lapsed on. It fills the document and returns what is to be stored.
func (s *Service) move(ctx context.Context, r *claimed, head *drawHead, seen peeked, doc *document) moved {
	c := s.count(ctx, r, doc)
	m := moved{progress: r.progress}
	if c.soldOut {
		since := r.now
		if r.soldOutSince != nil {
			since = *r.soldOutSince
		}
		m.soldOutSince = &since
	}
	stopped := c.soldOut && r.now.Sub(*m.soldOutSince) >= soldOutAfter
	doc.SoldOut = c.soldOut
	switch {
	case r.Closed, r.Mode == Off, c.ended:
		doc.State = Closed
	case r.Paused:
		doc.State = Paused
	case r.now.Before(r.DrawOpensAt):
		doc.State = Before
	case head == nil:
		doc.State = Drawing
	case c.soldOut && stopped && s.Standby:
		doc.State, doc.AdmitFor = Standby, ForStandby
	case c.soldOut:
		doc.State = SoldOut
		if !stopped {
			doc.AdmitFor = ForHold
		}
	default:
		doc.State, doc.AdmitFor = Admitting, ForHold
	}
	// Served people can come, so the line moves and their time runs: not while
	// nobody is let in, nor while hold cannot work (a count that fails says so, and
	// while Postgres is away there is no tick at all).
	doc.Moving = head != nil && !c.failed && ((doc.State == Admitting && c.open) || doc.State == Standby)
	if head != nil && !doc.Moving && doc.State == Admitting && !c.open {
		doc.AdmitFor = "nobody" // the sale opens later
	}
	if doc.Moving {
		rate := r.AdmitPerSecond
		if doc.State == Standby {
			rate = r.StandbyPerSecond
		}
		m.progress, m.trail, m.prune = s.moveOn(ctx, r, head, seen, rate)
	}
	doc.Serving, doc.Lapsed = m.serving, m.lapsed
	return m
}

// moved is what a tick stores.
type moved struct {
	progress
	soldOutSince *time.Time
	trail        bool  // the trail gets a point
	prune        int64 // points before this running time go; 0: none
}

func (s *Service) moveOn(ctx context.Context, r *claimed, head *drawHead, seen peeked, rate float64) (progress, bool, int64) {
	var elapsed time.Duration
	if r.tickedAt != nil && r.last != nil && r.last.Moving {
		elapsed = r.now.Sub(*r.tickedAt)
	} else {
		elapsed = time.Second // the first tick of a line that moves
	}
	end := head.people + r.reserved
	if given, known := seen.given(); known {
		end = head.people + given
	}
	trail, err := s.trail(ctx, r.ID, r.Generation)
	if err != nil {
		slog.Warn("room: the trail could not be read", "room", r.ID, "error", err)
		return r.progress, false, 0
	}
	if after, upTo := window(r.progress, trail); upTo > after {
		var came int64
		err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["came"], r.ID, r.Generation, after, upTo).Scan(&came)
		})
		if err == nil {
			rate *= boost(upTo-after, came)
		}
	}
	p := r.progress.advance(elapsed, rate, end, r.Lapse, trail)
	point := p.serving > 0 && (len(trail) == 0 ||
		p.serving > trail[len(trail)-1].serving && p.runningMS-trail[len(trail)-1].runningMS >= trailStep(r.Lapse).Milliseconds())
	var prune int64
	keep := p.runningMS - max(r.Lapse, showUpWindow+2*pollSpan).Milliseconds()
	for _, t := range trail {
		if t.runningMS <= keep {
			prune = t.runningMS // the newest point as old as that stays
		}
	}
	return p, point, prune
}

func (s *Service) trail(ctx context.Context, room, generation int64) (points []trailPoint, err error) {
	err = s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["trail"], room, generation)
		if err != nil {
			return err
		}
		points, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t trailPoint, err error) {
			err = row.Scan(&t.runningMS, &t.serving)
			return t, err
		})
		return err
	})
	return points, err
}

// storeTick stores what was moved, in one transaction; false when the lease or
// the generation was lost meanwhile: then nothing is published.
func (s *Service) storeTick(ctx context.Context, r *claimed, m moved, doc *document) (stored bool, err error) {
	err = s.DB.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql["store"], r.ID, r.Generation, s.owner, m.serving, m.part, m.lapsed, m.runningMS,
			doc.AdmitFor, m.soldOutSince, doc.encode())
		if err != nil {
			return err
		}
		if stored = tag.RowsAffected() == 1; !stored {
			return nil
		}
		if m.trail {
			if _, err := tx.Exec(ctx, sql["trail-add"], r.ID, r.Generation, m.runningMS, m.serving); err != nil {
				return err
			}
		}
		if m.prune > 0 {
			_, err = tx.Exec(ctx, sql["trail-prune"], r.ID, r.Generation, m.prune)
		}
		return err
	})
	return stored && err == nil, err
}

// catalogID is a sale's public id.
func catalogID(sale int64) string { return strconv.FormatInt(sale, 10) }

// parseID reads an id that this package wrote.
func parseID(s string) int64 {
	n, _ := catalog.ParseID(s)
	return n
}
