-- name: raise
-- Counts a trouble up; one that was closed begins anew. RETURNING count = 1
-- says that it is new.
INSERT INTO alert AS a (sale_id, kind, subject, detail, first_at, last_at)
VALUES ($1, $2, $3, $4, now(), now())
ON CONFLICT (sale_id, kind, subject) DO UPDATE
SET count    = CASE WHEN a.closed_at IS NULL THEN a.count + 1 ELSE 1 END,
    first_at = CASE WHEN a.closed_at IS NULL THEN a.first_at ELSE excluded.first_at END,
    last_at  = excluded.last_at,
    detail   = excluded.detail,
    closed_at = NULL
RETURNING a.count;

-- name: close
UPDATE alert SET closed_at = now()
WHERE sale_id = $1 AND kind = $2 AND subject = $3 AND closed_at IS NULL;

-- name: open-of-kind
SELECT sale_id, subject FROM alert WHERE kind = $1 AND closed_at IS NULL
ORDER BY sale_id, subject LIMIT $2;

-- name: open
SELECT sale_id, kind, subject, count, first_at, last_at, detail FROM alert
WHERE closed_at IS NULL ORDER BY first_at LIMIT $1;
