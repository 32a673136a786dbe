-- name: create
-- A room is made before its first sale; its commitment needs its id, which the
-- next statement of the same transaction brings.
INSERT INTO room (mode, draw_opens_at, draw_ends_at, draw_commitment, admit_per_second, standby_per_second, lapse_seconds, admit_seconds)
VALUES ($1, $2, $3, decode(repeat('00', 32), 'hex'), $4, $5, $6, $7)
RETURNING room_id;

-- name: commit-draw
UPDATE room SET draw_commitment = $2 WHERE room_id = $1 AND generation = 1;

-- name: attach
INSERT INTO room_sale (room_id, sale_id)
SELECT r.room_id, $2 FROM room r WHERE r.room_id = $1
ON CONFLICT DO NOTHING;

-- name: load
SELECT r.room_id, r.generation, r.mode, r.paused, r.closed, r.draw_opens_at, r.draw_ends_at, r.draw_commitment,
       r.admit_per_second, r.standby_per_second, r.lapse_seconds, r.admit_seconds,
       ARRAY(SELECT s.sale_id FROM room_sale s WHERE s.room_id = r.room_id ORDER BY s.sale_id)
FROM room r WHERE r.room_id = $1;

-- name: patch
-- Only what is given changes. The draw's times change only until its list is
-- stored: afterwards they are history.
UPDATE room SET
    mode = coalesce($2, mode), paused = coalesce($3, paused), closed = coalesce($4, closed),
    draw_opens_at = coalesce($5, draw_opens_at),
    draw_ends_at = coalesce($5, draw_opens_at) + coalesce($6, draw_ends_at - draw_opens_at),
    admit_per_second = coalesce($7, admit_per_second), standby_per_second = coalesce($8, standby_per_second),
    lapse_seconds = coalesce($9, lapse_seconds), admit_seconds = coalesce($10, admit_seconds)
WHERE room_id = $1
  AND (($5 IS NULL AND $6 IS NULL) OR NOT EXISTS (
        SELECT 1 FROM room_draw d WHERE d.room_id = $1 AND d.room_id = room.room_id AND d.generation = room.generation));

-- name: lock
SELECT generation, draw_opens_at, draw_ends_at, now() FROM room WHERE room_id = $1 FOR UPDATE;

-- name: reset
-- A new generation: everyone's place and every late number begin anew.
UPDATE room SET generation = $2, draw_commitment = $3, draw_opens_at = $4, draw_ends_at = $5,
    reserved = 0, serving = 0, serving_part = 0, lapsed = 0, running_ms = 0, admit_for = 'nobody', sold_out_since = NULL,
    status = NULL, ticked_at = NULL, lease_owner = NULL, lease_until = NULL, closed = false
WHERE room_id = $1;
