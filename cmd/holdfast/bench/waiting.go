package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A route on which people wait: 200 of its 210 intervals have a queue.
const (
	routeLegs   = 20
	routeQueues = 200
	routeSeats  = 1_000
	mostSeats   = 4 // of an order, and of a booking
)

// interval is legs from to to, 1-based and inclusive.
type interval struct{ from, to int }

// hottest is the interval with the longest queue: the middle of the route, so that
// half of all bookings touch it.
var hottest = interval{5, 12}

// queuedIntervals are those that have queues, the hottest first.
func queuedIntervals() []interval {
	list := []interval{hottest}
	for legs := 1; legs <= routeLegs; legs++ {
		for from := 1; from+legs-1 <= routeLegs; from++ {
			if iv := (interval{from, from + legs - 1}); iv != hottest && len(list) < routeQueues {
				list = append(list, iv)
			}
		}
	}
	return list
}

// ticketed is a booking of a sale that is sold out.
type ticketed struct {
	number  int64
	account string
}

// sellOut books every seat of a route for all its legs, as paid bookings of one to
// four seats side by side, each over a part of the route. They come in the order
// in which they may be taken back: shuffled.
func (g Ground) sellOut(ctx context.Context, owner *pgxpool.Pool, m made, legs int) ([]ticketed, error) {
	rng := rand.New(rand.NewPCG(1, uint64(m.id)))
	seats := len(m.names)
	takenBy := make([][]int64, seats+1)
	for n := 1; n <= seats; n++ {
		takenBy[n] = make([]int64, legs)
	}
	var sold []ticketed
	var bookings, accounts, booked [][]any
	for first, size := 1, 1; first <= seats; first, size = first+size, size%mostSeats+1 {
		size = min(size, seats-first+1)
		block := make([]int32, size)
		for i := range block {
			block[i] = int32(first + i)
		}
		for from := 1; from <= legs; {
			to := min(legs, from+rng.IntN(legs)) // long and short ones
			b := ticketed{int64(len(sold) + 1), fmt.Sprintf("seat-%d-%d", first, from)}
			sold = append(sold, b)
			bookings = append(bookings, []any{m.id, b.number, b.account, class, from, to, block, size})
			accounts = append(accounts, []any{m.id, b.account, size, mostSeats})
			for _, n := range block {
				booked = append(booked, []any{m.id, n, fmt.Sprintf("[%d,%d]", from, to), b.number})
				for leg := from; leg <= to; leg++ {
					takenBy[n][leg-1] = b.number
				}
			}
			from = to + 1
		}
	}
	strips := make([][]any, seats)
	for n := range strips {
		strips[n] = []any{n + 1, takenBy[n+1]}
	}
	err := pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		for _, t := range []struct {
			table   string
			columns []string
			rows    [][]any
			then    string
		}{
			{"sold", []string{"sale_id bigint", "number bigint", "account text", "class text", "leg_from int", "leg_to int", "seats int[]", "quantity int"}, bookings,
				`INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at)
				SELECT sale_id, number, account, class, leg_from, leg_to, seats, quantity, 'booked', 2500 * quantity, 'CAD', now(), now(), now() FROM sold`},
			{"sold_account", []string{"sale_id bigint", "account text", "live int", "most int"}, accounts,
				`INSERT INTO account_sale (sale_id, account, live_seats, seat_limit) SELECT * FROM sold_account`},
			{"sold_seat", []string{"sale_id bigint", "seat int", "legs text", "booking bigint"}, booked,
				`INSERT INTO booked_seat (sale_id, seat, legs, booking) SELECT sale_id, seat, legs::int4range, booking FROM sold_seat`},
			{"sold_strip", []string{"number int", "taken_by bigint[]"}, strips,
				fmt.Sprintf(`UPDATE seat s SET taken_until = array_fill('infinity'::timestamptz, ARRAY[%d]), taken_by = t.taken_by
				FROM sold_strip t WHERE s.sale_id = %d AND s.number = t.number`, legs, m.id)},
		} {
			if err := throughTemp(ctx, tx, t.table, t.columns, t.rows, t.then); err != nil {
				return fmt.Errorf("%s: %w", t.table, err)
			}
		}
		_, err := tx.Exec(ctx, `SELECT setval('booking_number', greatest((SELECT last_value FROM booking_number), $1))`, len(sold))
		return err
	})
	rng.Shuffle(len(sold), func(i, j int) { sold[i], sold[j] = sold[j], sold[i] })
	return sold, err
}

// throughTemp copies rows into a temporary table and runs a statement on it.
func throughTemp(ctx context.Context, tx pgx.Tx, table string, columns []string, rows [][]any, then string) error {
	list, names := "", make([]string, len(columns))
	for i, c := range columns {
		if i > 0 {
			list += ", "
		}
		list += c
		_, _ = fmt.Sscan(c, &names[i])
	}
	if _, err := tx.Exec(ctx, "CREATE TEMP TABLE "+table+" ("+list+") ON COMMIT DROP"); err != nil {
		return err
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{table}, names, pgx.CopyFromRows(rows)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, then)
	return err
}

