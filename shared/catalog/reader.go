package catalog

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
	"github.com/maypok86/otter/v2"
)

//go:embed catalog.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// How long a replica keeps what it has read. Heads are kept half a second, so
// that with the time of reading nothing is older than one.
const (
	headTime   = 500 * time.Millisecond
	newestTime = 50 * time.Millisecond
	keptTime   = 15 * time.Minute // still parts, also while Postgres is away
	maxHeads   = 20_000
	maxWeight  = 300_000 // places kept in all, some 200 bytes each
)

// Reader looks sales up for one replica. What it returns is shared and must not
// be written to. It is safe for concurrent use.
//
// State, opening times and limits are at most a second old; stops, classes and
// places are kept until the sale's version changes. While Postgres is away the
// last copy is returned.
type Reader struct {
	db     *store.DB
	heads  *otter.Cache[int64, *Sale]
	kept   *otter.Cache[int64, *Sale]
	newest *otter.Cache[struct{}, int64]
	lists  *otter.Cache[listKey, []*Sale]
	// lastLists answer while Postgres is away; listed are sales without places.
	lastLists *otter.Cache[listKey, []*Sale]
	listed    *otter.Cache[int64, *Sale]
}

// NewReader makes the reader of a replica. Nothing is read yet.
func NewReader(db *store.DB) *Reader {
	return &Reader{
		db: db,
		heads: otter.Must(&otter.Options[int64, *Sale]{
			MaximumSize: maxHeads, ExpiryCalculator: otter.ExpiryWriting[int64, *Sale](headTime)}),
		kept: otter.Must(&otter.Options[int64, *Sale]{
			MaximumWeight: maxWeight, Weigher: func(_ int64, s *Sale) uint32 { return uint32(10 + len(s.Places)) },
			ExpiryCalculator: otter.ExpiryAccessing[int64, *Sale](keptTime)}),
		newest: otter.Must(&otter.Options[struct{}, int64]{
			MaximumSize: 1, ExpiryCalculator: otter.ExpiryWriting[struct{}, int64](newestTime)}),
		lists: otter.Must(&otter.Options[listKey, []*Sale]{
			MaximumWeight: maxListed, Weigher: func(_ listKey, l []*Sale) uint32 { return uint32(1 + len(l)) },
			ExpiryCalculator: otter.ExpiryWriting[listKey, []*Sale](listTime)}),
		lastLists: otter.Must(&otter.Options[listKey, []*Sale]{
			MaximumWeight: maxListed, Weigher: func(_ listKey, l []*Sale) uint32 { return uint32(1 + len(l)) },
			ExpiryCalculator: otter.ExpiryAccessing[listKey, []*Sale](keptTime)}),
		listed: otter.Must(&otter.Options[int64, *Sale]{
			MaximumSize: maxListed, ExpiryCalculator: otter.ExpiryAccessing[int64, *Sale](keptTime)}),
	}
}

// Sale returns a sale by id, drafts too. Errors: not-found; unavailable when
// Postgres is away and no copy is kept.
func (r *Reader) Sale(ctx context.Context, saleID int64) (*Sale, error) {
	if s, ok := r.heads.GetIfPresent(saleID); ok {
		return s, nil
	}
	if saleID < 1 {
		return nil, noSale()
	}
	if _, known := r.kept.GetIfPresent(saleID); !known {
		newest, err := r.newest.Get(ctx, struct{}{}, otter.LoaderFunc[struct{}, int64](r.loadNewest))
		if err != nil {
			return nil, err
		}
		if saleID > newest {
			return nil, noSale() // made-up ids cost Postgres twenty looks a second at most
		}
	}
	s, err := r.heads.Get(ctx, saleID, otter.LoaderFunc[int64, *Sale](r.load))
	if errors.Is(err, otter.ErrNotFound) {
		return nil, noSale()
	}
	return s, err
}

// Shown is the sale with a public id, as the catalog shows it: a draft is there
// for its own organisation's organisers alone.
func (r *Reader) Shown(ctx context.Context, id string, organiser bool, org string) (*Sale, error) {
	n, ok := ParseID(id)
	if !ok {
		return nil, noSale()
	}
	s, err := r.Sale(ctx, n)
	if err == nil && s.State == Draft && (!organiser || s.Org != org) {
		return nil, noSale()
	}
	return s, err
}

// Forget drops what is kept of a sale, after a change to it.
func (r *Reader) Forget(saleID int64) {
	r.heads.Invalidate(saleID)
	r.newest.InvalidateAll()
	r.lists.InvalidateAll()
}

func noSale() error { return problem.New(problem.NotFound, "There is no such sale.") }

