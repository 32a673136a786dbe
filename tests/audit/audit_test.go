// Package audit_test plants a breach of each invariant and sees that the audit
// finds it, and nothing else.
package audit_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"handler/function/shared/audit"
	"handler/function/tests/harness"

	"github.com/jackc/pgx/v5/pgxpool"
)

// sound is a sale of four seats on three legs with a booking that is held (1),
// one that is paid for (2), one that was given back (3), and a room that has
// drawn and admitted.
const sound = `
INSERT INTO sale (org, kind, title, service_date, timezone, state, legs, stops, currency, opens_at, closes_at, gateways, test)
VALUES ('o', 'train', 't', '2026-12-24', 'America/Toronto', 'open', 3, '[]', 'CAD', now() - interval '1 hour', now() + interval '1 day', '{sandbox}', true);
INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES (1, 'second', 0, 'Second', 'numbered', '{}');
SELECT seat_create(1, 'second', 3, ARRAY[1, 2, 3, 4], false);

INSERT INTO account_sale VALUES (1, 'ann', 1, 6), (1, 'bob', 2, 6), (1, 'cid', 0, 6);
SELECT seat_hold(1, 1, ARRAY[1], 1, 2, now() + interval '5 minutes', false);
SELECT seat_hold(1, 2, ARRAY[2, 3], 2, 3, now() + interval '5 minutes', false);
SELECT seat_book(1, 2, ARRAY[2, 3], 2, 3);
INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at) VALUES
    (1, 1, 'ann', 'second', 1, 2, '{1}', 1, 'held', 500, 'CAD', now(), now() + interval '5 minutes', now() + interval '10 minutes'),
    (1, 2, 'bob', 'second', 2, 3, '{2,3}', 2, 'booked', 1000, 'CAD', now(), now() + interval '5 minutes', now() + interval '10 minutes'),
    (1, 3, 'cid', 'second', 1, 1, '{4}', 1, 'cancelled', 250, 'CAD', now(), now() + interval '5 minutes', now() + interval '10 minutes');
INSERT INTO payment (sale_id, payment_id, booking, account, gateway, request_key, amount, currency, state, step, reference, outcome,
    captured, captured_in, captured_at, returning_amount, returned_amount, made_at, settled_at) VALUES
    (1, '00000000-0000-7000-8000-000000000002', 2, 'bob', 'sandbox', 'k', 1000, 'CAD', 'succeeded', 'settled', 'r2', 'booked', 1000, 'CAD', now(), 0, 0, now(), now()),
    (1, '00000000-0000-7000-8000-000000000003', 3, 'cid', 'sandbox', 'k', 250, 'CAD', 'refunded', 'settled', 'r3', 'booked', 250, 'CAD', now(), 250, 250, now(), now());
INSERT INTO refund (sale_id, payment_id, booking, amount, currency, reason, key, state, done_at)
VALUES (1, '00000000-0000-7000-8000-000000000003', 3, 250, 'CAD', 'asked', 'rk', 'succeeded', now());

INSERT INTO standby_order (sale_id, number, account, request_key, classes, leg_from, leg_to, quantity, together, fares, currency, gateway,
    state, step, until, authorise_by, score, joined_at, queued_at, booking, class, matched_at, ended_at) OVERRIDING SYSTEM VALUE VALUES
    (1, 1, 'cid', 's1', '{second}', 1, 2, 1, 0, '{500}', 'CAD', 'sandbox', 'queued', 'authorised', now() + interval '1 hour', now() + interval '1 hour', 1, now(), now(), NULL, NULL, NULL, NULL),
    (1, 2, 'bob', 's2', '{second}', 2, 3, 2, 0, '{1000}', 'CAD', 'sandbox', 'booked', 'confirmed', now() + interval '1 hour', now() + interval '1 hour', 2, now(), now(), 2, 'second', now(), now());
INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together) VALUES (1, 'second', 1, 2, 1, 1, 1, 0);
UPDATE booking SET origin = 'match' WHERE number = 2;

INSERT INTO room (draw_opens_at, draw_ends_at, draw_commitment, admit_per_second, standby_per_second, lapse_seconds, admit_seconds, reserved, serving)
VALUES (now() - interval '1 hour', now() - interval '59 minutes', decode(repeat('00', 32), 'hex'), 100, 100, 600, 600, 1000, 2);
INSERT INTO admission (room_id, generation, account, place, admit_for, issued_at, ends_at)
VALUES (1, 1, 'ann', 1, 'hold', now(), now() + interval '10 minutes'), (1, 1, 'bob', 2, 'hold', now(), now() + interval '10 minutes');
`

