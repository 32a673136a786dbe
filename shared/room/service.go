package room

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"handler/function/shared/clock"
	"handler/function/shared/event"
	"handler/function/shared/key"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

// Options are what a Service stands on. DB, Redis, Bus, Tokens and Draw are
// required.
type Options struct {
	DB     *store.DB
	Redis  *queue.Client
	Bus    *event.Bus
	Tokens *Tokens
	Draw   key.Ring    // the secret `draw-secret`
	Clock  clock.Clock // the system's if nil

	// Count counts what the open sale may still sell of a sale. Needed by the tick.
	Count func(ctx context.Context, sale int64) (Count, error)
	// RoomOf is the room in front of a sale, 0 for none; not-found for no such sale.
	RoomOf func(ctx context.Context, sale int64) (int64, error)
	// Used says whether an admission has a booking that is booked in one of the sales.
	Used func(ctx context.Context, sales []int64, admission int64) (bool, error)
	// ExpireHolds moves ended holds of every open sale to expired and says how many.
	ExpireHolds func(ctx context.Context) (int, error)

	// Standby lets a sold-out room admit on to standby; without it the room stops.
	Standby bool
	// StreamReplicas of the stream JOINS when it has to be made: 3 in production.
	StreamReplicas int
}

// Count is what one sale has left.
type Count struct {
	Open    bool // may be bought from now
	Ended   bool // will never be again
	Left    int
	Classes []ClassLeft
}

// Service answers for all rooms in one replica. It is safe for concurrent use.
type Service struct {
	Options
	joins     *joins
	buckets   *queue.Buckets
	strangers *queue.Buckets // this replica's own
	owner     string         // names this replica in leases
	flights   singleflight.Group
	admits    *queue.Gather[admitAsk, admitted]
	issued    *memory
	listing   sync.Mutex // held while a page of a list is written

	mu    sync.Mutex
	views map[int64]*view
	rooms map[int64]known // by sale

	tick tickState
}

type known struct {
	room int64
	at   time.Time
}

const (
	statusKept  = 500 * time.Millisecond // of a status in a replica (DESIGN 6)
	slowKept    = time.Second            // when it must come from Postgres
	unknownKept = 5 * time.Second        // that there is no such room
	roomOfKept  = 10 * time.Second
	maxViews    = 10_000

	strangerRate, strangerBurst = 20.0, 100 // looks into Postgres for rooms not known, a replica
)

// New makes a Service.
func New(o Options) *Service {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	s := &Service{
		Options: o, joins: newJoins(o.Bus, o.StreamReplicas), buckets: queue.NewBuckets(o.Redis, o.Clock), strangers: queue.NewBuckets(nil, o.Clock),
		owner: randomName(), issued: newMemory(memoryMax), views: map[int64]*view{}, rooms: map[int64]known{},
	}
	s.admits = queue.NewGather(admitBatch, 2, s.admitAll)
	return s
}

func randomName() string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	b := make([]byte, 16)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}

// view is what this replica knows of one room. Its document, list and seed are
// replaced, never written.
type view struct {
	room  int64
	joins *queue.Gather[person, taken] // of the present generation

	loading  atomic.Bool
	mu       sync.Mutex
	missing  bool      // there is no such room
	loadedAt time.Time // zero: never
	tickedAt time.Time // when this replica last tried to run the tick for it
	snapshot *snapshot
}

// snapshot is one status with all that is derived from it.
type snapshot struct {
	doc    *document
	fresh  bool      // from Redis; else from Postgres or memory
	newAt  time.Time // when this replica first saw this document: clocks differ
	public []byte    // the status as JSON, as of its loading
	seed   [32]byte
	marks  *sync.Pool // of markers of this generation
	list   *List      // nil until it is stored and fetched
	line   line
	sales  []int64
}

func (s *Service) view(room int64) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.views[room]
	if !ok {
		if len(s.views) >= maxViews {
			for id := range s.views { // a replica serves few rooms: these are guesses
				delete(s.views, id)
				if len(s.views) < maxViews/2 {
					break
				}
			}
		}
		v = &view{room: room}
		v.joins = queue.NewGather(joinBatch, 2, func(people []person) ([]taken, error) { return s.runJoins(v, people) })
		s.views[room] = v
	}
	return v
}