func (r *Reader) loadNewest(ctx context.Context, _ struct{}) (newest int64, err error) {
	// Many callers wait for one load: it must not end with the first of them.
	err = r.db.Do(context.WithoutCancel(ctx), func(ctx context.Context, q store.Querier) error {
		return q.QueryRow(ctx, sql["newest"]).Scan(&newest)
	})
	return newest, err
}

func (r *Reader) load(ctx context.Context, saleID int64) (*Sale, error) {
	kept, _ := r.kept.GetIfPresent(saleID)
	var s *Sale
	err := r.db.Do(context.WithoutCancel(ctx), func(ctx context.Context, q store.Querier) (err error) {
		if s, err = scanHead(q.QueryRow(ctx, sql["head"], saleID)); err != nil {
			return err
		}
		if kept != nil && kept.Version == s.Version {
			s.still(kept)
			return nil
		}
		return s.loadStill(ctx, q)
	})
	switch {
	case store.IsNoRows(err):
		return nil, otter.ErrNotFound
	case problem.Is(err, problem.Unavailable) && kept != nil:
		return kept, nil
	case err != nil:
		return nil, err
	}
	r.kept.Set(saleID, s)
	return s, nil
}

// still takes over what does not change from another copy of the same version.
func (s *Sale) still(from *Sale) {
	s.Stops, s.Classes, s.Places, s.Legs = from.Stops, from.Classes, from.Places, from.Legs
	s.stopIndex, s.classIndex, s.seatNumber, s.classSeats = from.stopIndex, from.classIndex, from.seatNumber, from.classSeats
}

func scanHead(row pgx.Row) (*Sale, error) {
	var s Sale
	err := row.Scan(&s.ID, &s.Room, &s.Org, &s.Kind, &s.Title, &s.Number, &s.ServiceDate, &s.Timezone, &s.State, &s.Currency,
		&s.OpensAt, &s.ClosesAt, &s.DepartsAt, &s.HoldSeconds, &s.ExtendSeconds, &s.BookingLimit, &s.AccountLimit,
		&s.Gateways, &s.Test, &s.Version)
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return nil, fmt.Errorf("catalog: sale %d: %w", s.ID, err)
	}
	s.OpensAt, s.ClosesAt, s.DepartsAt = s.OpensAt.In(zone), s.ClosesAt.In(zone), s.DepartsAt.In(zone)
	return &s, nil
}

// loadStill reads stops, classes and places in one round trip. Places added
// after the head was read come with the next version.
func (s *Sale) loadStill(ctx context.Context, q store.Querier) error {
	batch := &pgx.Batch{}
	batch.Queue(sql["stops"], s.ID).QueryRow(func(row pgx.Row) error { return s.scanStops(row) })
	batch.Queue(sql["classes"], s.ID).Query(func(rows pgx.Rows) error {
		s.Classes = nil
		return each(rows, func() error {
			var c Class
			if err := scanClass(rows, &c); err != nil {
				return err
			}
			s.Classes = append(s.Classes, c)
			return nil
		})
	})
	batch.Queue(sql["places"], s.ID).Query(func(rows pgx.Rows) error {
		s.Places = nil
		return each(rows, func() error {
			var p SeatPlace
			var name string
			if err := rows.Scan(&p.Number, &p.Class, &name, &p.Coach, &p.Row, &p.Column, &p.Attributes); err != nil {
				return err
			}
			if p.Seat = name; p.Coach != "" {
				p.Seat = strings.TrimPrefix(name, p.Coach+"-")
			}
			s.Places = append(s.Places, p)
			if p.Number != len(s.Places) {
				return fmt.Errorf("catalog: sale %d: seat %d is missing", s.ID, len(s.Places))
			}
			return nil
		})
	})
	if err := q.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	s.index()
	return nil
}

func (s *Sale) scanStops(row pgx.Row, before ...any) error {
	var stops []byte
	if err := row.Scan(append(before, &stops)...); err != nil {
		return err
	}
	if err := json.Unmarshal(stops, &s.Stops); err != nil {
		return fmt.Errorf("catalog: stops of sale %d: %w", s.ID, err)
	}
	for i := range s.Stops {
		s.Stops[i] = s.Stops[i].local()
	}
	return nil
}

func scanClass(row pgx.Row, c *Class, before ...any) error {
	var fare []byte
	if err := row.Scan(append(before, &c.ID, &c.Title, &c.Stock, &fare)...); err != nil {
		return err
	}
	return json.Unmarshal(fare, &c.Fare)
}

func each(rows pgx.Rows, f func() error) error {
	defer rows.Close()
	for rows.Next() {
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}