// replica lets a planted change pass what the schema would refuse: foreign keys
// do not fire. Checks do, so they are dropped where one would refuse.
const replica = `SET session_replication_role = replica;`

var planted = []struct {
	check     string
	invariant int
	sql       string
}{
	{"overlap", 1, `ALTER TABLE account_sale DROP CONSTRAINT account_sale_limit;
		INSERT INTO account_sale VALUES (1, 'eve', 1, 6);
		INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at)
		VALUES (1, 9, 'eve', 'second', 3, 3, '{2}', 1, 'held', 0, 'CAD', now(), now() + interval '5 minutes', now() + interval '5 minutes')`},
	{"incomplete", 1, `UPDATE seat SET taken_until[1] = now() - interval '1 second' WHERE number = 1`},
	{"orphan", 1, `UPDATE seat SET taken_until[1] = now() + interval '1 minute', taken_by[1] = 77 WHERE number = 4`},
	{"orphan", 1, `UPDATE seat SET taken_until[1:2] = ARRAY[now() + interval '9 hours', now() + interval '9 hours'] WHERE number = 1`},
	{"booked_seat", 1, `DELETE FROM booked_seat WHERE seat = 3`},
	{"booked_seat", 1, `UPDATE booked_seat SET legs = int4range(1, 3, '[]') WHERE seat = 3`},
	{"account_sale", 1, `UPDATE account_sale SET live_seats = 5 WHERE account = 'ann'`},
	{"account_sale", 1, `DELETE FROM account_sale WHERE account = 'bob'`},
	{"money", 3, `UPDATE payment SET captured = 900 WHERE booking = 2`},
	{"money", 3, `DELETE FROM payment WHERE booking = 2`},
	{"money", 3, `DELETE FROM refund`},
	{"money", 3, `UPDATE refund SET state = 'due', done_at = NULL`},
	{"money", 3, `INSERT INTO payment (sale_id, payment_id, booking, account, gateway, request_key, amount, currency, reference, step, made_at, ask_at)
		VALUES (1, '00000000-0000-7000-8000-000000000001', 1, 'ann', 'sandbox', 'k', 500, 'CAD', 'r1', 'created', now() - interval '3 hours', now())`},
	{"queues", 4, `DELETE FROM standby_queue`},
	{"queues", 4, `UPDATE standby_queue SET score = 9`},
	{"queues", 4, `UPDATE standby_queue SET leg_to = 3`},
	{"queues", 4, `UPDATE standby_queue SET class = 'first'`},
	{"queues", 4, `UPDATE standby_order SET state = 'cancelled', ended_at = now() WHERE number = 1`},
	{"queues", 4, `UPDATE standby_order SET classes = '{second,first}', fares = '{500,900}' WHERE number = 1`},
	{"queues", 4, `INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together) VALUES (1, 'second', 2, 3, 2, 2, 2, 0)`},
	{"orders", 4, `UPDATE standby_order SET state = 'cancelled' WHERE number = 2`},
	{"orders", 4, `UPDATE standby_order SET state = 'matched', ended_at = NULL WHERE number = 2`},
	{"orders", 4, `UPDATE standby_order SET booking = 77 WHERE number = 2`},
	{"orders", 4, `UPDATE standby_order SET booking = 3 WHERE number = 2`},
	{"outbox", 5, `INSERT INTO outbox (sale_id, kind, subject, due_at) VALUES (1, 'ticket', '2', now() - interval '2 minutes')`},
	{"release_due", 5, `INSERT INTO seat_release (sale_id, event_type, class, seat, leg_from, leg_to, released_at)
		VALUES (1, 'REFUND', 'second', 4, 1, 1, now() - interval '2 minutes')`},
	{"order_due", 5, `INSERT INTO standby_due (sale_id, score, number, due_at) VALUES (1, 1, 1, now() - interval '2 minutes')`},
	{"places", 6, `INSERT INTO admission (room_id, generation, account, place, admit_for, issued_at, ends_at)
		VALUES (1, 1, 'eve', 2, 'hold', now(), now() + interval '10 minutes')`},
	{"places", 6, `INSERT INTO admission (room_id, generation, account, place, admit_for, issued_at, ends_at)
		VALUES (1, 1, 'eve', 3, 'hold', now(), now() + interval '10 minutes')`},
	{"limits", 6, `UPDATE sale SET account_limit = 1`},
	{"limits", 6, `UPDATE booking SET admission = 5 WHERE number IN (1, 3); INSERT INTO booking (sale_id, number, account, admission, class, leg_from, leg_to, seats, quantity, state, amount, currency, made_at, ends_at, limit_at)
		VALUES (1, 8, 'ann', 5, 'second', 3, 3, '{4}', 1, 'expired', 0, 'CAD', now(), now() + interval '5 minutes', now() + interval '5 minutes')`},
	{"unconsidered", 7, `INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together) VALUES (1, 'second', 1, 1, 7, 7, 1, 0);
		UPDATE seat SET taken_until[1] = now() - interval '2 minutes' WHERE number = 4`},
}

