package catalog

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"handler/function/shared/clock"
	"handler/function/shared/idempotency"
	"handler/function/shared/outbox"
	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

// CancelledKind is the outbox row of a cancelled sale: whoever keeps the money
// refunds what was booked. Its subject is the sale's id.
const CancelledKind = "sale_cancelled"

// maxBlocked seats of one block.
const maxBlocked = 1000

// blockedAfter is how long after its last stop a blocked seat reads as taken:
// a block is a hold, and holds end.
const blockedAfter = 24 * time.Hour

// Service changes sales, for their own organisation.
type Service struct {
	db     *store.DB
	keys   *idempotency.Store
	reader *Reader
	rooms  Rooms
	clock  clock.Clock
	// released is called after a commit that freed seats of a sale.
	released func(ctx context.Context, saleID int64)
}

// Caller is the organiser who asks, and in whose name a key counts.
type Caller struct {
	Account string
	Org     string
	Key     string // Idempotency-Key
	Hash    []byte // of the body
}

// call names a request about a sale; 0 where it makes one or is about a room.
func (c Caller) call(saleID int64) idempotency.Call {
	return idempotency.Call{Sale: saleID, Account: c.Account, Function: "catalog", Key: c.Key, Hash: c.Hash}
}

// inSale does a change of one sale once, in one transaction with its key.
func (s *Service) inSale(ctx context.Context, saleID int64, who Caller, change func(ctx context.Context, tx pgx.Tx) (body any, err error)) (idempotency.Answer, error) {
	defer s.reader.Forget(saleID)
	return s.keys.DoTx(ctx, who.call(saleID), func(ctx context.Context, tx pgx.Tx) (int, any, error) {
		body, err := change(ctx, tx)
		return http.StatusOK, body, err
	})
}

// NewService makes the service of a replica. released is called after each commit
// that freed seats of a sale, to tell of it; nil for nobody.
func NewService(db *store.DB, reader *Reader, rooms Rooms, now clock.Clock, released func(ctx context.Context, saleID int64)) *Service {
	if released == nil {
		released = func(context.Context, int64) {}
	}
	return &Service{db: db, keys: idempotency.New(db), reader: reader, rooms: rooms, clock: now, released: released}
}

// Do does what a request asks. Errors: invalid, bad-request, not-found (also for
// another organisation's sale or room), wrong-state, seat-taken,
// idempotency-mismatch, in-progress.
func (s *Service) Do(ctx context.Context, who Caller, r Request, trace string) (idempotency.Answer, error) {
	n := r.actions()
	switch {
	case r.Sale != nil && r.Sale.Document != nil && n == 0 && r.Room == nil && r.sent == (sent{}):
		return s.create(ctx, who, r.Sale.Document)
	case r.Sale != nil && r.Sale.ID != "" && n == 0 && (r.Sale.View == nil || r.Room == nil && r.sent == (sent{})):
		in, room := r.sent, r.Room
		if r.Sale.View != nil {
			in, room = r.Sale.View.sent, r.Sale.View.Room
		}
		return s.backAgain(ctx, who, r.Sale.ID, in, room)
	case r.sent != (sent{}):
		return idempotency.Answer{}, problem.Malformed("sale", "must be the id of a sale when a sale is sent back, and patch what changes one")
	case n != 1:
		return idempotency.Answer{}, problem.Malformed("body", "must ask for one thing: sale, patch, add_seats, block, unblock, cancel or reset")
	case r.Room != nil && r.Sale == nil && (r.Reset || r.Patch != nil):
		return s.room(ctx, who, *r.Room, r)
	case r.Sale == nil || r.Sale.ID == "" || r.Sale.View != nil || r.Room != nil || r.Reset:
		return idempotency.Answer{}, problem.Malformed("sale", "must be the id of a sale; reset and patch may have the id of a room instead")
	}
	sale, err := s.own(ctx, who.Org, r.Sale.ID)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch {
	case r.Patch != nil:
		var p Patch
		if err := decodePatch(r.Patch, &p); err != nil {
			return idempotency.Answer{}, err
		}
		return s.patch(ctx, who, sale, p, "patch")
	case r.AddSeats != nil:
		defer s.released(ctx, sale.ID)
		return s.addSeats(ctx, who, sale, *r.AddSeats)
	case r.Block != nil:
		return s.block(ctx, who, sale, *r.Block)
	case r.Unblock != nil:
		defer s.released(ctx, sale.ID)
		return s.unblock(ctx, who, sale, *r.Unblock, trace)
	default:
		cancelled := Cancelled
		return s.patch(ctx, who, sale, Patch{State: &cancelled}, "")
	}
}

