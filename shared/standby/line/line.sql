-- Statements of the queues' mirror. They read the tables of standby; what they
-- write goes through the functions of migrations/00065_queue.sql.

-- name: orders
-- Orders as they stand now: the classes in whose queues each waits, none when it
-- has left them.
SELECT o.number, o.classes, o.leg_from, o.leg_to, COALESCE(o.score, 0), o.state = 'pending',
       ARRAY(SELECT q.class FROM standby_queue q WHERE q.sale_id = $1 AND q.number = o.number)
FROM standby_order o WHERE o.sale_id = $1 AND o.number = ANY ($2);

-- name: recovered
-- Pending orders that stand in their queues in Redis now.
SELECT standby_recovered($1, $2);

-- name: order
SELECT state = 'pending', joined_at FROM standby_order WHERE sale_id = $1 AND number = $2;

-- name: few
-- Whether at most so many wait.
SELECT count(*) <= $2 FROM (SELECT 1 FROM standby_queue WHERE sale_id = $1 LIMIT $2 + 1) q;

-- name: queues
-- The queues of a sale, found by skipping from one to the next in the index.
WITH RECURSIVE k (class, leg_from, leg_to) AS (
    (SELECT q.class, q.leg_from, q.leg_to FROM standby_queue q
     WHERE q.sale_id = $1 ORDER BY q.class, q.leg_from, q.leg_to LIMIT 1)
    UNION ALL
    SELECT n.class, n.leg_from, n.leg_to FROM k CROSS JOIN LATERAL (
        SELECT q.class, q.leg_from, q.leg_to FROM standby_queue q
        WHERE q.sale_id = $1 AND (q.class, q.leg_from, q.leg_to, q.score) > (k.class, k.leg_from, k.leg_to, 9223372036854775807)
        ORDER BY q.class, q.leg_from, q.leg_to, q.score LIMIT 1) n)
SELECT class, leg_from, leg_to FROM k;

-- name: above
-- Whether more than so many wait in a queue.
SELECT count(*) > $5 FROM (SELECT 1 FROM standby_queue
    WHERE sale_id = $1 AND class = $2 AND leg_from = $3 AND leg_to = $4 LIMIT $5 + 1) q;

-- name: page
-- A queue from a score on, in its order.
SELECT number, score FROM standby_queue
WHERE sale_id = $1 AND class = $2 AND leg_from = $3 AND leg_to = $4 AND score > $5 ORDER BY score LIMIT $6;

-- name: standing
-- Which of these orders stand in a queue.
SELECT number, score FROM standby_queue
WHERE sale_id = $1 AND class = $2 AND leg_from = $3 AND leg_to = $4 AND number = ANY ($5);

-- name: sales
-- Sales with standby orders, until a day after they close, and whether any waits.
SELECT s.sale_id, EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = s.sale_id)
FROM sale s
WHERE s.closes_at > now() - interval '1 day' AND EXISTS (SELECT 1 FROM standby_order o WHERE o.sale_id = s.sale_id)
ORDER BY s.sale_id LIMIT $1;

-- name: waiting-sales
SELECT s.sale_id FROM sale s
WHERE EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = s.sale_id)
ORDER BY s.sale_id LIMIT $1;

-- name: waiting-classes
SELECT c.class FROM class c
WHERE c.sale_id = $1 AND EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = c.class)
ORDER BY c.position;

-- name: pending-sales
SELECT DISTINCT sale_id FROM standby_order WHERE state = 'pending' ORDER BY sale_id LIMIT $1;

-- name: pending
SELECT number FROM standby_order WHERE sale_id = $1 AND state = 'pending' AND number <> $2 ORDER BY number LIMIT $3;

-- name: rates
-- Orders that got seats lately, of each class and interval.
SELECT class, leg_from, leg_to, count(*) FROM standby_order
WHERE sale_id = $1 AND matched_at IS NOT NULL AND matched_at > now() - $2::interval
GROUP BY class, leg_from, leg_to;

-- name: outcomes
-- What became of the last releases of a class that offered something, the newest
-- last; with the release's own facts, whatever was stored beside them.
SELECT (outcome || jsonb_build_object('event', event_type, 'at', released_at, 'from', leg_from, 'to', leg_to))::text
FROM (SELECT * FROM seat_release
      WHERE sale_id = $1 AND class = $2 AND done_at IS NOT NULL AND outcome -> 'gaps' -> 0 IS NOT NULL
      ORDER BY done_at DESC LIMIT $3) r
ORDER BY done_at;

-- name: recheck
SELECT standby_recheck($1, $2);

