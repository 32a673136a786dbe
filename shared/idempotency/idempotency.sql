-- name: begin
-- The request is ours to run if its key is new, or if the run before us died
-- with its lease over. Nothing comes back otherwise: see `look`.
INSERT INTO idempotency AS i (sale_id, account, function, key, hash, locked_until)
VALUES ($1, $2, $3, $4, $5, now() + $6::interval)
ON CONFLICT (sale_id, account, function, key) DO UPDATE
SET locked_until = excluded.locked_until
WHERE i.hash = excluded.hash AND i.status IS NULL AND i.locked_until <= now()
RETURNING true;

-- name: look
SELECT hash, status, answer, locked_until > now() FROM idempotency
WHERE sale_id = $1 AND account = $2 AND function = $3 AND key = $4;

-- name: finish
UPDATE idempotency SET status = $5, answer = $6, locked_until = NULL
WHERE sale_id = $1 AND account = $2 AND function = $3 AND key = $4 AND status IS NULL;

-- name: let-go
-- The run ended without an answer worth keeping: the next may begin at once.
UPDATE idempotency SET locked_until = now()
WHERE sale_id = $1 AND account = $2 AND function = $3 AND key = $4 AND status IS NULL;

-- name: old-sales
-- A look without locks (SQL rule 8).
SELECT DISTINCT sale_id FROM idempotency WHERE created_at < now() - $1::interval ORDER BY sale_id LIMIT $2;

-- name: drop-old
DELETE FROM idempotency i USING (
    SELECT d.sale_id, d.account, d.function, d.key FROM idempotency d
    WHERE d.sale_id = $1 AND d.created_at < now() - $2::interval
    LIMIT $3 FOR UPDATE SKIP LOCKED) old
WHERE i.sale_id = $1 AND i.sale_id = old.sale_id AND i.account = old.account AND i.function = old.function AND i.key = old.key;
