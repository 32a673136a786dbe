-- name: plan
-- What the run before us had given out when it died.
SELECT answer FROM idempotency
WHERE sale_id = $1 AND account = $2 AND function = $3 AND key = $4 AND status IS NULL AND answer IS NOT NULL;

-- name: save-plan
UPDATE idempotency SET answer = $5
WHERE sale_id = $1 AND account = $2 AND function = $3 AND key = $4 AND status IS NULL;
