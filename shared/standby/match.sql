-- Statements of `match`. What moves a seat or an order is the SQL functions of
-- migrations/00060_standby.sql.

-- name: due-sales
-- Sales with something to match: a look without locks (SQL rule 8). OFFSET 0 has
-- the queue asked about each kept seat's order: a join would read whole queues.
SELECT sale_id FROM seat_release WHERE done_at IS NULL
UNION
SELECT sale_id FROM standby_due
UNION
SELECT k.sale_id FROM booking k
WHERE k.kept_for IS NOT NULL AND k.state = 'held' AND k.ends_at > now()
  AND NOT EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = k.sale_id AND q.number = k.kept_for OFFSET 0)
ORDER BY sale_id LIMIT $1;

-- name: look
-- What is kept for orders that wait no more is asked for when no release is due:
-- there may be hundreds of keeps, and what came free does not wait for that.
SELECT r.due, EXISTS (SELECT 1 FROM standby_due d WHERE d.sale_id = $1),
    NOT r.due AND EXISTS (SELECT 1 FROM booking k WHERE k.sale_id = $1 AND k.kept_for IS NOT NULL AND k.state = 'held' AND k.ends_at > now()
            AND NOT EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.number = k.kept_for OFFSET 0)),
    s.state IN ('draft', 'paused'),
    (s.state IN ('closed', 'cancelled') OR s.closes_at <= now()) AND EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1)
FROM sale s, (SELECT EXISTS (SELECT 1 FROM seat_release WHERE sale_id = $1 AND done_at IS NULL) AS due) r WHERE s.sale_id = $1;

-- name: begin
-- Each statement of the transaction has one plan for good, as in the functions, and
-- not a scan of the whole of a table that is small now: with a plan for just these
-- parameters, which the planner finds cheaper, a run spends a tenth of its time on
-- planning.
SELECT standby_match_begin($1), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true);

-- name: refuse
SELECT standby_refuse($1, $2, $3);

-- name: expire
SELECT standby_expire($1, $2);

-- name: unkeep
SELECT standby_unkeep($1);

-- name: due-releases
-- By state, never by a sequence (field case 61). A row that has failed comes when
-- all others are done, and alone.
SELECT release_id, event_type, class, seat, leg_from, leg_to, tries, released_at FROM seat_release
WHERE sale_id = $1 AND done_at IS NULL ORDER BY tries > 0, release_id LIMIT $2;

-- name: still-due
-- The ids of due-releases, once more.
SELECT release_id FROM seat_release
WHERE sale_id = $1 AND done_at IS NULL ORDER BY tries > 0, release_id LIMIT $2;

-- name: still-new
-- The scores of newcomers, once more.
SELECT score FROM standby_due WHERE sale_id = $1 ORDER BY score LIMIT $2;

-- name: newcomers
SELECT o.number, o.score, o.classes, o.leg_from, o.leg_to, o.quantity, o.together
FROM (SELECT score, number FROM standby_due WHERE sale_id = $1 ORDER BY score LIMIT $2) d
CROSS JOIN LATERAL (SELECT * FROM standby_order k WHERE k.sale_id = $1 AND k.number = d.number OFFSET 0) o
ORDER BY d.score;

-- name: waiting-classes
-- One step into the index for each class: an EXISTS is planned as a join with the
-- whole of a long queue (31 ms of 65,000 rows, measured), and a LIMIT without an
-- order as a scan of the table.
SELECT c.class FROM class c CROSS JOIN LATERAL (
    SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = c.class
    ORDER BY q.leg_from, q.leg_to, q.score LIMIT 1) w
WHERE c.sale_id = $1;

-- name: clock
-- The moment by which legs are free in a run. It is read before the strips: what
-- ends later is found by standby_still.
SELECT clock_timestamp();

-- name: due-strips
-- The seats of due releases, and where they are.
SELECT s.number, s.class, s.considered_at, s.taken_until, s.xmin::text, coalesce(p.coach, ''), coalesce(p.row_number::text, '')
FROM seat s LEFT JOIN seat_place p ON p.sale_id = $1 AND p.number = s.number
WHERE s.sale_id = $1 AND s.number = ANY (ARRAY(
    SELECT seat FROM seat_release WHERE sale_id = $1 AND done_at IS NULL ORDER BY tries > 0, release_id LIMIT $2));