-- name: due-sales
-- Sales where something has been due for `match` for two seconds: a look without
-- locks (SQL rule 8).
SELECT sale_id FROM seat_release WHERE done_at IS NULL AND released_at < now() - interval '2 seconds'
UNION
SELECT sale_id FROM standby_due WHERE due_at < now() - interval '2 seconds'
ORDER BY sale_id LIMIT $1;

-- name: late-releases
-- Releases, and new orders of a sale, that nobody has looked at for 60 s and nobody
-- was told of.
SELECT r.sale_id, r.release_id::text, r.event_type || ' of seat ' || r.seat || ' of ' || to_char(r.released_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
FROM seat_release r
WHERE r.done_at IS NULL AND r.released_at < now() - interval '60 seconds' AND NOT EXISTS (
    SELECT 1 FROM alert a WHERE a.sale_id = r.sale_id AND a.kind = $1 AND a.subject = r.release_id::text AND a.closed_at IS NULL)
UNION ALL
SELECT d.sale_id, 'new orders', count(*) || ' new orders, the first of ' || to_char(min(d.due_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
FROM standby_due d
WHERE d.due_at < now() - interval '60 seconds' AND NOT EXISTS (
    SELECT 1 FROM alert a WHERE a.sale_id = d.sale_id AND a.kind = $1 AND a.subject = 'new orders' AND a.closed_at IS NULL)
GROUP BY d.sale_id
ORDER BY 1, 2 LIMIT $2;

-- name: healed-releases
-- Alerts of releases that were looked at since. One that was set aside (tries)
-- stays open for people.
SELECT a.sale_id, a.subject, ''
FROM alert a JOIN seat_release r ON r.sale_id = a.sale_id
    AND r.release_id = CASE WHEN a.subject ~ '^[0-9]{1,18}$' THEN a.subject::bigint END
WHERE a.kind = $1 AND a.closed_at IS NULL AND r.done_at IS NOT NULL AND r.tries < 3
UNION ALL
SELECT a.sale_id, a.subject, '' FROM alert a
WHERE a.kind = $1 AND a.closed_at IS NULL AND a.subject = 'new orders'
  AND NOT EXISTS (SELECT 1 FROM standby_due d WHERE d.sale_id = a.sale_id AND d.due_at < now() - interval '60 seconds')
ORDER BY 1, 2 LIMIT $2;

-- name: gaps
-- Runs of free legs of seats that are not due, of classes with waiting orders.
SELECT f.class, min(f.leg)::integer, max(f.leg)::integer
FROM (SELECT s.class, s.number, l.leg, l.leg - row_number() OVER (PARTITION BY s.number ORDER BY l.leg) AS run
      FROM seat s CROSS JOIN LATERAL unnest(s.taken_until) WITH ORDINALITY l (until, leg)
      WHERE s.sale_id = $1 AND l.until <= now()
        AND EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = s.class)
        AND NOT EXISTS (SELECT 1 FROM seat_release r WHERE r.sale_id = $1 AND r.seat = s.number AND r.done_at IS NULL)) f
GROUP BY f.class, f.number, f.run;

-- name: heads-checked
-- The first $2 of each queue, as far as `match` has looked at them.
WITH RECURSIVE k (class, leg_from, leg_to) AS (
    (SELECT q.class, q.leg_from, q.leg_to FROM standby_queue q
     WHERE q.sale_id = $1 ORDER BY q.class, q.leg_from, q.leg_to LIMIT 1)
    UNION ALL
    SELECT n.class, n.leg_from, n.leg_to FROM k CROSS JOIN LATERAL (
        SELECT q.class, q.leg_from, q.leg_to FROM standby_queue q
        WHERE q.sale_id = $1 AND (q.class, q.leg_from, q.leg_to, q.score) > (k.class, k.leg_from, k.leg_to, 9223372036854775807)
        ORDER BY q.class, q.leg_from, q.leg_to, q.score LIMIT 1) n)
SELECT k.class, k.leg_from, k.leg_to, h.number, h.quantity
FROM k CROSS JOIN LATERAL (
    SELECT q.number, q.quantity, q.score FROM standby_queue q
    WHERE q.sale_id = $1 AND q.class = k.class AND q.leg_from = k.leg_from AND q.leg_to = k.leg_to
    ORDER BY q.score LIMIT $2) h
WHERE NOT EXISTS (SELECT 1 FROM standby_due d WHERE d.sale_id = $1 AND d.score = h.score);

-- name: recheck-orders
SELECT standby_recheck_orders($1, $2);
