package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"

	"handler/function/shared/problem"
)

// Request is the body of a POST: one thing to do with a sale or a room. A View
// of a GET is one too (at the top, or as `sale`): what it says differently and
// may be changed is changed, so that the same View changes nothing.
type Request struct {
	Sale *Target `json:"sale,omitempty"`
	Room *string `json:"room,omitempty"`

	Patch    json.RawMessage `json:"patch,omitempty"`
	AddSeats *Extra          `json:"add_seats,omitempty"`
	Block    *Block          `json:"block,omitempty"`
	Unblock  *Block          `json:"unblock,omitempty"`
	Cancel   bool            `json:"cancel,omitempty"`
	Reset    bool            `json:"reset,omitempty"`

	sent
}

// sent are the fields of a View beside `sale` and `room`, in any of which a POST
// back may differ. Pointers tell what was left out.
type sent struct {
	Kind          *Kind        `json:"kind,omitempty"`
	Title         *string      `json:"title,omitempty"`
	Number        *string      `json:"number,omitempty"`
	ServiceDate   *string      `json:"service_date,omitempty"`
	Timezone      *string      `json:"timezone,omitempty"`
	State         *State       `json:"state,omitempty"`
	Stops         *[]Stop      `json:"stops,omitempty"`
	Classes       *[]ClassView `json:"classes,omitempty"`
	Currency      *string      `json:"currency,omitempty"`
	OpensAt       *time.Time   `json:"opens_at,omitempty"`
	ClosesAt      *time.Time   `json:"closes_at,omitempty"`
	DepartsAt     *time.Time   `json:"departs_at,omitempty"`
	Layout        *Layout      `json:"layout,omitempty"`
	HoldSeconds   *int         `json:"hold_seconds,omitempty"`
	ExtendSeconds *int         `json:"extend_seconds,omitempty"`
	BookingLimit  *int         `json:"booking_limit,omitempty"`
	AccountLimit  *int         `json:"account_limit,omitempty"`
	Gateways      *[]string    `json:"gateways,omitempty"`
	Test          *bool        `json:"test,omitempty"`
}

// Target is `sale`: the id of a sale, the document of a new one, or a View.
type Target struct {
	ID       string
	Document *Document
	View     *SentView
}

// SentView is a View as `sale`.
type SentView struct {
	Sale string  `json:"sale"`
	Room *string `json:"room"`
	sent
}

// UnmarshalJSON tells the three apart: a text, an object, an object that names
// its sale.
func (t *Target) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '{' {
		return json.Unmarshal(b, &t.ID)
	}
	var named struct {
		Sale json.RawMessage `json:"sale"`
	}
	if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	if named.Sale == nil {
		t.Document = &Document{}
		return strict(b, t.Document)
	}
	t.View = &SentView{}
	if err := strict(b, t.View); err != nil {
		return err
	}
	t.ID = t.View.Sale
	return nil
}

// strict refuses unknown fields: the outer decoder's strictness ends where a
// type decodes itself.
func strict(b []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	return in.Decode(into)
}

// Extra is extra coaches or seats of a class there is.
type Extra struct {
	Class string `json:"class"`
	Coach string `json:"coach"`
	Seats []Seat `json:"seats"`
}

