-- Statements of the table standby_order. What moves an order is the SQL functions
-- of migrations/00060_standby.sql. Columns stand in the order of scan.

-- name: join
-- An order joins, or the one that the same request made is found again.
SELECT standby_join($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- name: leave
SELECT standby_leave($1, $2, $3, $4);

-- name: load-order
SELECT o.sale_id, o.number, o.account, o.classes, o.leg_from, o.leg_to, o.quantity, o.together, o.fares, o.currency, o.gateway,
    o.state, o.step, o.until, o.authorise_by, COALESCE(o.class, ''), COALESCE(o.booking, 0), COALESCE(o.reason, ''),
    o.joined_at, o.queued_at, o.matched_at, o.ended_at, o.passengers, o.contact, o.history, o.trace_id, clock_timestamp()
FROM standby_order o WHERE o.sale_id = $1 AND o.number = $2;

-- name: list-orders
-- An account's orders over all sales: account_sale says which (law 8).
SELECT o.sale_id, o.number, o.account, o.classes, o.leg_from, o.leg_to, o.quantity, o.together, o.fares, o.currency, o.gateway,
    o.state, o.step, o.until, o.authorise_by, COALESCE(o.class, ''), COALESCE(o.booking, 0), COALESCE(o.reason, ''),
    o.joined_at, o.queued_at, o.matched_at, o.ended_at, o.passengers, o.contact, '[]'::jsonb, o.trace_id, clock_timestamp()
FROM account_sale a JOIN standby_order o ON o.sale_id = a.sale_id AND o.account = a.account
WHERE a.account = $1
ORDER BY o.joined_at DESC, o.sale_id DESC, o.number DESC LIMIT $2;

-- name: over-sales
-- Sales with orders whose time may be over: a look without locks (SQL rule 8).
-- One whose sale has ended, one past its end, one not authorised in time. It steps
-- from sale to sale: millions may wait in one, and none of them is over.
WITH RECURSIVE open (sale_id) AS (
    (SELECT o.sale_id FROM standby_order o WHERE o.state IN ('authorising', 'queued', 'pending') ORDER BY o.sale_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.sale_id FROM standby_order o WHERE o.state IN ('authorising', 'queued', 'pending') AND o.sale_id > open.sale_id
            ORDER BY o.sale_id LIMIT 1)
    FROM open WHERE open.sale_id IS NOT NULL)
SELECT s.sale_id FROM open JOIN sale s ON s.sale_id = open.sale_id
WHERE s.state IN ('closed', 'cancelled') OR s.closes_at <= now()
   OR EXISTS (SELECT 1 FROM standby_order o WHERE o.sale_id = s.sale_id AND o.state IN ('authorising', 'queued', 'pending') AND o.until <= now())
   OR EXISTS (SELECT 1 FROM standby_order o WHERE o.sale_id = s.sale_id AND o.state = 'authorising' AND o.authorise_by <= now())
ORDER BY s.sale_id LIMIT $1;

-- name: expire-orders
SELECT standby_expire($1, $2);

-- name: known-or-free
-- Whether the same request has made its order already, and the first of these
-- classes in which the open sale can give as many seats: where somebody waits, of
-- those that `match` has passed by.
SELECT EXISTS (SELECT 1 FROM standby_order WHERE sale_id = $1 AND account = $2 AND request_key = $3),
    (SELECT k.class FROM unnest($4::text[]) WITH ORDINALITY k (class, place)
     WHERE $7 <= (SELECT count(*) FROM (
         SELECT 1 FROM seat s
         WHERE s.sale_id = $1 AND s.class = k.class AND 1 <= $5 AND $5 <= $6 AND $6 <= s.legs
           AND clock_timestamp() >= ALL (s.taken_until[$5:$6])
           AND (s.considered_at >= ALL (s.taken_until[$5:$6])
                OR NOT EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = k.class OFFSET 0))
         LIMIT $7) f)
     ORDER BY k.place LIMIT 1);
