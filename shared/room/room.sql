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

-- name: wake
UPDATE room SET ticked_at = NULL WHERE room_id = $1;

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
    lapse_seconds = coalesce($9, lapse_seconds), admit_seconds = coalesce($10, admit_seconds),
    ticked_at = NULL, lease_until = NULL -- due now: the change shows at once
WHERE room_id = $1
  AND (($5::timestamptz IS NULL AND $6::interval IS NULL) OR NOT EXISTS (
        SELECT 1 FROM room_draw d WHERE d.room_id = $1 AND d.room_id = room.room_id AND d.generation = room.generation));

-- name: lock
SELECT generation, draw_opens_at, draw_ends_at, now() FROM room WHERE room_id = $1 FOR UPDATE;

-- name: reset
-- A new generation: everyone's place and every late number begin anew.
UPDATE room SET generation = $2, draw_commitment = $3, draw_opens_at = $4, draw_ends_at = $5,
    reserved = 0, serving = 0, serving_part = 0, lapsed = 0, running_ms = 0, admit_for = 'nobody', sold_out_since = NULL,
    status = NULL, ticked_at = NULL, lease_owner = NULL, lease_until = NULL, closed = false
WHERE room_id = $1;

-- name: admit
SELECT * FROM room_admit($1, $2, $3, $4);

-- name: let-go
UPDATE admission SET let_go_at = now()
WHERE room_id = $1 AND generation = $2 AND account = $3 AND admission_id = $4 AND let_go_at IS NULL;

-- name: status
SELECT status FROM room WHERE room_id = $1;

-- name: due
-- Rooms that nobody has ticked for most of a second: a look without locks.
SELECT room_id FROM room
WHERE (ticked_at IS NULL OR (ticked_at < now() - interval '0.8 s' AND status ->> 'state' <> 'closed'))
  AND (lease_until IS NULL OR lease_until < now())
ORDER BY ticked_at NULLS FIRST LIMIT 500;

-- name: claim
-- The lease of a room, and all that is known of it. Whoever holds it alone moves
-- the room on; 0.8 s are the interval less the jitter of cron.
UPDATE room SET lease_owner = $2, lease_until = now() + interval '5 s'
WHERE room_id = $1
  AND (lease_until IS NULL OR lease_until < now())
  AND (ticked_at IS NULL OR ticked_at < now() - interval '0.8 s')
RETURNING generation, mode, paused, closed, draw_opens_at, draw_ends_at, draw_commitment, admit_per_second,
          standby_per_second, lapse_seconds, admit_seconds,
          ARRAY(SELECT s.sale_id FROM room_sale s WHERE s.room_id = $1 AND s.room_id = room.room_id ORDER BY s.sale_id),
          reserved, serving, serving_part, lapsed, running_ms, sold_out_since, ticked_at, now(), status;

-- name: renew
UPDATE room SET lease_until = now() + interval '5 s' WHERE room_id = $1 AND lease_owner = $2;

-- name: let-lease-go
UPDATE room SET lease_until = NULL WHERE room_id = $1 AND lease_owner = $2;

-- name: draw-head
SELECT people, list_hash FROM room_draw WHERE room_id = $1 AND generation = $2;

-- name: draw-list
SELECT list FROM room_draw WHERE room_id = $1 AND generation = $2;

-- name: store-draw
-- Once: whoever comes second goes on from what is stored.
INSERT INTO room_draw (room_id, generation, people, list, list_hash)
SELECT r.room_id, r.generation, $3, $4, $5 FROM room r WHERE r.room_id = $1 AND r.generation = $2
ON CONFLICT DO NOTHING;

-- name: reserve
-- A block of late numbers, only once the list is stored.
UPDATE room SET reserved = reserved + $3
WHERE room_id = $1 AND generation = $2
  AND EXISTS (SELECT 1 FROM room_draw d WHERE d.room_id = $1 AND d.room_id = room.room_id AND d.generation = $2)
RETURNING reserved;

-- name: trail
SELECT running_ms, serving FROM room_trail WHERE room_id = $1 AND generation = $2 ORDER BY running_ms;

-- name: came
-- How many of the places (after, upto] were admitted.
SELECT count(*) FROM admission WHERE room_id = $1 AND generation = $2 AND place > $3 AND place <= $4;

-- name: trail-add
INSERT INTO room_trail (room_id, generation, running_ms, serving) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: trail-prune
DELETE FROM room_trail WHERE room_id = $1 AND generation = $2 AND running_ms < $3;

-- name: store
-- What the tick moved, stored before it is published; nothing when the lease or
-- the generation is another's by now.
UPDATE room SET serving = $4, serving_part = $5, lapsed = $6, running_ms = $7, admit_for = $8, sold_out_since = $9,
    status = $10, ticked_at = now(), lease_until = NULL
WHERE room_id = $1 AND generation = $2 AND lease_owner = $3 AND serving <= $4 AND lapsed <= $6;
