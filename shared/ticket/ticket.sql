-- name: begin-delivery
-- The recovery point before a mail or SMS goes out; gives what came of it if it
-- was finished before.
INSERT INTO delivery AS d (sale_id, outbox_id, way) VALUES ($1, $2, $3)
ON CONFLICT (sale_id, outbox_id, way) DO UPDATE SET tries = d.tries + 1
RETURNING COALESCE(d.outcome, '');

-- name: finish-delivery
-- The other side has taken it, or will never take it. The first end is kept.
UPDATE delivery SET sent_at = now(), outcome = $4
WHERE sale_id = $1 AND outbox_id = $2 AND way = $3 AND sent_at IS NULL;

-- name: check-in
-- One scan at the gate: see the function.
SELECT result, reason, first_scanned_at, passenger
FROM check_in_ticket($1, $2, $3, $4, $5, $6, $7, $8);
