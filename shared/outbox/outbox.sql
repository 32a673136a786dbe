-- name: add
-- One thing to do, in the caller's transaction.
INSERT INTO outbox (sale_id, kind, subject, payload, due_at, trace_id)
VALUES ($1, $2, $3, $4, now(), $5);

-- name: due-sales
-- Which sales have something due: a look without locks (SQL rule 8).
SELECT DISTINCT sale_id FROM outbox
WHERE done_at IS NULL AND due_at <= now() AND kind = ANY ($1)
ORDER BY sale_id LIMIT $2;

-- name: claim
-- Takes due rows of one sale for the length of the claim. By state, never by a
-- sequence: a row that commits late is found all the same (field case 61).
WITH due AS (
    SELECT o.sale_id, o.outbox_id FROM outbox o
    WHERE o.sale_id = $1 AND o.kind = $2 AND o.done_at IS NULL AND o.due_at <= now()
    ORDER BY o.due_at, o.outbox_id LIMIT $3
    FOR UPDATE SKIP LOCKED)
UPDATE outbox o SET due_at = now() + $4::interval, tries = o.tries + 1
FROM due
WHERE o.sale_id = $1 AND o.sale_id = due.sale_id AND o.outbox_id = due.outbox_id
RETURNING o.outbox_id, o.subject, o.payload, o.created_at, o.tries, o.trace_id;

-- name: done
-- The first time of being done is kept.
UPDATE outbox SET done_at = now(), error = NULL
WHERE sale_id = $1 AND outbox_id = $2 AND done_at IS NULL;

-- name: again
-- Failed, or not due yet: due again after a wait, with the reason.
UPDATE outbox SET due_at = now() + $3::interval, tries = $4, error = $5
WHERE sale_id = $1 AND outbox_id = $2 AND done_at IS NULL;

-- name: aside
-- Failed as often as needs an alert; the first such time is kept.
UPDATE outbox SET due_at = now() + $3::interval, tries = $4, error = $5, set_aside_at = LEAST(set_aside_at, now())
WHERE sale_id = $1 AND outbox_id = $2 AND done_at IS NULL;

-- name: put-back
-- Claimed and not begun: as if it had not been claimed.
UPDATE outbox SET due_at = now(), tries = tries - 1
WHERE sale_id = $1 AND outbox_id = ANY ($2) AND done_at IS NULL;

-- name: set-aside
-- How many rows of a kind have failed as often as needs an alert.
SELECT count(*) FROM outbox
WHERE sale_id = $1 AND kind = $2 AND done_at IS NULL AND set_aside_at IS NOT NULL;

-- name: overdue
-- Invariant 5: what is still undone so long after it was due.
SELECT sale_id, kind, count(*), min(created_at) FROM outbox
WHERE done_at IS NULL AND due_at < now() - $1::interval
GROUP BY sale_id, kind ORDER BY sale_id, kind LIMIT $2;

-- name: due
-- Due rows of one sale, read without a claim: for work that may be done twice at
-- once. By state, never by a sequence (field case 61).
SELECT outbox_id, subject, payload, created_at, tries, trace_id FROM outbox
WHERE sale_id = $1 AND kind = $2 AND done_at IS NULL AND due_at <= now()
ORDER BY due_at, outbox_id LIMIT $3;

-- name: done-all
-- What another replica is marking just now is left to it. The rows are found by
-- their key: a plain done_at IS NULL would be answered from the index of due rows,
-- past everything done since the last vacuum.
UPDATE outbox SET done_at = now(), error = NULL
WHERE sale_id = $1 AND outbox_id = ANY (ARRAY(
    SELECT outbox_id FROM outbox
    WHERE sale_id = $1 AND outbox_id = ANY ($2) AND coalesce(done_at, 'infinity') = 'infinity'
    ORDER BY outbox_id FOR UPDATE SKIP LOCKED));

-- name: again-all
-- A batch failed: each row is due again after its own wait.
UPDATE outbox o SET due_at = now() + w.wait, tries = o.tries + 1, error = $4
FROM (SELECT unnest($2::bigint[]) AS outbox_id, unnest($3::interval[]) AS wait) w
WHERE o.sale_id = $1 AND o.outbox_id = w.outbox_id AND o.done_at IS NULL;

-- name: aside-all
-- Failed as often as needs an alert; the first such time is kept.
UPDATE outbox SET set_aside_at = LEAST(set_aside_at, now())
WHERE sale_id = $1 AND outbox_id = ANY ($2) AND done_at IS NULL;