// own finds a sale of the organisation; another's is not found.
func (s *Service) own(ctx context.Context, org, id string) (*Sale, error) {
	n, ok := ParseID(id)
	if !ok {
		return nil, problem.Invalid("sale", "must be the id of a sale")
	}
	sale, err := s.reader.Sale(ctx, n)
	if err == nil && sale.Org != org {
		err = noSale()
	}
	return sale, err
}

// ownRoom checks that a room stands before sales of this organisation alone.
func (s *Service) ownRoom(ctx context.Context, org, id, field string) (int64, error) {
	n, ok := ParseID(id)
	if !ok {
		return 0, problem.Invalid(field, "must be the id of a room")
	}
	sales, err := s.rooms.Sales(ctx, n)
	if err != nil {
		return 0, err
	}
	mine := false
	for _, saleID := range sales {
		sale, err := s.reader.Sale(ctx, saleID)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if sale.Org != org {
			mine = false
			break
		}
		mine = true
	}
	if !mine {
		return 0, problem.New(problem.NotFound, "There is no such waiting room.")
	}
	return n, nil
}

// plan is the recovery point of making a sale.
type plan struct {
	Sale int64 `json:"sale,omitempty"`
	Room int64 `json:"room,omitempty"`
}

// create makes a room where one is wished for, then the sale as a draft in one
// transaction, puts the room in front, and opens it last: nobody ever sees half
// a sale. A try that died is taken up where it ended.
func (s *Service) create(ctx context.Context, who Caller, d *Document) (idempotency.Answer, error) {
	d.Normalise(s.clock.Now())
	if err := d.Validate(); err != nil {
		return idempotency.Answer{}, err
	}
	return s.keys.Do(ctx, who.call(0), func(ctx context.Context) (int, any, error) {
		p, err := s.planned(ctx, who, d)
		if err != nil {
			return 0, nil, err
		}
		defer s.reader.Forget(p.Sale)
		if err := s.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return insert(ctx, tx, p, who.Org, d) }); err != nil {
			return 0, nil, err
		}
		if p.Room != 0 {
			if err := s.rooms.Attach(ctx, p.Room, p.Sale); err != nil {
				return 0, nil, err
			}
		}
		var body View
		err = s.db.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			sale, err := lock(ctx, tx, p.Sale)
			if err != nil {
				return err
			}
			if d.State == Open && sale.State == Draft {
				sale.State = Open
				err = writeTerms(ctx, tx, sale, Draft)
			}
			body = sale.Summary(ctx, 1, sale.Legs, nil)
			return err
		})
		return http.StatusCreated, body, err
	})
}

// planned gives out the ids of the sale and of its room, once however often the
// request is taken up. A room whose id was not kept in time stays without sale.
func (s *Service) planned(ctx context.Context, who Caller, d *Document) (p plan, err error) {
	call := who.call(0)
	if _, err := s.keys.Plan(ctx, call, &p); err != nil {
		return p, err
	}
	if p.Sale == 0 {
		if err := s.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["next-sale"]).Scan(&p.Sale)
		}); err != nil {
			return p, err
		}
		if err := s.keys.SavePlan(ctx, call, p); err != nil {
			return p, err
		}
	}
	if d.Room == nil || p.Room != 0 {
		return p, nil
	}
	if d.Room.Room != "" {
		p.Room, err = s.ownRoom(ctx, who.Org, d.Room.Room, "room")
	} else {
		p.Room, err = s.rooms.Create(ctx, d.Room.RoomSettings)
	}
	if err != nil {
		return p, err
	}
	return p, s.keys.SavePlan(ctx, call, p)
}