// look is the room's snapshot, at most half a second old where that can be had (a
// second for who comes while it is being fetched).
// Errors: not-found; unavailable when nothing is known of the room and neither
// Redis nor Postgres answers.
func (s *Service) look(ctx context.Context, room int64) (*snapshot, error) {
	if room <= 0 || room > MaxID {
		return nil, notFound()
	}
	v := s.view(room)
	for range 2 {
		snap, missing, age := v.known(s.Clock.Now())
		kept := statusKept
		if missing {
			kept = unknownKept
		} else if snap != nil && (!snap.fresh || snap.doc.State == Closed) {
			kept = slowKept
		}
		if age < kept {
			if missing {
				return nil, notFound()
			}
			return snap, nil
		}
		if snap != nil && age < 2*kept && v.loading.Load() {
			return snap, nil // whoever asked first fetches; the crowd does not stand still for it
		}
		done := s.flights.DoChan("look:"+string(decimal(room)), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			v.loading.Store(true)
			defer v.loading.Store(false)
			return nil, s.load(ctx, v)
		})
		select {
		case r := <-done:
			if r.Err != nil {
				return nil, r.Err
			}
			snap, missing, _ = v.known(s.Clock.Now())
			if missing {
				return nil, notFound()
			}
			if snap != nil {
				return snap, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, busy()
}

func (v *view) known(now time.Time) (snap *snapshot, missing bool, age time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.loadedAt.IsZero() {
		return nil, false, time.Hour
	}
	return v.snapshot, v.missing, now.Sub(v.loadedAt)
}

func (v *view) keep(now time.Time, snap *snapshot, missing bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.loadedAt, v.missing = now, missing
	if snap != nil || missing {
		v.snapshot = snap
	}
}

// forget makes the next look load anew. What was known stays until then: a batch
// of joins that runs meanwhile must not find nothing, and the list is not
// fetched again.
func (v *view) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.loadedAt.IsZero() {
		v.loadedAt = time.Unix(0, 0)
	}
}

// load fetches the status: from Redis, else from Postgres, else what was known
// stays, not fresh. One load at a time runs for each room.
func (s *Service) load(ctx context.Context, v *view) error {
	now := s.Clock.Now()
	last, _, _ := v.known(now)
	doc, gone, err := s.fromRedis(ctx, v.room)
	fresh := err == nil
	if doc == nil && last == nil {
		// A room that nobody has published, or a guess: guesses must stay cheap.
		if ok, after := s.strangers.Take(ctx, "", strangerRate, strangerBurst); !ok {
			return problem.New(problem.TooManyRequests, "Too many requests. Please wait a moment.").After(after)
		}
	}
	if doc == nil {
		stored, missing, dberr := s.fromPostgres(ctx, v.room)
		switch {
		case dberr == nil && missing:
			v.keep(now, nil, true)
			return nil
		case dberr == nil && stored == nil, dberr == nil && fresh && stored.State != Closed && now.Sub(stored.AsOf) > staleAfter:
			// Never ticked, or not for a while: nobody publishes.
			if s.tickFor(ctx, v) {
				if doc, gone, _ = s.fromRedis(ctx, v.room); doc == nil {
					doc, _, _ = s.fromPostgres(ctx, v.room)
				}
			}
			if doc == nil {
				doc = stored
			}
			if doc == nil { // another replica is at its first tick just now
				doc = s.firstDocument(ctx, v.room)
			}
		case dberr == nil:
			doc = stored
		}
		if doc != nil && doc.State == Closed {
			fresh = true // its last word, wherever it is kept
		}
	}
	if doc == nil {
		if last == nil {
			return busy()
		}
		again := *last
		again.fresh = false
		again.public = again.encode(now)
		v.keep(now, &again, false)
		s.tickOld(v, &again)
		return nil
	}
	if last != nil && last.doc.Generation > doc.Generation {
		v.keep(now, last, false) // an older Redis: what we know is newer
		return nil
	}
	snap, err := s.snapshot(ctx, v.room, doc, gone, fresh, last)
	if err != nil {
		return err
	}
	snap.public = snap.encode(now)
	v.keep(now, snap, false)
	s.tickOld(v, snap)
	return nil
}

// tickOld runs the tick beside the request for a room that nobody ticks.
func (s *Service) tickOld(v *view, snap *snapshot) {
	if !s.old(snap) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.tickFor(ctx, v)
	}()
}

// old says whether a room's status has not been renewed for too long.
func (s *Service) old(sn *snapshot) bool {
	return sn.doc.State != Closed && s.Clock.Now().Sub(sn.newAt) > staleAfter
}

// tickFor runs the tick for a room that nobody has ticked, at most once a second
// in each replica, and says whether it ran.
func (s *Service) tickFor(ctx context.Context, v *view) bool {
	now := s.Clock.Now()
	v.mu.Lock()
	due := now.Sub(v.tickedAt) >= tickEvery
	if due {
		v.tickedAt = now
	}
	v.mu.Unlock()
	if !due || s.Count == nil {
		return false
	}
	if _, err := s.tickRoom(ctx, v.room); err != nil {
		slog.Warn("room: the tick failed", "room", v.room, "error", err)
		return false
	}
	return true
}