// Block keeps seats from sale, or gives them back. Without stops it is the whole
// route.
type Block struct {
	Seats  []string `json:"seats"`
	From   string   `json:"from,omitempty"`
	To     string   `json:"to,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// Patch changes a sale; nil fields stay. Settings of the waiting room are passed
// on to it.
type Patch struct {
	State         *State     `json:"state,omitempty"`
	Title         *string    `json:"title,omitempty"`
	OpensAt       *time.Time `json:"opens_at,omitempty"`
	ClosesAt      *time.Time `json:"closes_at,omitempty"`
	HoldSeconds   *int       `json:"hold_seconds,omitempty"`
	ExtendSeconds *int       `json:"extend_seconds,omitempty"`
	BookingLimit  *int       `json:"booking_limit,omitempty"`
	AccountLimit  *int       `json:"account_limit,omitempty"`
	Gateways      *[]string  `json:"gateways,omitempty"`
	Room          *string    `json:"room,omitempty"` // puts an existing room in front
	RoomSettings
}

// decodePatch reads a `patch` strictly; errors name the field below patch.
func decodePatch(raw json.RawMessage, into any) error {
	err := strict(raw, into)
	if err == nil {
		return nil
	}
	if wrong, ok := err.(*json.UnmarshalTypeError); ok && wrong.Field != "" {
		// The path begins with Go's embedded struct, of which the caller knows nothing.
		field := strings.TrimPrefix(wrong.Field, reflect.TypeFor[RoomSettings]().Name()+".")
		return problem.Malformed("patch."+field, "must be of another type than %s", wrong.Value)
	}
	var values map[string]json.RawMessage
	if when := (*time.ParseError)(nil); errors.As(err, &when) && json.Unmarshal(raw, &values) == nil {
		for _, field := range []string{"opens_at", "closes_at", "draw_opens_at"} {
			if v, given := values[field]; given && json.Unmarshal(v, new(time.Time)) != nil {
				return problem.Malformed("patch."+field, "must be a time as RFC 3339 writes it, with an offset")
			}
		}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return problem.Malformed("patch."+strings.Trim(name, `"`), "is not a field of this request")
	}
	return problem.Malformed("patch", "must be a JSON object")
}

// actions counts the things a request asks for beside being a View.
func (r *Request) actions() (n int) {
	for _, asked := range []bool{r.Patch != nil, r.AddSeats != nil, r.Block != nil, r.Unblock != nil, r.Cancel, r.Reset} {
		if asked {
			n++
		}
	}
	return n
}

// changes turns a View that was sent back into the patch of what it says
// differently. What it may not say differently is "invalid".
func (s *Sale) changes(in sent, room *string) (Patch, error) {
	var f faults
	fixed := func(field string, same bool) {
		f.check(same, field, "cannot be changed once the sale is made")
	}
	fixed("kind", in.Kind == nil || *in.Kind == s.Kind)
	fixed("number", in.Number == nil || *in.Number == s.Number)
	fixed("service_date", in.ServiceDate == nil || *in.ServiceDate == s.ServiceDate)
	fixed("timezone", in.Timezone == nil || *in.Timezone == s.Timezone)
	fixed("currency", in.Currency == nil || *in.Currency == s.Currency)
	fixed("departs_at", in.DepartsAt == nil || in.DepartsAt.Equal(s.DepartsAt))
	fixed("test", in.Test == nil || *in.Test == s.Test)
	fixed("stops", in.Stops == nil || sameStops(*in.Stops, s.Stops))
	fixed("classes", in.Classes == nil || s.sameClasses(*in.Classes))
	fixed("layout", in.Layout == nil || sameJSON(in.Layout.Coaches, coaches(s.Places)))
	if err := f.err(); err != nil {
		return Patch{}, err
	}
	p := Patch{
		State: in.State, Title: in.Title, OpensAt: in.OpensAt, ClosesAt: in.ClosesAt, HoldSeconds: in.HoldSeconds,
		ExtendSeconds: in.ExtendSeconds, BookingLimit: in.BookingLimit, AccountLimit: in.AccountLimit, Gateways: in.Gateways,
	}
	if room != nil && *room != s.RoomString() {
		p.Room = room
	}
	return p, nil
}

func sameStops(a, b []Stop) bool {
	if len(a) != len(b) {
		return false
	}
	same := func(x, y *time.Time) bool { return x == y || x != nil && y != nil && x.Equal(*y) }
	for i, x := range a {
		y := b[i]
		if !same(x.Arrives, y.Arrives) || !same(x.Departs, y.Departs) {
			return false
		}
		x.Arrives, x.Departs, y.Arrives, y.Departs = nil, nil, nil, nil
		if x != y {
			return false
		}
	}
	return true
}

// sameClasses looks at what stays: prices and what is left follow from other
// things, and a list shows no fare.
func (s *Sale) sameClasses(list []ClassView) bool {
	if len(list) != len(s.Classes) {
		return false
	}
	for i, c := range list {
		own := s.Classes[i]
		if c.ID != own.ID || c.Title != own.Title || c.Stock != own.Stock || c.Fare != nil && !reflect.DeepEqual(*c.Fare, own.Fare) {
			return false
		}
	}
	return true
}

func sameJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
