-- Statements of the table booking. What moves a booking and its seats is the SQL
-- functions of migrations/00003_booking.sql. Columns stand in the order of scan.

-- name: load
SELECT b.sale_id, b.number, b.account, coalesce(b.admission, 0), b.class, b.leg_from, b.leg_to, b.seats, b.quantity,
    CASE WHEN b.state = 'held' AND b.ends_at <= now() THEN 'expired' ELSE b.state END,
    b.amount, b.currency, b.made_at, b.ends_at, b.limit_at, b.ended_at, b.departs_at, b.passengers, b.contact,
    coalesce(b.group_id, ''), b.origin, b.history, b.trace_id, now()
FROM booking b WHERE b.sale_id = $1 AND b.number = $2;

-- name: list
-- An account's bookings over all sales: account_sale says which (law 8).
SELECT b.sale_id, b.number, b.account, coalesce(b.admission, 0), b.class, b.leg_from, b.leg_to, b.seats, b.quantity,
    CASE WHEN b.state = 'held' AND b.ends_at <= now() THEN 'expired' ELSE b.state END,
    b.amount, b.currency, b.made_at, b.ends_at, b.limit_at, b.ended_at, b.departs_at, b.passengers, b.contact,
    coalesce(b.group_id, ''), b.origin, '[]'::jsonb, b.trace_id, now()
FROM account_sale a JOIN booking b ON b.sale_id = a.sale_id AND b.account = a.account
WHERE a.account = $1
ORDER BY b.made_at DESC, b.sale_id DESC, b.number DESC LIMIT $2;

-- name: hold
-- The whole hold: its answer, or its refusal.
SELECT hold_seats($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19);

-- name: rename
-- Names may change while the booking is live, also when nothing is left to sell.
UPDATE booking SET passengers = $4, history = history || history_line(now(), 'renamed', '')
WHERE sale_id = $1 AND number = $2 AND account = $3 AND (state = 'booked' OR state = 'held' AND ends_at > now());

-- name: let-go
SELECT let_go_booking($1, $2, $3, $4, $5);

-- name: cancel
SELECT cancel_booking($1, $2, $3, $4, $5);

-- name: ended-sales
-- Sales with holds that ended at least $1 ago: a look without locks (SQL rule 8).
SELECT DISTINCT sale_id FROM booking WHERE state = 'held' AND ends_at <= now() - $1::interval ORDER BY sale_id LIMIT $2;

-- name: expire
SELECT expire_ended_holds($1, $2);

-- name: paid
-- Whether an admission has led to a booking that was paid.
SELECT EXISTS (SELECT 1 FROM booking WHERE sale_id = $1 AND admission = $2 AND state IN ('booked', 'cancelled'));
