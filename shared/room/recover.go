package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"handler/function/shared/store"
)

// restorePhase gives a Redis that has lost it, or never had it, the room's meta
// key back: from the stored row, never from memory. It says how many it wrote.
func (s *Service) restorePhase(ctx context.Context, l line, r *claimed, head *drawHead, seen *peeked) int {
	want := phaseOpen
	switch {
	case head != nil:
		want = phaseListed
	case !r.now.Before(r.DrawEndsAt) || seen.phase == phaseClosed && seen.generation == string(decimal(r.Generation)):
		return 0 // the close sets it, and it stays closed
	}
	lostList := head != nil && seen.listBytes != 8*head.people
	if seen.generation == string(decimal(r.Generation)) && seen.phase == want && !lostList {
		return 0
	}
	var err error
	if head == nil {
		err = l.setPhase(ctx, want)
	} else {
		var list *List
		if list, err = s.storedList(ctx, l.room, l.generation); err == nil && list != nil {
			err = l.keepList(ctx, list)
		}
	}
	if err != nil {
		slog.Warn("room: the line could not be restored in Redis", "room", l.room, "error", err)
		return 0
	}
	return 1
}

// closeDraw freezes the draw: closed in Redis, marked in the stream, everyone
// whom either took before, stored once. It returns nil while it must wait for
// Redis or the stream. seen is brought up to date.
func (s *Service) closeDraw(ctx context.Context, l line, r *claimed, seen *peeked, redisErr error) (*drawHead, error) {
	grace := r.now.Before(r.DrawEndsAt.Add(closeGrace))
	if redisErr == nil {
		redisErr = l.setPhase(ctx, phaseClosed)
	}
	marker := message{Generation: r.Generation, Close: true}
	streamErr := s.joins.publish(ctx, l.room, marker, fmt.Sprintf("close-%d-%d", l.room, r.Generation))
	var people []string
	if redisErr == nil {
		var here []string
		if here, redisErr = l.people(ctx); redisErr == nil {
			people = append(people, here...)
		}
	}
	if streamErr == nil {
		var there []string
		if there, streamErr = s.joins.people(ctx, l.room, r.Generation); streamErr == nil {
			people = append(people, there...)
		}
	}
	switch {
	case redisErr != nil && streamErr != nil:
		return nil, fmt.Errorf("room: the draw cannot close without Redis and the stream: %w", errors.Join(redisErr, streamErr))
	case (redisErr != nil || streamErr != nil) && grace:
		slog.Warn("room: the close waits for everyone's joins", "room", l.room, "redis", redisErr, "stream", streamErr)
		return nil, nil
	}
	seed, ok := SeedFor(s.Draw, l.room, r.Generation, r.DrawCommitment)
	if !ok {
		return nil, errors.New("room: no key of draw-secret made this room's commitment")
	}
	list := draw(seed, l.room, r.Generation, people)
	first := false
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		tag, err := q.Exec(ctx, sql["store-draw"], l.room, r.Generation, list.Len(), list.bytes(), list.hash[:])
		first = err == nil && tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return nil, err
	}
	if !first {
		// Another was first, or the room was reset: its row is the list.
		if list, err = s.storedList(ctx, l.room, r.Generation); err != nil || list == nil {
			return nil, err
		}
	}
	if redisErr == nil {
		if redisErr = l.keepList(ctx, list); redisErr == nil && first && seen.identity != "" {
			// Until this moment no late number was given: the map is whole.
			redisErr = l.setWhole(ctx, seen.identity)
		}
		if redisErr == nil {
			*seen, redisErr = l.peek(ctx)
		}
	}
	if redisErr != nil {
		slog.Warn("room: the list is stored but not in Redis", "room", l.room, "error", redisErr)
	}
	return &drawHead{people: list.Len(), hash: list.Hash()}, nil
}

