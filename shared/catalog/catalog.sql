-- Statements of the tables sale, class and seat_place, which package catalog
-- owns. Columns of a head stand in the order of scanHead.

-- name: head
-- What of a sale changes while it is sold.
SELECT sale_id, coalesce(room_id, 0), org, kind, title, number, service_date::text, timezone, state, currency,
    opens_at, closes_at, coalesce(departs_at, closes_at), hold_seconds, extend_seconds, booking_limit, account_limit,
    gateways, test, version
FROM sale WHERE sale_id = $1;

-- name: stops
SELECT stops FROM sale WHERE sale_id = $1;

-- name: classes
SELECT class, title, stock, fare FROM class WHERE sale_id = $1 ORDER BY position;

-- name: places
-- Where the seats are; the class stands with the seat.
SELECT p.number, s.class, p.name, p.coach, p.row_number, p.column_name, p.attributes
FROM seat_place p JOIN seat s ON s.sale_id = p.sale_id AND s.number = p.number
WHERE p.sale_id = $1 AND s.sale_id = $1
ORDER BY p.number;

-- name: newest
-- Ids are given in order: none above this exists.
SELECT coalesce(max(sale_id), 0) FROM sale;

-- name: list-date
-- Heads of one service day, what an organisation has in draft among them.
SELECT sale_id, coalesce(room_id, 0), org, kind, title, number, service_date::text, timezone, state, currency,
    opens_at, closes_at, coalesce(departs_at, closes_at), hold_seconds, extend_seconds, booking_limit, account_limit,
    gateways, test, version
FROM sale
WHERE service_date = $1::date AND (state <> 'draft' OR org = $2)
ORDER BY departs_at, sale_id LIMIT $3;

-- name: list-upcoming
-- Heads of what has not left, or can still be bought on its way. A run takes at
-- most 31 days from its first departure.
SELECT sale_id, coalesce(room_id, 0), org, kind, title, number, service_date::text, timezone, state, currency,
    opens_at, closes_at, coalesce(departs_at, closes_at), hold_seconds, extend_seconds, booking_limit, account_limit,
    gateways, test, version
FROM sale
WHERE departs_at > now() - interval '31 days' AND (departs_at > now() OR closes_at > now())
    AND (state <> 'draft' OR org = $1)
ORDER BY departs_at, sale_id LIMIT $2;

-- name: list-stops
-- The still part of listed sales, without their places.
SELECT sale_id, version, stops FROM sale WHERE sale_id = ANY ($1);

-- name: list-classes
SELECT sale_id, class, title, stock, fare FROM class WHERE sale_id = ANY ($1) ORDER BY sale_id, position;

-- name: next-sale
-- A planned id.
SELECT nextval('sale_sale_id_seq');

-- name: add-sale
-- A sale begins as a draft. One that is there already stays as it is.
INSERT INTO sale (sale_id, room_id, org, kind, title, number, service_date, timezone, state, legs, stops, currency,
    opens_at, closes_at, departs_at, hold_seconds, extend_seconds, booking_limit, account_limit, gateways, test)
OVERRIDING SYSTEM VALUE
VALUES ($1, nullif($2::bigint, 0), $3, $4, $5, $6, $7::date, $8, 'draft', $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
ON CONFLICT (sale_id) DO NOTHING;

-- name: add-class
INSERT INTO class (sale_id, class, position, title, stock, fare) VALUES ($1, $2, $3, $4, $5, $6);

-- name: add-places
INSERT INTO seat_place (sale_id, number, name, coach, row_number, column_name, attributes)
SELECT s.sale_id, p.number, p.name, p.coach, p.row_number, p.column_name,
    CASE p.attributes WHEN '' THEN '{}' ELSE string_to_array(p.attributes, ',') END
FROM sale s, unnest($2::int[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[])
    AS p (number, name, coach, row_number, column_name, attributes)
WHERE s.sale_id = $1;

-- name: add-seats
-- The seats themselves; $5: later than the sale, each a release.
SELECT seat_create($1, $2, $3, $4, $5);

-- name: lock
-- Changes of one sale come one after another.
SELECT sale_id, coalesce(room_id, 0), org, kind, title, number, service_date::text, timezone, state, currency,
    opens_at, closes_at, coalesce(departs_at, closes_at), hold_seconds, extend_seconds, booking_limit, account_limit,
    gateways, test, version
FROM sale WHERE sale_id = $1 FOR UPDATE;

-- name: change
-- The move is legal only from the states in $3 (state.go).
UPDATE sale SET state = $2, opens_at = $4, closes_at = $5, hold_seconds = $6, extend_seconds = $7,
    booking_limit = $8, account_limit = $9, gateways = $10, title = $11, room_id = nullif($12::bigint, 0), updated_at = now()
WHERE sale_id = $1 AND state = ANY ($3);

-- name: raise-version
-- Stops, classes or places have changed: readers load them again.
UPDATE sale SET version = version + 1, updated_at = now() WHERE sale_id = $1;

-- name: block
SELECT cardinality(block_seats($1, $2, $3, $4, $5, $6));

-- name: unblock
SELECT cardinality(unblock_seats($1, $2, $3, $4, $5, $6));