-- name: due-beside
-- Seats with a free leg of the classes of due releases that somebody waits for:
-- where the others of a group may sit.
SELECT s.number, s.class, s.considered_at, s.taken_until, s.xmin::text, coalesce(p.coach, ''), coalesce(p.row_number::text, '')
FROM (SELECT DISTINCT r.class FROM (
          SELECT class FROM seat_release WHERE sale_id = $1 AND done_at IS NULL ORDER BY tries > 0, release_id LIMIT $2) r
      CROSS JOIN LATERAL (
          SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = r.class ORDER BY q.leg_from, q.leg_to, q.score LIMIT 1) w) c
CROSS JOIN LATERAL (
    SELECT number, class, considered_at, taken_until, xmin FROM seat
    WHERE sale_id = $1 AND class = c.class AND clock_timestamp() >= ANY (taken_until) OFFSET 0) s
LEFT JOIN LATERAL (SELECT coach, row_number FROM seat_place WHERE sale_id = $1 AND number = s.number OFFSET 0) p ON true;

-- name: due-kept
-- What the house keeps for orders that wait for legs inside the gaps of due seats,
-- and where it is.
SELECT k.kept_for, k.class, k.seats[1], coalesce(p.coach, ''), coalesce(p.row_number::text, '')
FROM booking k
LEFT JOIN LATERAL (SELECT coach, row_number FROM seat_place WHERE sale_id = $1 AND number = k.seats[1] OFFSET 0) p ON true
WHERE k.sale_id = $1 AND k.kept_for IS NOT NULL AND k.state = 'held' AND k.ends_at > clock_timestamp()
  AND EXISTS (SELECT 1 FROM standby_gaps($1, $2) g WHERE g.class = k.class AND g.leg_from <= k.leg_from AND g.leg_to >= k.leg_to);

-- name: due-candidates
-- The first $3 orders of each queue inside the gaps of due seats: a plan asks for
-- more where it needs them (heads), and most rows of a long queue are read for
-- nothing. One that has had seats kept for it for as long as they may be counts as
-- never passed.
-- The intervals are found by skipping from one to the next in the index: what
-- this costs does not depend on how many wait. The score, beyond every score,
-- belongs to that: without it the scan begins at the last page of the interval
-- before and reads its entries (seven times as long, measured).
WITH RECURSIVE g AS MATERIALIZED (SELECT class, leg_from AS first, leg_to AS last FROM standby_gaps($1, $2)),
i (class, first, last, leg_from, leg_to) AS (
    SELECT g.class, g.first, g.last, n.leg_from, n.leg_to FROM g CROSS JOIN LATERAL (
        SELECT q.leg_from, q.leg_to FROM standby_queue q
        WHERE q.sale_id = $1 AND q.class = g.class AND (q.leg_from, q.leg_to) >= (g.first, g.first) AND q.leg_from <= g.last
        ORDER BY q.leg_from, q.leg_to, q.score LIMIT 1) n
    UNION ALL
    SELECT i.class, i.first, i.last, n.leg_from, n.leg_to FROM i CROSS JOIN LATERAL (
        SELECT q.leg_from, q.leg_to FROM standby_queue q
        WHERE q.sale_id = $1 AND q.class = i.class
          AND (q.leg_from, q.leg_to, q.score) > (i.leg_from, CASE WHEN i.leg_to > i.last THEN 100000 ELSE i.leg_to END, 9223372036854775807)
          AND q.leg_from <= i.last
        ORDER BY q.leg_from, q.leg_to, q.score LIMIT 1) n)
SELECT i.class, i.leg_from, i.leg_to, c.number, c.score, c.quantity, c.together,
    CASE WHEN c.kept_until <= clock_timestamp() THEN 0 ELSE c.passed END
FROM (SELECT DISTINCT class, leg_from, leg_to FROM i WHERE leg_to <= last) i CROSS JOIN LATERAL (
    SELECT q.number, q.score, q.quantity, q.together, q.passed, q.kept_until FROM standby_queue q
    WHERE q.sale_id = $1 AND q.class = i.class AND q.leg_from = i.leg_from AND q.leg_to = i.leg_to
    ORDER BY q.score LIMIT $3) c;