// queueUp lets people wait in a sale, as if each had joined and been looked at: hot
// orders in the first interval's queue and rest in every other, in turn, of one to
// four seats, wherever they are. Each has an account; those that may come to be
// matched in a benchmark have a payment that is authorised.
func queueUp(ctx context.Context, owner *pgxpool.Pool, sale int64, intervals []interval, hot, rest int) error {
	var from, to []int
	for _, iv := range intervals {
		from, to = append(from, iv.from), append(to, iv.to)
	}
	others := rest * (len(intervals) - 1)
	total := hot + others
	return pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		// The rows agree with each other by how they are made; checking two million
		// foreign keys would take longer than all else.
		if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		var number, score int64
		err := tx.QueryRow(ctx, `SELECT coalesce((SELECT max(number) FROM standby_order), 0), nextval('standby_score')`).Scan(&number, &score)
		if err != nil {
			return err
		}
		indexes, err := dropIndexes(ctx, tx, "standby_order", "account_sale", "payment")
		if err != nil {
			return err
		}
		// The places of the hot queue are even ones and those of the others odd ones,
		// each spread over the whole: the queues have grown side by side.
		if _, err := tx.Exec(ctx, `INSERT INTO standby_order (sale_id, number, account, request_key, classes, leg_from, leg_to, quantity, together,
				fares, currency, gateway, payment_id, state, step, until, authorise_by, score, joined_at, queued_at)
			OVERRIDING SYSTEM VALUE
			SELECT $1, $2 + r, 'wait-' || r, 'w' || r, ARRAY[$3::text], ($4::int[])[q], ($5::int[])[q], r % 4 + 1,
				0, ARRAY[2500 * (r % 4 + 1)], 'CAD', 'sandbox', gen_random_uuid(), 'queued', 'authorised',
				now() + interval '1 day', now() + interval '1 day', $6 + place, now(), now()
			FROM (
				SELECT r, 1 AS q, 2 * floor(r * greatest(1, $7::float8 / $8))::bigint AS place FROM generate_series(0, $8::bigint - 1) r
				UNION ALL
				SELECT $8 + r, 2 + r % greatest(1, cardinality($4::int[]) - 1), 2 * floor(r * greatest(1, $7::float8 / greatest(1, $9)))::bigint + 1
				FROM generate_series(0, $9::bigint - 1) r) w (r, q, place)`,
			sale, number+1, class, from, to, score, total, hot, others); err != nil {
			return fmt.Errorf("orders: %w", err)
		}
		for _, s := range []string{
			`INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together)
			SELECT sale_id, classes[1], leg_from, leg_to, score, number, quantity, together FROM standby_order WHERE sale_id = $1 AND number > $2 ORDER BY score`,
			`INSERT INTO account_sale (sale_id, account, live_seats, seat_limit)
			SELECT sale_id, account, 0, 4 FROM standby_order WHERE sale_id = $1 AND number > $2`,
			`INSERT INTO payment (sale_id, payment_id, standby_order, account, gateway, request_key, amount, currency, step, reference, made_at, ask_at)
			SELECT sale_id, payment_id, number, account, gateway, request_key, fares[1], currency, 'created', 'ref-' || number, now(), now() + interval '1 day'
			FROM standby_order WHERE sale_id = $1 AND number > $2 AND (number <= $2 + 20000 OR number > $2 + $3)`,
			`SELECT setval(pg_get_serial_sequence('standby_order', 'number'), (SELECT max(number) FROM standby_order)),
				setval('standby_score', (SELECT max(score) FROM standby_order)) WHERE $1::bigint > 0 AND $2::bigint >= 0`,
		} {
			args := []any{sale, number}
			if strings.Contains(s, "$3") {
				args = append(args, hot)
			}
			if _, err := tx.Exec(ctx, s, args...); err != nil {
				return fmt.Errorf("%.40s: %w", s, err)
			}
		}
		// Made again as they were: row by row they would take longer than all else.
		for _, s := range indexes {
			if _, err := tx.Exec(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
}

// dropIndexes drops the indexes of tables that no constraint needs, and returns
// the statements that make them again.
func dropIndexes(ctx context.Context, tx pgx.Tx, tables ...string) (again []string, err error) {
	rows, err := tx.Query(ctx, `SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
		WHERE i.indrelid::regclass::text = ANY ($1) AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)`, tables)
	if err != nil {
		return nil, err
	}
	var names []string
	var name, definition string
	if _, err := pgx.ForEachRow(rows, []any{&name, &definition}, func() error {
		names, again = append(names, name), append(again, definition)
		return nil
	}); err != nil {
		return nil, err
	}
	for _, n := range names {
		if _, err := tx.Exec(ctx, "DROP INDEX "+n); err != nil {
			return nil, err
		}
	}
	return again, nil
}
