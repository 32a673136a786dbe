// Package room is the waiting room in front of one or more sales: the draw of
// all who join while it is open, the frozen list and its proof, late places, the
// status document, and admission (DESIGN section 6).
//
// Postgres decides (tables room, room_sale, room_draw, room_trail, admission,
// admission_bucket are this package's). Redis (line.lua) and the stream JOINS
// both take every join; either may be lost. A place stands in a signed token.
package room

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"handler/function/shared/key"
	"handler/function/shared/problem"
	"handler/function/shared/store"
)

//go:embed room.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Bounds and defaults of a room's settings (DESIGN section 9).
const (
	DefaultDraw  = 30 * time.Second
	DefaultRate  = 100.0 // admissions a second, to hold and to standby
	DefaultLapse = 600 * time.Second
	DefaultAdmit = 600 * time.Second

	MaxDraw = 7 * 24 * time.Hour
	MaxRate = 100_000.0
	MaxSpan = 24 * time.Hour // of lapse and of an admission
	MaxID   = 1<<32 - 1      // public room ids, as package id reads them
)

// Mode says whether the room stands in front of its sales.
type Mode string

// The modes. With Off the sales are held without an admission.
const (
	On  Mode = "on"
	Off Mode = "off"
)

// Settings make a room. Zero values take the defaults; a zero DrawOpensAt is now.
type Settings struct {
	Mode             Mode
	DrawOpensAt      time.Time
	Draw             *time.Duration // how long the draw is open, 0 to 7 days; nil is 30 s
	AdmitPerSecond   float64        // more than 0, at most 100,000
	StandbyPerSecond float64
	Lapse            time.Duration // whole seconds, 1 s to 24 h of running time
	Admit            time.Duration // whole seconds, 1 s to 24 h
}

// Change changes a room; nil fields stay.
type Change struct {
	Mode             *Mode
	Paused           *bool
	Closed           *bool
	DrawOpensAt      *time.Time
	Draw             *time.Duration
	AdmitPerSecond   *float64
	StandbyPerSecond *float64
	Lapse            *time.Duration
	Admit            *time.Duration
}

// Room is a room as the organiser set it.
type Room struct {
	ID, Generation   int64
	Mode             Mode
	Paused, Closed   bool
	DrawOpensAt      time.Time
	DrawEndsAt       time.Time
	DrawCommitment   []byte // SHA-256 of the seed
	AdmitPerSecond   float64
	StandbyPerSecond float64
	Lapse, Admit     time.Duration
	Sales            []int64 // ascending
}

// Create makes a room and returns its id. secret is the ring `draw-secret`: the
// draw is committed to from the start. Wrong settings are `invalid`.
func Create(ctx context.Context, db *store.DB, secret key.Ring, s Settings) (roomID int64, err error) {
	if s.Mode == "" {
		s.Mode = On
	}
	if s.Draw == nil {
		d := DefaultDraw
		s.Draw = &d
	}
	if s.AdmitPerSecond == 0 {
		s.AdmitPerSecond = DefaultRate
	}
	if s.StandbyPerSecond == 0 {
		s.StandbyPerSecond = DefaultRate
	}
	if s.Lapse == 0 {
		s.Lapse = DefaultLapse
	}
	if s.Admit == 0 {
		s.Admit = DefaultAdmit
	}
	if s.DrawOpensAt.IsZero() {
		s.DrawOpensAt = time.Now()
	}
	if err := (Change{
		Mode: &s.Mode, Draw: s.Draw, AdmitPerSecond: &s.AdmitPerSecond, StandbyPerSecond: &s.StandbyPerSecond,
		Lapse: &s.Lapse, Admit: &s.Admit,
	}).Validate(); err != nil {
		return 0, err
	}
	err = db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sql["create"], s.Mode, s.DrawOpensAt, s.DrawOpensAt.Add(*s.Draw),
			s.AdmitPerSecond, s.StandbyPerSecond, seconds(s.Lapse), seconds(s.Admit)).Scan(&roomID)
		if err != nil {
			return err
		}
		commitment := Commitment(Seed(secret.Sign(), roomID, 1))
		_, err = tx.Exec(ctx, sql["commit-draw"], roomID, commitment[:])
		return err
	})
	return roomID, err
}