-- name: new-strips
-- Seats with a free leg of the classes that new orders wait for, and where they are.
SELECT s.number, s.class, s.considered_at, s.taken_until, s.xmin::text, coalesce(p.coach, ''), coalesce(p.row_number::text, '')
FROM (SELECT DISTINCT unnest(o.classes) AS class
      FROM (SELECT score, number FROM standby_due WHERE sale_id = $1 ORDER BY score LIMIT $2) d
      CROSS JOIN LATERAL (SELECT classes FROM standby_order k WHERE k.sale_id = $1 AND k.number = d.number OFFSET 0) o) c
CROSS JOIN LATERAL (
    SELECT number, class, considered_at, taken_until, xmin FROM seat
    WHERE sale_id = $1 AND class = c.class AND clock_timestamp() >= ANY (taken_until) OFFSET 0) s
LEFT JOIN LATERAL (SELECT coach, row_number FROM seat_place WHERE sale_id = $1 AND number = s.number OFFSET 0) p ON true;

-- name: kept
-- What the house keeps for orders that wait for these intervals, and where it is.
SELECT k.kept_for, k.class, k.seats[1], coalesce(p.coach, ''), coalesce(p.row_number::text, '')
FROM booking k
LEFT JOIN LATERAL (SELECT coach, row_number FROM seat_place WHERE sale_id = $1 AND number = k.seats[1] OFFSET 0) p ON true
WHERE k.sale_id = $1 AND k.kept_for IS NOT NULL AND k.state = 'held' AND k.ends_at > clock_timestamp()
  AND (k.class, k.leg_from, k.leg_to) IN (SELECT i.class, i.leg_from, i.leg_to FROM unnest($2::text[], $3::integer[], $4::integer[]) i (class, leg_from, leg_to));

-- name: heads
-- The first $5 of the queues named, and what `due-candidates` says of them.
SELECT i.class, i.leg_from, i.leg_to, c.number, c.score, c.quantity, c.together,
    CASE WHEN c.kept_until <= clock_timestamp() THEN 0 ELSE c.passed END
FROM unnest($2::text[], $3::integer[], $4::integer[]) i (class, leg_from, leg_to) CROSS JOIN LATERAL (
    SELECT q.number, q.score, q.quantity, q.together, q.passed, q.kept_until FROM standby_queue q
    WHERE q.sale_id = $1 AND q.class = i.class AND q.leg_from = i.leg_from AND q.leg_to = i.leg_to
    ORDER BY q.score LIMIT $5) c;

-- name: lock-accounts
-- The accounts of these orders, in order.
SELECT a.account FROM account_sale a
WHERE a.sale_id = $1 AND a.account = ANY (ARRAY(SELECT o.account FROM standby_order o WHERE o.sale_id = $1 AND o.number = ANY ($2)))
ORDER BY a.account FOR UPDATE;

-- name: still
SELECT standby_still($1, $2, $3, $4);

-- name: seat
SELECT standby_seat($1, $2, $3, $4, $5, $6, $7, $8);

-- name: keep
SELECT standby_keep($1, $2, $3, $4, $5, $6);

-- name: passed
-- Heads that could not be served, and how often in this run. All rows of these
-- orders are locked as they leave their queues: in order of number, then class.
WITH l AS MATERIALIZED (
    SELECT q.class, q.number FROM standby_queue q WHERE q.sale_id = $1 AND q.number = ANY ($3) ORDER BY q.number, q.class FOR UPDATE)
UPDATE standby_queue q SET passed = q.passed + p.times
FROM unnest($2::text[], $3::bigint[], $4::integer[]) p (class, number, times), l
WHERE q.sale_id = $1 AND q.number = p.number AND q.class = p.class AND l.number = p.number AND l.class = p.class;

-- name: considered
SELECT seat_considered($1, $2);

-- name: done
UPDATE seat_release r SET done_at = now(), outcome = d.outcome
FROM (SELECT unnest($2::bigint[]) AS release_id, unnest($3::jsonb[]) AS outcome) d
WHERE r.sale_id = $1 AND r.release_id = d.release_id AND r.done_at IS NULL;

-- name: checked
-- One that is locked is seen to by who has locked it.
DELETE FROM standby_due WHERE sale_id = $1 AND score = ANY (ARRAY(
    SELECT score FROM standby_due WHERE sale_id = $1 AND score = ANY ($2) ORDER BY score FOR UPDATE SKIP LOCKED));

-- name: failed
-- A release whose run failed: the third time it is set aside.
UPDATE seat_release SET tries = tries + 1 WHERE sale_id = $1 AND release_id = ANY ($2) AND done_at IS NULL
RETURNING release_id, seat, tries;