func (s *Service) snapshot(ctx context.Context, room int64, doc *document, gone string, fresh bool, last *snapshot) (*snapshot, error) {
	snap := &snapshot{doc: doc, fresh: fresh, newAt: s.Clock.Now(), line: line{s.Redis, room, doc.Generation}}
	switch {
	case last == nil && doc.AsOf.Before(snap.newAt):
		snap.newAt = doc.AsOf
	case last != nil && last.doc.AsOf.Equal(doc.AsOf):
		snap.newAt = last.newAt
	}
	for _, sale := range doc.Sales {
		snap.sales = append(snap.sales, parseID(sale.Sale))
	}
	snap.markGone(gone)
	if last != nil && last.doc.Generation == doc.Generation {
		snap.seed, snap.marks, snap.list = last.seed, last.marks, last.list
	} else {
		seed, ok := SeedFor(s.Draw, room, doc.Generation, doc.commitment())
		if !ok {
			return nil, errors.New("room: no key of draw-secret made this room's commitment")
		}
		snap.seed = seed
		generation := doc.Generation
		snap.marks = &sync.Pool{New: func() any { return marker(seed, room, generation) }}
	}
	if doc.Listed && snap.list == nil {
		list, err := s.fetchList(ctx, snap.line, doc.DrawListHash)
		if err != nil {
			return nil, err
		}
		snap.list = list
	}
	return snap, nil
}

func (sn *snapshot) encode(now time.Time) []byte {
	return encodeStatus(sn.doc.at(now, sn.fresh && now.Sub(sn.newAt) <= staleAfter))
}

// fetchList reads the frozen list once for this replica: from Redis, else from
// Postgres; the hash says that it is the right one.
func (s *Service) fetchList(ctx context.Context, l line, hash string) (*List, error) {
	if list, err := l.list(ctx); err == nil && list.Hash() == hash {
		return list, nil
	}
	list, err := s.storedList(ctx, l.room, l.generation)
	if err != nil {
		return nil, err
	}
	if list == nil || list.Hash() != hash {
		return nil, errors.New("room: the stored list is not the published one")
	}
	return list, nil
}

// Status is the room's public status as JSON, and whether it is a closed room's
// last word.
func (s *Service) Status(ctx context.Context, room int64) ([]byte, error) {
	snap, err := s.look(ctx, room)
	if err != nil {
		return nil, err
	}
	return snap.public, nil
}

// ListPage is a page (from 0) of the public list of a generation. Errors:
// room-reset for an older generation, not-found before the list is stored and
// for pages it does not have, too-many-requests while another page is written.
func (s *Service) ListPage(ctx context.Context, room, generation int64, page int) ([]byte, error) {
	snap, err := s.look(ctx, room)
	if err != nil {
		return nil, err
	}
	switch {
	case generation < snap.doc.Generation:
		return nil, WasReset()
	case generation > snap.doc.Generation || snap.list == nil:
		return nil, problem.New(problem.NotFound, "The list of this draw is not there yet.")
	case page < 0 || page >= max(1, snap.list.Pages()):
		return nil, problem.New(problem.NotFound, "The list has no such page.")
	}
	if !s.listing.TryLock() {
		return nil, problem.New(problem.TooManyRequests, "Too many requests. Please wait a moment.").After(time.Second)
	}
	defer s.listing.Unlock()
	return snap.list.Page(page*PageScores, PageScores), nil
}

// RoomFor is the room in front of a sale. Errors: not-found for no such sale,
// wrong-state for a sale without a room.
func (s *Service) RoomFor(ctx context.Context, sale int64) (int64, error) {
	now := s.Clock.Now()
	s.mu.Lock()
	k, ok := s.rooms[sale]
	s.mu.Unlock()
	if !ok || now.Sub(k.at) >= roomOfKept {
		room, err := s.RoomOf(ctx, sale)
		switch {
		case err == nil:
			k = known{room, now}
			s.mu.Lock()
			if len(s.rooms) >= maxViews {
				clear(s.rooms)
			}
			s.rooms[sale] = k
			s.mu.Unlock()
		case !ok || !problem.Is(err, problem.Unavailable):
			return 0, err
		}
	}
	if k.room == 0 {
		return 0, problem.New(problem.WrongState, "This sale has no waiting room: hold directly.")
	}
	return k.room, nil
}

// SoldOut tells the people of a room, at their next poll, that a hold took the
// last of a sale; the next count decides. It is a hint and may be lost.
func (s *Service) SoldOut(ctx context.Context, room, sale int64) error {
	return line{client: s.Redis, room: room}.sayGone(ctx, sale)
}

func busy() error {
	return problem.New(problem.Unavailable, "System busy, please wait").After(2 * time.Second)
}

// WasReset is the problem of who shows a place or an admission of an older
// generation.
func WasReset() error {
	return problem.New(problem.RoomReset, "The waiting room was reset. Please join again.")
}