// insert writes the sale with its classes, seats and places.
func insert(ctx context.Context, tx pgx.Tx, p plan, org string, d *Document) error {
	stops, err := json.Marshal(d.Stops)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, sql["add-sale"], p.Sale, p.Room, org, d.Kind, d.Title, d.Number, d.ServiceDate, d.Timezone,
		len(d.Stops)-1, stops, d.Currency, *d.OpensAt, *d.ClosesAt, d.departure(), *d.HoldSeconds, *d.ExtendSeconds,
		*d.BookingLimit, *d.AccountLimit, d.Gateways, d.Test)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	for i, c := range d.Classes {
		fare, err := json.Marshal(c.Fare)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sql["add-class"], p.Sale, c.ID, i, c.Title, c.Stock, fare); err != nil {
			return err
		}
	}
	return insertSeats(ctx, tx, p.Sale, len(d.Stops)-1, places(d.Coaches, 1), false)
}

// insertSeats writes places and, class by class, their seats.
func insertSeats(ctx context.Context, tx pgx.Tx, saleID int64, legs int, list []SeatPlace, later bool) error {
	n := len(list)
	numbers, rows := make([]int32, n), make([]int32, n)
	names, coachNames, columns, attributes := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	classes := make(map[string][]int32)
	var order []string
	for i, p := range list {
		numbers[i], rows[i] = int32(p.Number), int32(p.Row)
		names[i], coachNames[i], columns[i], attributes[i] = p.Name(), p.Coach, p.Column, join(p.Attributes)
		if classes[p.Class] == nil {
			order = append(order, p.Class)
		}
		classes[p.Class] = append(classes[p.Class], int32(p.Number))
	}
	for _, class := range order {
		if _, err := tx.Exec(ctx, sql["add-seats"], saleID, class, legs, classes[class], later); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, sql["add-places"], saleID, numbers, names, coachNames, rows, columns, attributes)
	return err
}

// lock loads a sale whole and keeps others from changing it.
func lock(ctx context.Context, tx pgx.Tx, saleID int64) (*Sale, error) {
	sale, err := scanHead(tx.QueryRow(ctx, sql["lock"], saleID))
	if err != nil {
		return nil, err
	}
	return sale, sale.loadStill(ctx, tx)
}

// writeTerms writes what may change of one locked sale that was in a state. The
// statement repeats which states it may come from.
func writeTerms(ctx context.Context, tx pgx.Tx, sale *Sale, was State) error {
	var from []string
	for _, state := range States {
		if state.MayBecome(sale.State) {
			from = append(from, string(state))
		}
	}
	tag, err := tx.Exec(ctx, sql["change"], sale.ID, sale.State, from, sale.OpensAt, sale.ClosesAt, sale.HoldSeconds,
		sale.ExtendSeconds, sale.BookingLimit, sale.AccountLimit, sale.Gateways, sale.Title, sale.Room)
	if err == nil && tag.RowsAffected() == 0 {
		err = wrongMove(was, sale.State)
	}
	return err
}

func wrongMove(was, next State) error {
	return problem.New(problem.WrongState, "A sale that is %s cannot become %s.", string(was), string(next))
}

// backAgain takes a View that was sent back.
func (s *Service) backAgain(ctx context.Context, who Caller, id string, in sent, room *string) (idempotency.Answer, error) {
	sale, err := s.own(ctx, who.Org, id)
	if err != nil {
		return idempotency.Answer{}, err
	}
	p, err := sale.changes(in, room)
	if err != nil {
		return idempotency.Answer{}, err
	}
	return s.patch(ctx, who, sale, p, "")
}

// patch changes the waiting room first, which may be done twice without harm,
// then the sale and its key in one transaction. What is already so changes
// nothing. prefix is put before the names of fields.
func (s *Service) patch(ctx context.Context, who Caller, sale *Sale, p Patch, prefix string) (idempotency.Answer, error) {
	room, err := s.patchRoom(ctx, who, sale, p, prefix)
	if err != nil {
		return idempotency.Answer{}, err
	}
	return s.inSale(ctx, sale.ID, who, func(ctx context.Context, tx pgx.Tx) (any, error) {
		now, err := lock(ctx, tx, sale.ID)
		if err != nil {
			return nil, err
		}
		was := *now
		if err := now.apply(p, prefix); err != nil {
			return nil, err
		}
		if room != now.Room {
			if now.State != Draft {
				return nil, problem.New(problem.WrongState, "A waiting room can be put before a sale only while it is a draft.")
			}
			now.Room = room
		}
		if now.sameTerms(&was) {
			return now.Summary(ctx, 1, now.Legs, nil), nil
		}
		if err := writeTerms(ctx, tx, now, was.State); err != nil {
			return nil, err
		}
		if now.State == Cancelled && was.State != Cancelled {
			if err := outbox.Add(ctx, tx, sale.ID, CancelledKind, sale.IDString(), struct{}{}, ""); err != nil {
				return nil, err
			}
		}
		return now.Summary(ctx, 1, now.Legs, nil), nil
	})
}