func TestEveryInvariantCanFail(t *testing.T) {
	t.Parallel()
	for _, p := range planted {
		t.Run(p.check, func(t *testing.T) {
			t.Parallel()
			db := prepare(t)
			if r := run(t, db.App, nil); !r.OK() {
				t.Fatalf("a sound platform: %+v", r.Broken)
			}
			exec(t, db.Owner, replica+p.sql)
			r := run(t, db.App, nil)
			if len(r.Broken) == 0 {
				t.Fatalf("the audit did not see: %s", p.sql)
			}
			seen := false
			for _, b := range r.Broken {
				seen = seen || b.Check == p.check && b.Invariant == p.invariant
			}
			if !seen {
				t.Errorf("want %s of invariant %d, got %+v", p.check, p.invariant, r.Broken)
			}
		})
	}
}

func TestStoredListsAndLateNumbers(t *testing.T) {
	t.Parallel()
	db := prepare(t)
	insert := func(generation int64, scores []uint64, spoil bool) {
		var list, public []byte
		for _, s := range scores {
			list = binary.BigEndian.AppendUint64(list, s<<12|7)
			public = binary.BigEndian.AppendUint64(public, s)
		}
		sum := sha256.Sum256(public)
		if spoil {
			sum[0]++
		}
		if _, err := db.Owner.Exec(context.Background(), `INSERT INTO room_draw (room_id, generation, people, list, list_hash) VALUES (1, $1, $2, $3, $4)`,
			generation, len(scores), list, sum[:]); err != nil {
			t.Fatal(err)
		}
	}
	insert(1, []uint64{5, 9, 11}, false)
	if r := run(t, db.App, nil); !r.OK() {
		t.Fatalf("a sound list: %+v", r.Broken)
	}
	insert(2, []uint64{5, 5, 11}, false)
	insert(3, []uint64{5, 4, 11}, false)
	insert(4, []uint64{5, 9, 11}, true)
	if r := run(t, db.App, nil); len(r.Broken) != 3 {
		t.Fatalf("three spoiled lists: %+v", r.Broken)
	}
	exec(t, db.Owner, `DELETE FROM room_draw WHERE generation > 1`)
	twice := []audit.Join{{Room: 1, Generation: 1, Account: "ann", Late: 1}, {Room: 1, Generation: 1, Account: "bob", Late: 2},
		{Room: 1, Generation: 1, Account: "bob", Late: 2}, {Room: 1, Generation: 2, Account: "cid", Late: 2}, {Room: 2, Generation: 1, Account: "eve", Late: 2}}
	if r := run(t, db.App, twice); !r.OK() {
		t.Fatalf("sound numbers: %+v", r.Broken)
	}
	if r := run(t, db.App, append(twice, audit.Join{Room: 1, Generation: 1, Account: "eve", Late: 1})); len(r.Broken) != 1 || r.Broken[0].Check != "late" {
		t.Fatalf("one late number twice: %+v", r.Broken)
	}
}