// restoreLate keeps the late numbers of this Redis right: after a loss or a
// promotion everyone's number is read back from the stream and a fresh block is
// reserved; numbers that an old master still gives are followed. ok is false
// while numbers can neither be told nor given.
func (s *Service) restoreLate(ctx context.Context, l line, r *claimed, head *drawHead, seen *peeked) (ok bool, restored int) {
	at := s.following(l, seen.identity)
	whole := seen.whole == seen.identity
	mine := ""
	if whole {
		mine = seen.identity // it has its own
		at.next = max(at.next, 1)
		at.lostAt = time.Time{}
	} else {
		// A join that was in the air when Redis was lost reaches the stream within
		// the time a publish may take: read only after that.
		if at.lostAt.IsZero() {
			at.lostAt = s.Clock.Now()
		}
		at.next = 1
		s.followed(l, at)
		if s.Clock.Now().Sub(at.lostAt) < publishWait {
			return false, 0
		}
	}
	numbers, next, err := s.joins.numbers(ctx, l.room, l.generation, at.next, mine)
	if err == nil {
		err = l.giveBack(ctx, numbers)
	}
	if err != nil && !whole {
		slog.Warn("room: late numbers could not be read back", "room", l.room, "error", err)
		return false, 0
	}
	if err == nil {
		at.next = next
		s.followed(l, at)
	}
	if !whole {
		if err := l.setWhole(ctx, seen.identity); err != nil {
			return false, 0
		}
		restored = 1
	}
	if size := blockSize(r.AdmitPerSecond, 0); seen.block != seen.identity || seen.numbers < size/2 {
		if err := s.reserve(ctx, l, seen.identity, r.AdmitPerSecond, 0); err != nil {
			slog.Warn("room: no late numbers could be reserved", "room", l.room, "error", err)
			return seen.block == seen.identity, restored
		}
		if again, err := l.peek(ctx); err == nil {
			*seen = again
		}
	}
	return true, restored
}

func (s *Service) following(l line, identity string) follow {
	s.tick.seen.Lock()
	defer s.tick.seen.Unlock()
	f := s.tick.follow[l.room]
	if f.generation != l.generation || f.identity != identity {
		f = follow{generation: l.generation, identity: identity}
	}
	return f
}

func (s *Service) followed(l line, f follow) {
	s.tick.seen.Lock()
	defer s.tick.seen.Unlock()
	if s.tick.follow == nil || len(s.tick.follow) > maxViews {
		s.tick.follow = map[int64]follow{}
	}
	s.tick.follow[l.room] = f
}

// blockSize is how many late numbers a block has: two seconds of the line, so
// that what a loss leaves unused delays nobody for longer, and what is needed now.
func blockSize(rate float64, need int) int64 {
	return int64(min(max(2*rate, 8), 2_000)) + int64(need)
}

// reserve takes a block of late numbers in Postgres and brings it to the Redis
// that needs it. Numbers of a block that does not arrive are never given.
func (s *Service) reserve(ctx context.Context, l line, identity string, rate float64, need int) error {
	if identity == "" {
		return errors.New("room: a block needs to know its Redis")
	}
	size := blockSize(rate, need)
	var last int64
	err := s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["reserve"], l.room, l.generation, size).Scan(&last)
	})
	if err != nil {
		return err
	}
	_, err = l.bringBlock(ctx, identity, last-size+1, last)
	return err
}

// fromRedis is the published document, nil when there is none.
func (s *Service) fromRedis(ctx context.Context, room int64) (*document, string, error) {
	b, gone, err := line{client: s.Redis, room: room}.status(ctx)
	if err != nil || len(b) == 0 {
		return nil, "", err
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, "", fmt.Errorf("room: the status in Redis: %w", err)
	}
	return &d, gone, nil
}

// fromPostgres is the stored document: nil when the room was never ticked;
// missing when there is no such room.
func (s *Service) fromPostgres(ctx context.Context, room int64) (d *document, missing bool, err error) {
	var b []byte
	err = s.DB.Do(ctx, func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["status"], room).Scan(&b)
	})
	switch {
	case store.IsNoRows(err):
		return nil, true, nil
	case err != nil || len(b) == 0:
		return nil, false, err
	}
	d = &document{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, false, fmt.Errorf("room: the stored status: %w", err)
	}
	return d, false, nil
}

// markGone shows a sale as sold out that a hold has just found so.
func (sn *snapshot) markGone(gone string) {
	if gone == "" {
		return
	}
	all := len(sn.doc.Sales) > 0
	for i := range sn.doc.Sales {
		sale := &sn.doc.Sales[i]
		if strings.Contains(gone, ","+sale.Sale+",") {
			sale.Left, sale.SoldOut = 0, true
		}
		all = all && sale.SoldOut
	}
	if all {
		sn.doc.SoldOut = true
		if sn.doc.State == Admitting {
			sn.doc.State = SoldOut
		}
	}
}

func encodeStatus(s Status) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("room: a status that is no JSON: " + err.Error())
	}
	return b
}
