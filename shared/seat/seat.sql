-- Statements of the map. Only the SQL functions of 00002_seat.sql write seats.

-- name: map-classes
-- The classes with seats, whether standby goes first there, and the moment that
-- the strips are at least as new as.
SELECT c.class, EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = c.class), clock_timestamp()
FROM class c WHERE c.sale_id = $1 AND c.stock = 'numbered' ORDER BY c.position;

-- name: map-strips
SELECT number, class, considered_at, taken_until FROM seat WHERE sale_id = $1 ORDER BY number;