func TestTotalsAndAlerts(t *testing.T) {
	t.Parallel()
	db := prepare(t)
	exec(t, db.Owner, `INSERT INTO alert (sale_id, kind, subject, detail) VALUES (1, 'outbox', 'ticket', 'mail away');
		INSERT INTO outbox (sale_id, kind, subject, due_at) VALUES (1, 'ticket', '2', now() - interval '2 minutes')`)
	r := run(t, db.App, nil)
	if !r.OK() || len(r.Alerts) != 1 || r.Alerts[0].Kind != "outbox" {
		t.Errorf("a late row with an alert breaks nothing and shows the alert: %+v", r)
	}
	if r.Sales != 1 || r.Sold != 2 || r.Held != 1 || r.Refunded != 1 || r.Oversold != 0 {
		t.Errorf("totals: %+v", r)
	}
}

func prepare(t *testing.T) *harness.Database {
	t.Helper()
	db := harness.DB(t)
	exec(t, db.Owner, sound)
	return db
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	c, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := c.Conn().PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(context.Background(), `RESET session_replication_role`); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, pool *pgxpool.Pool, joins []audit.Join) audit.Report {
	t.Helper()
	r, err := audit.Run(context.Background(), pool, 0, joins)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The queues in Redis hold exactly those of Postgres, but for what is on its way.
func TestQueuesInRedis(t *testing.T) {
	t.Parallel()
	db := prepare(t)
	one := audit.Queued{Class: "second", From: 1, To: 2, Number: 1, Score: 1}
	other := func(change func(q *audit.Queued)) audit.Queued {
		q := one
		change(&q)
		return q
	}
	check := func(want int, queues ...audit.Queued) {
		t.Helper()
		broken, err := audit.Queues(context.Background(), db.App, 1, queues)
		if err != nil {
			t.Fatal(err)
		}
		if len(broken) != want {
			t.Errorf("want %d breaches, got %+v", want, broken)
		}
		for _, b := range broken {
			if b.Invariant != 4 || b.Check != "redis" {
				t.Errorf("%+v", b)
			}
		}
	}
	check(0, one)
	check(1)
	check(1, one, other(func(q *audit.Queued) { q.Number = 2 }))
	check(2, other(func(q *audit.Queued) { q.Score = 2 }))
	check(2, other(func(q *audit.Queued) { q.To = 3 }))
	check(2, other(func(q *audit.Queued) { q.Class = "first" }))
	outbox := func(age string) {
		exec(t, db.Owner, `DELETE FROM outbox; INSERT INTO outbox (sale_id, kind, subject, payload, created_at)
			VALUES (1, 'standby_queue', '1', '{"order": 1}', now() - interval '`+age+`')`)
	}
	outbox("5 seconds")
	check(0)
	outbox("2 minutes")
	check(1)
	exec(t, db.Owner, `UPDATE outbox SET done_at = now()`)
	check(0)
	exec(t, db.Owner, `UPDATE outbox SET done_at = now() - interval '1 minute'`)
	check(1)
}
