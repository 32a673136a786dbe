package seat

import (
	"context"
	_ "embed"
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
	"handler/function/shared/store"
)

//go:embed seat.sql
var sqlFile string

var sql = store.Queries(sqlFile)

// Moments as Postgres sends them: microseconds since 2000, and its infinities.
const (
	pgEpoch = 946684800_000000 // microseconds from 1970 to 2000
	forever = math.MaxInt64
	never   = math.MinInt64
)

// read counts a sale's map from the strips in Postgres: two statements, one
// round trip.
func read(ctx context.Context, db *store.DB, sale *catalog.Sale) (*Map, error) {
	var m *Map
	err := db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		m = &Map{sale: sale, legs: sale.Legs}
		batch := &pgx.Batch{}
		batch.Queue(sql["map-classes"], sale.ID)
		batch.Queue(sql["map-strips"], sale.ID)
		res := q.SendBatch(ctx, batch)
		defer res.Close()
		waiting := map[string]bool{}
		byID := map[string]*class{}
		rows, err := res.Query()
		if err != nil {
			return err
		}
		for rows.Next() {
			c := &class{legs: sale.Legs}
			var first bool
			var at time.Time
			if err := rows.Scan(&c.id, &first, &at); err != nil {
				return err
			}
			if m.AsOf.IsZero() {
				m.AsOf = at.UTC()
			}
			waiting[c.id], byID[c.id] = first, c
			m.classes = append(m.classes, c)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if m.AsOf.IsZero() {
			return problem.New(problem.NotFound, "There is no such sale.")
		}
		now := Moment(m.AsOf)
		if rows, err = res.Query(); err != nil {
			return err
		}
		defer rows.Close()
		var until []int64
		for rows.Next() {
			number, id, considered, strip, err := ScanStrip(rows, until)
			if err != nil {
				return err
			}
			until = strip
			c := byID[id]
			if c == nil || len(strip) != c.legs {
				continue // the sale changed under us; the next map has it
			}
			c.seats = append(c.seats, number)
			for _, u := range strip {
				c.states = append(c.states, stateOf(u, considered, now, waiting[id]))
			}
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// stateOf is law 3 and "standby first" for one leg: past is free, a time ahead
// held, infinity booked; while others wait, free only once they were asked.
func stateOf(until, considered, now int64, standbyFirst bool) State {
	switch {
	case until == forever:
		return Booked
	case until > now:
		return Held
	case standbyFirst && considered < until:
		return Kept
	}
	return Free
}

// Moment is a time as the strips of ScanStrip have it.
func Moment(t time.Time) int64 { return t.UnixMicro() - pgEpoch }

// ScanStrip reads a row of (number, class, considered_at, taken_until): moments
// in microseconds since 2000, with the least and the greatest int64 for the
// infinities. buf is used again for the strip. Binary strips are read as they
// are: a long train has 70,000 moments.
func ScanStrip(rows pgx.Rows, buf []int64) (number int32, class string, considered int64, strip []int64, err error) {
	binaryForm := true
	for _, f := range rows.FieldDescriptions() {
		binaryForm = binaryForm && f.Format == pgx.BinaryFormatCode
	}
	if raw := rows.RawValues(); binaryForm && len(raw[0]) == 4 && len(raw[2]) == 8 && len(raw[3]) >= 20 {
		number = int32(binary.BigEndian.Uint32(raw[0]))
		considered = int64(binary.BigEndian.Uint64(raw[2]))
		// Array: dimensions, nulls, element type, length, lower bound; then each
		// element's length and itself. The schema allows one dimension, no NULL.
		a := raw[3]
		n := int(binary.BigEndian.Uint32(a[12:]))
		a = a[20:]
		if len(a) == 12*n {
			strip = buf[:0]
			for i := range n {
				strip = append(strip, int64(binary.BigEndian.Uint64(a[12*i+4:])))
			}
			return number, string(raw[1]), considered, strip, nil
		}
	}
	// Text, as a pooler's simple protocol gives it.
	var at pgtype.Timestamptz
	var until []pgtype.Timestamptz
	if err := rows.Scan(&number, &class, &at, &until); err != nil {
		return 0, "", 0, nil, err
	}
	strip = buf[:0]
	for _, u := range until {
		strip = append(strip, micros(u))
	}
	return number, class, micros(at), strip, nil
}

func micros(t pgtype.Timestamptz) int64 {
	switch t.InfinityModifier {
	case pgtype.Infinity:
		return forever
	case pgtype.NegativeInfinity:
		return never
	}
	return Moment(t.Time)
}
