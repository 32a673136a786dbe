-- name: ended-sales
-- Sales with holds whose end passed a while ago: a look without locks.
SELECT DISTINCT sale_id FROM booking WHERE state = 'held' AND ends_at <= now() - $1::interval ORDER BY sale_id LIMIT $2;

-- name: expire
SELECT expire_ended_holds($1, $2);