// patchRoom passes settings on and attaches another room; it returns the room
// the sale shall have.
func (s *Service) patchRoom(ctx context.Context, who Caller, sale *Sale, p Patch, prefix string) (int64, error) {
	var f faults
	at := f.at(prefix)
	p.RoomSettings.validate(at)
	at.check(p.RoomSettings.empty() || sale.Room != 0, "room", "is needed for these settings: this sale has no waiting room")
	if err := f.err(); err != nil {
		return 0, err
	}
	room := sale.Room
	if p.Room != nil && *p.Room != sale.RoomString() {
		var err error
		if room, err = s.ownRoom(ctx, who.Org, *p.Room, at.name("room")); err != nil {
			return 0, err
		}
		if sale.State != Draft {
			return 0, problem.New(problem.WrongState, "A waiting room can be put before a sale only while it is a draft.")
		}
		if err := s.rooms.Attach(ctx, room, sale.ID); err != nil {
			return 0, err
		}
	}
	if !p.RoomSettings.empty() {
		return room, s.rooms.Patch(ctx, room, RoomPatch{RoomSettings: p.RoomSettings})
	}
	return room, nil
}

// apply puts a patch on a copy of the sale and checks what comes out.
func (s *Sale) apply(p Patch, prefix string) error {
	var f faults
	at := f.at(prefix)
	set(&s.Title, p.Title)
	set(&s.OpensAt, p.OpensAt)
	set(&s.ClosesAt, p.ClosesAt)
	set(&s.HoldSeconds, p.HoldSeconds)
	set(&s.ExtendSeconds, p.ExtendSeconds)
	set(&s.BookingLimit, p.BookingLimit)
	set(&s.AccountLimit, p.AccountLimit)
	set(&s.Gateways, p.Gateways)
	at.text("title", s.Title, 1, maxText)
	last := (&Document{Kind: s.Kind, Stops: s.Stops}).lastDeparture()
	validateWindow(at, s.OpensAt, s.ClosesAt, last)
	validateNumbers(at, &s.HoldSeconds, &s.ExtendSeconds, &s.BookingLimit, &s.AccountLimit)
	validateGateways(at, s.Gateways, s.Test)
	if p.State != nil {
		at.check(p.State.Valid(), "state", "must be draft, open, paused, closed or cancelled")
	}
	if err := f.err(); err != nil {
		return err
	}
	if p.State != nil {
		if !s.State.MayBecome(*p.State) {
			return wrongMove(s.State, *p.State)
		}
		s.State = *p.State
	}
	return nil
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// sameTerms says whether nothing that a patch may change differs.
func (s *Sale) sameTerms(o *Sale) bool {
	return s.State == o.State && s.Title == o.Title && s.OpensAt.Equal(o.OpensAt) && s.ClosesAt.Equal(o.ClosesAt) &&
		s.HoldSeconds == o.HoldSeconds && s.ExtendSeconds == o.ExtendSeconds && s.BookingLimit == o.BookingLimit &&
		s.AccountLimit == o.AccountLimit && slices.Equal(s.Gateways, o.Gateways) && s.Room == o.Room
}

// room resets or patches a waiting room.
func (s *Service) room(ctx context.Context, who Caller, id string, r Request) (idempotency.Answer, error) {
	roomID, err := s.ownRoom(ctx, who.Org, id, "room")
	if err != nil {
		return idempotency.Answer{}, err
	}
	var p RoomPatch
	if r.Patch != nil {
		if err := decodePatch(r.Patch, &p); err != nil {
			return idempotency.Answer{}, err
		}
		var f faults
		p.RoomSettings.validate(f.at("patch"))
		if err := f.err(); err != nil {
			return idempotency.Answer{}, err
		}
	}
	return s.keys.Do(ctx, who.call(0), func(ctx context.Context) (int, any, error) {
		if r.Reset {
			err = s.rooms.Reset(ctx, roomID)
		} else {
			err = s.rooms.Patch(ctx, roomID, p)
		}
		return http.StatusOK, map[string]string{"room": strconv.FormatInt(roomID, 10)}, err
	})
}