// Attach puts a room in front of a sale; doing it twice is once. An unknown room
// is not-found.
func Attach(ctx context.Context, db *store.DB, roomID, saleID int64) error {
	if _, err := Load(ctx, db, roomID); err != nil {
		return err
	}
	return db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		if _, err := q.Exec(ctx, sql["attach"], roomID, saleID); err != nil {
			return err
		}
		_, err := q.Exec(ctx, sql["wake"], roomID)
		return err
	})
}

// Load reads a room; an unknown one is not-found.
func Load(ctx context.Context, db *store.DB, roomID int64) (Room, error) {
	var r Room
	err := db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		var lapse, admit int
		err := q.QueryRow(ctx, sql["load"], roomID).Scan(&r.ID, &r.Generation, &r.Mode, &r.Paused, &r.Closed,
			&r.DrawOpensAt, &r.DrawEndsAt, &r.DrawCommitment, &r.AdmitPerSecond, &r.StandbyPerSecond, &lapse, &admit, &r.Sales)
		r.Lapse, r.Admit = time.Duration(lapse)*time.Second, time.Duration(admit)*time.Second
		return err
	})
	if store.IsNoRows(err) {
		return Room{}, notFound()
	}
	return r, err
}

// Patch changes a room. Wrong values are `invalid`; times of a draw whose list
// is stored are wrong-state.
func Patch(ctx context.Context, db *store.DB, roomID int64, c Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if _, err := Load(ctx, db, roomID); err != nil {
		return err
	}
	var lapse, admit *int
	if c.Lapse != nil {
		n := seconds(*c.Lapse)
		lapse = &n
	}
	if c.Admit != nil {
		n := seconds(*c.Admit)
		admit = &n
	}
	return db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		tag, err := q.Exec(ctx, sql["patch"], roomID, c.Mode, c.Paused, c.Closed, c.DrawOpensAt, c.Draw,
			c.AdmitPerSecond, c.StandbyPerSecond, lapse, admit)
		if err == nil && tag.RowsAffected() == 0 {
			err = problem.New(problem.WrongState, "The draw of this room is over; its times cannot change. Reset the room for another draw.")
		}
		return err
	})
}

// Reset begins a new generation: every place of the old one answers room-reset,
// a new draw opens at the room's draw_opens_at, or now when that has passed, and
// is as long as the last.
func Reset(ctx context.Context, db *store.DB, secret key.Ring, roomID int64) error {
	err := db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var generation int64
		var opens, ends, now time.Time
		if err := tx.QueryRow(ctx, sql["lock"], roomID).Scan(&generation, &opens, &ends, &now); err != nil {
			return err
		}
		length := ends.Sub(opens)
		if opens.Before(now) {
			opens = now
		}
		generation++
		commitment := Commitment(Seed(secret.Sign(), roomID, generation))
		_, err := tx.Exec(ctx, sql["reset"], roomID, generation, commitment[:], opens, opens.Add(length))
		return err
	})
	if store.IsNoRows(err) {
		return notFound()
	}
	return err
}

// Validate checks what is given: `invalid` naming the fields as api/openapi.yaml does.
func (c Change) Validate() error {
	var p *problem.Error
	bad := func(field, format string, args ...any) {
		if p == nil {
			p = problem.Invalid(field, format, args...)
		} else {
			_ = p.And(field, format, args...)
		}
	}
	if c.Mode != nil && *c.Mode != On && *c.Mode != Off {
		bad("mode", "must be on or off")
	}
	if c.Draw != nil && (*c.Draw < 0 || *c.Draw > MaxDraw) {
		bad("draw_seconds", "must be between %d and %d", 0, int(MaxDraw/time.Second))
	}
	for field, rate := range map[string]*float64{"admit_per_second": c.AdmitPerSecond, "standby_per_second": c.StandbyPerSecond} {
		if rate != nil && !(*rate > 0 && *rate <= MaxRate) {
			bad(field, "must be more than 0 and at most %d", int(MaxRate))
		}
	}
	for field, d := range map[string]*time.Duration{"lapse_seconds": c.Lapse, "admit_seconds": c.Admit} {
		if d != nil && (*d < time.Second || *d > MaxSpan) {
			bad(field, "must be between %d and %d", 1, int(MaxSpan/time.Second))
		}
	}
	if p != nil {
		return p
	}
	return nil
}

func notFound() error { return problem.New(problem.NotFound, "There is no such waiting room.") }

func seconds(d time.Duration) int { return int(d / time.Second) }

func decimal(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
