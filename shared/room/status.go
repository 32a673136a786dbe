package room

import (
	"encoding/hex"
	"encoding/json"
	"time"
)

// State is a room's state, or where one person stands in it.
type State string

// The states of a room (api/openapi.yaml). A person's state is one of Before, Drawing,
// Waiting, Served, Standby, Lapsed, SoldOut, Paused, Closed.
const (
	Before    State = "before"
	Drawing   State = "drawing"
	Admitting State = "admitting"
	Standby   State = "standby"
	SoldOut   State = "sold_out"
	Paused    State = "paused"
	Closed    State = "closed"

	Waiting State = "waiting"
	Served  State = "served"
	Lapsed  State = "lapsed"
)

// staleAfter is the age at which a status document says that it is stale, and at
// which a replica of join-room runs the tick itself.
const staleAfter = 3 * time.Second

// Status is the public status document of a room, the same for everyone.
type Status struct {
	Room           string     `json:"room"`
	State          State      `json:"state"`
	DrawOpensAt    time.Time  `json:"draw_opens_at"`
	DrawEndsAt     time.Time  `json:"draw_ends_at"`
	Joined         int64      `json:"joined"`  // people in the draw; after it, places given
	Serving        int64      `json:"serving"` // places up to this one may go in
	Lapsed         int64      `json:"lapsed"`  // places up to this one no longer
	AdmitPerSecond float64    `json:"admit_per_second"`
	Sales          []SaleLeft `json:"sales"`
	SoldOut        bool       `json:"sold_out"`
	Stale          bool       `json:"stale"`
	AsOf           time.Time  `json:"as_of"`
	Generation     int64      `json:"generation"`
	DrawCommitment string     `json:"draw_commitment"`          // SHA-256 of the seed, hex
	DrawSeed       string     `json:"draw_seed,omitempty"`      // hex, once the list is stored
	DrawListHash   string     `json:"draw_list_hash,omitempty"` // SHA-256 of the list, hex
	Drawn          *int64     `json:"drawn,omitempty"`          // people in the list
}

// SaleLeft is what one sale of the room has left.
type SaleLeft struct {
	Sale    string      `json:"sale"`
	Left    int         `json:"left"` // seats or rooms with at least one interval that can be had
	SoldOut bool        `json:"sold_out"`
	Classes []ClassLeft `json:"classes,omitempty"`
}

// ClassLeft is what one class has left.
type ClassLeft struct {
	Class   string         `json:"class"`
	Left    int            `json:"left"`
	Whole   int            `json:"whole"` // for the whole route
	Busiest []IntervalLeft `json:"busiest,omitempty"`
}

// IntervalLeft is what is left between two stops, by their ids.
type IntervalLeft struct {
	From string `json:"from"`
	To   string `json:"to"`
	Left int    `json:"left"`
}

// document is the status with what replicas need to answer people without a
// call: stored in room.status and published in Redis by the tick.
type document struct {
	Status
	Mode     Mode   `json:"mode"`
	Listed   bool   `json:"listed"`    // the list is stored
	LineDown bool   `json:"line_down"` // no late numbers can be told or given now
	AdmitFor string `json:"admit_for"`
	Moving   bool   `json:"moving"` // served people may go in now
}

func (d *document) encode() []byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic("room: a status that is no JSON: " + err.Error())
	}
	return b
}

// at is the status as one tells it at a moment: the draw opens by the clock, and
// what is not fresh says so: old, or not from Redis.
func (d *document) at(now time.Time, fresh bool) Status {
	s := d.Status
	if s.State == Before && !now.Before(s.DrawOpensAt) {
		s.State = Drawing
	}
	s.Stale = s.State != Closed && !fresh
	return s
}

func (d *document) commitment() []byte {
	b, _ := hex.DecodeString(d.DrawCommitment)
	return b
}
