package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// Bounds of a waiting room's settings, as package room has them.
const (
	maxRate         = 100_000.0 // admissions a second
	maxDrawSeconds  = 7 * 24 * 3600
	maxLapseSeconds = 24 * 3600
)

// RoomWish says which waiting room stands in front of a new sale: one that
// exists, by its id alone, or a new one with these settings. What is left out
// takes the room's defaults.
type RoomWish struct {
	Room string `json:"room,omitempty"`
	RoomSettings
}

// RoomSettings of a waiting room; nil is the default, or in a patch "as it is".
type RoomSettings struct {
	Mode             *string    `json:"mode,omitempty"` // on, off
	DrawOpensAt      *time.Time `json:"draw_opens_at,omitempty"`
	DrawSeconds      *int       `json:"draw_seconds,omitempty"`
	AdmitPerSecond   *float64   `json:"admit_per_second,omitempty"`
	StandbyPerSecond *float64   `json:"standby_per_second,omitempty"`
	LapseSeconds     *int       `json:"lapse_seconds,omitempty"` // of running time
	AdmitSeconds     *int       `json:"admit_seconds,omitempty"`
}

// RoomPatch changes a room.
type RoomPatch struct {
	RoomSettings
	Paused *bool `json:"paused,omitempty"`
	Closed *bool `json:"closed,omitempty"`
}

// Rooms is what the catalog asks of package room, which stands above it. Each
// call is a transaction of its own (law 8).
type Rooms interface {
	Create(ctx context.Context, settings RoomSettings) (roomID int64, err error)
	// Attach puts the room in front of the sale; twice is once.
	Attach(ctx context.Context, roomID, saleID int64) error
	// Sales lists the sales behind a room; an unknown room is not-found.
	Sales(ctx context.Context, roomID int64) ([]int64, error)
	Patch(ctx context.Context, roomID int64, patch RoomPatch) error
	Reset(ctx context.Context, roomID int64) error
}

// UnmarshalJSON also takes the id of a room as a plain text.
func (w *RoomWish) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &w.Room)
	}
	type plain RoomWish
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	return in.Decode((*plain)(w))
}

func (s RoomSettings) empty() bool { return s == RoomSettings{} }

func (w *RoomWish) validate(f faultsAt) {
	if w.Room == "" {
		w.RoomSettings.validate(f)
		return
	}
	_, ok := ParseID(w.Room)
	f.check(ok, "room", "must be the id of a room")
	f.check(w.RoomSettings.empty(), "room", "must stand alone: an existing room keeps its settings")
}

func (s RoomSettings) validate(f faultsAt) {
	f.check(s.Mode == nil || *s.Mode == "on" || *s.Mode == "off", "mode", "must be on or off")
	f.check(s.DrawOpensAt == nil || validTime(*s.DrawOpensAt), "draw_opens_at", "must be between the years 2000 and 2399")
	f.between("draw_seconds", s.DrawSeconds, 0, maxDrawSeconds)
	f.rate("admit_per_second", s.AdmitPerSecond)
	f.rate("standby_per_second", s.StandbyPerSecond)
	f.between("lapse_seconds", s.LapseSeconds, 1, maxLapseSeconds)
	f.between("admit_seconds", s.AdmitSeconds, 1, maxLapseSeconds)
}

func (f faultsAt) rate(field string, r *float64) {
	f.check(r == nil || *r > 0 && *r <= maxRate, field, "must be more than 0 and at most %d", int(maxRate))
}
