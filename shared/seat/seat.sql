-- Statements of the map. Only the SQL functions of 00002_seat.sql write seats.

-- name: map-classes
-- The classes with seats, whether standby goes first there, and the moment that
-- the strips are at least as new as.
SELECT class, waiting > 0, clock_timestamp() FROM class WHERE sale_id = $1 AND stock = 'numbered' ORDER BY position;

-- name: map-strips
SELECT number, class, considered_at, taken_until FROM seat WHERE sale_id = $1 ORDER BY number;
