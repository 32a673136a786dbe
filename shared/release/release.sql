-- Statements of the table seat_release that tell of its rows. They are written by
-- seat_released (migrations/00002_seat.sql), and `match` looks into them.

-- name: untold-sales
-- Sales with something to tell: a look without locks (SQL rule 8), each second. It
-- steps from sale to sale, however much waits while NATS was away.
WITH RECURSIVE open (sale_id) AS (
    (SELECT r.sale_id FROM seat_release r WHERE r.told_at IS NULL ORDER BY r.sale_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.sale_id FROM seat_release r WHERE r.told_at IS NULL AND r.sale_id > open.sale_id ORDER BY r.sale_id LIMIT 1)
    FROM open WHERE open.sale_id IS NOT NULL)
SELECT open.sale_id FROM open WHERE open.sale_id IS NOT NULL ORDER BY open.sale_id LIMIT $1;

-- name: untold
-- What to tell of a sale: by its state, whatever order rows were committed in
-- (field case 61).
SELECT r.release_id, r.event_type, COALESCE(p.name, r.seat::text), r.class,
    COALESCE(s.stops -> (r.leg_from - 1) ->> 'id', (r.leg_from - 1)::text), COALESCE(s.stops -> r.leg_to ->> 'id', r.leg_to::text),
    r.released_at, r.trace_id
FROM seat_release r
JOIN sale s ON s.sale_id = r.sale_id
LEFT JOIN seat_place p ON p.sale_id = r.sale_id AND p.sale_id = $1 AND p.number = r.seat
WHERE r.sale_id = $1 AND s.sale_id = $1 AND r.told_at IS NULL
ORDER BY r.release_id LIMIT $2;

-- name: told
-- The stream has them. The first time is kept.
UPDATE seat_release SET told_at = now() WHERE sale_id = $1 AND release_id = ANY ($2) AND told_at IS NULL;

-- name: late
-- Sales with rows that nobody was told of for so long (invariant 5).
SELECT sale_id, count(*), min(released_at) FROM seat_release
WHERE told_at IS NULL AND released_at < now() - $1::interval
GROUP BY sale_id ORDER BY sale_id LIMIT $2;
