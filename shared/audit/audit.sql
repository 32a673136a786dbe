-- name: sales
-- The sales there are, to be audited one by one in short statements.
SELECT sale_id FROM sale WHERE $1::bigint = 0 OR sale_id = $1 ORDER BY sale_id

-- name: totals
-- What was sold, is held and was given back.
SELECT coalesce(sum(quantity) FILTER (WHERE state = 'booked'), 0),
       coalesce(sum(quantity) FILTER (WHERE state = 'held' AND ends_at > now() AND account <> 'house'), 0),
       coalesce(sum(quantity) FILTER (WHERE state = 'cancelled'), 0)
FROM booking WHERE sale_id = $1

-- name: overlap
-- Invariant 1: two live bookings on one leg of a seat.
WITH live AS (
    SELECT number, leg_from, leg_to, unnest(seats) AS seat FROM booking
    WHERE sale_id = $1 AND (state = 'booked' OR state = 'held' AND ends_at > now()))
SELECT a.seat, 'bookings ' || a.number || ' and ' || b.number || ' share a leg of seat ' || a.seat
FROM live a JOIN live b ON a.seat = b.seat AND a.number < b.number AND a.leg_from <= b.leg_to AND b.leg_from <= a.leg_to

-- name: incomplete
-- Invariant 1: a live booking without exactly its quantity on each of its legs.
SELECT b.number, 'booking ' || b.number || ' has ' || x.n || ' of ' || b.quantity || ' seats on leg ' || x.leg
FROM booking b CROSS JOIN LATERAL (
    SELECT l.leg, count(s.number) AS n
    FROM generate_series(b.leg_from, b.leg_to) l(leg)
    LEFT JOIN seat s ON s.sale_id = b.sale_id AND s.number = ANY (b.seats)
        AND s.taken_by[l.leg] = b.number AND s.taken_until[l.leg] > now()
    GROUP BY l.leg) x
WHERE b.sale_id = $1 AND (b.state = 'booked' OR b.state = 'held' AND b.ends_at > now()) AND x.n <> b.quantity

-- name: orphan
-- Invariant 1: a strip entry that is ahead without its booking, or for another end.
SELECT s.number, 'leg ' || l.leg || ' of seat ' || s.number || ' is taken by ' || s.taken_by[l.leg] || ', which has no live booking there'
FROM seat s CROSS JOIN LATERAL generate_series(1, s.legs) l(leg)
WHERE s.sale_id = $1 AND s.taken_until[l.leg] > now() AND NOT EXISTS (
    SELECT 1 FROM booking b
    WHERE b.sale_id = $1 AND b.number = s.taken_by[l.leg] AND s.number = ANY (b.seats) AND l.leg BETWEEN b.leg_from AND b.leg_to
      AND (b.state = 'booked' AND s.taken_until[l.leg] = 'infinity' OR b.state = 'held' AND s.taken_until[l.leg] = b.ends_at))

-- name: booked_seat
-- Invariant 1: booked_seat and seat disagree.
WITH strip AS (
    SELECT s.number AS seat, l.leg, s.taken_by[l.leg] AS booking
    FROM seat s CROSS JOIN LATERAL generate_series(1, s.legs) l(leg)
    WHERE s.sale_id = $1 AND s.taken_until[l.leg] = 'infinity'),
rows AS (
    SELECT b.seat, l.leg, b.booking
    FROM booked_seat b CROSS JOIN LATERAL generate_series(lower(b.legs), upper(b.legs) - 1) l(leg)
    WHERE b.sale_id = $1)
SELECT coalesce(strip.seat, rows.seat), 'seat ' || coalesce(strip.seat, rows.seat) || ' leg ' || coalesce(strip.leg, rows.leg)
    || ': the strip says booking ' || coalesce(strip.booking::text, 'none') || ', booked_seat says ' || coalesce(rows.booking::text, 'none')
FROM strip FULL JOIN rows ON strip.seat = rows.seat AND strip.leg = rows.leg AND strip.booking = rows.booking
WHERE strip.seat IS NULL OR rows.seat IS NULL

-- name: account_sale
-- Invariant 1: an account's live seats are not the sum of its live bookings.
SELECT 0, 'account_sale has ' || coalesce(a.live_seats, 0) || ' live seats for an account whose bookings have ' || coalesce(b.n, 0)
FROM (SELECT account, live_seats FROM account_sale WHERE sale_id = $1) a
FULL JOIN (SELECT account, sum(quantity) AS n FROM booking
           WHERE sale_id = $1 AND state IN ('held', 'booked') AND account <> 'house' GROUP BY account) b USING (account)
WHERE coalesce(a.live_seats, 0) <> coalesce(b.n, 0)

-- name: money
-- Invariant 3: captured = fares of what is booked + given back + fees kept, for
-- each booking and currency; what is to go back has an outbox row that will do
-- it, or an alert; no payment stays open an hour past the sale's limit.
-- Money that came for a standby order without a booking stands under the order's
-- number below zero.
WITH paid AS (
    SELECT coalesce(booking, -standby_order) AS booking, captured_in AS currency, sum(captured) AS n FROM payment
    WHERE sale_id = $1 AND captured_at IS NOT NULL GROUP BY 1, 2),
back AS (
    SELECT coalesce(r.booking, -p.standby_order) AS booking, r.currency, sum(r.amount + r.fee) AS n
    FROM refund r JOIN payment p ON p.sale_id = r.sale_id AND p.payment_id = r.payment_id
    WHERE r.sale_id = $1 AND p.sale_id = $1 GROUP BY 1, 2),
fares AS (
    SELECT number AS booking, currency, amount AS n FROM booking
    WHERE sale_id = $1 AND state = 'booked' AND amount > 0)
SELECT booking, 'booking ' || booking || ': captured ' || coalesce(paid.n, 0) || ', fare ' || coalesce(fares.n, 0)
    || ', given back or kept ' || coalesce(back.n, 0) || ' ' || currency
FROM paid FULL JOIN back USING (booking, currency) FULL JOIN fares USING (booking, currency)
WHERE coalesce(paid.n, 0) <> coalesce(back.n, 0) + coalesce(fares.n, 0)
UNION ALL
SELECT coalesce(r.booking, 0), 'booking ' || coalesce(r.booking::text, 'none') || ': refund ' || r.refund_id || ' of ' || r.amount || ' ' || r.currency || ' is ' || r.state || ' and nothing will settle it'
FROM refund r
WHERE r.sale_id = $1 AND r.state <> 'succeeded'
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.sale_id = $1 AND o.kind = 'refund' AND o.subject = r.refund_id::text AND o.done_at IS NULL)
  AND NOT (r.state = 'asked' AND r.made_at > now() - interval '1 hour')
  AND NOT EXISTS (SELECT 1 FROM alert a WHERE a.sale_id = $1 AND a.closed_at IS NULL AND a.kind LIKE 'refund%' AND a.subject = r.refund_id::text)
UNION ALL
SELECT coalesce(p.booking, 0), 'booking ' || coalesce(p.booking::text, 'none') || ': payment ' || p.payment_id || ' is open since ' || p.made_at
FROM payment p JOIN sale s ON s.sale_id = p.sale_id
WHERE p.sale_id = $1 AND s.sale_id = $1 AND p.settled_at IS NULL
  AND p.made_at < now() - make_interval(secs => s.hold_seconds + s.extend_seconds) - interval '1 hour'
  -- An authorisation may wait as long as its order does.
  AND NOT EXISTS (SELECT 1 FROM standby_order o WHERE o.sale_id = $1 AND o.number = p.standby_order AND (o.state IN ('queued', 'pending')
      OR GREATEST(o.matched_at, o.ended_at) > now() - make_interval(secs => s.hold_seconds + s.extend_seconds) - interval '1 hour'))

-- name: queues
-- Invariant 4: the queues hold exactly the orders that wait, each in exactly its
-- classes, on its legs and with its score.
WITH waits AS (
    SELECT o.number, c.class, o.leg_from, o.leg_to, o.score, o.quantity, o.together, true AS waiting
    FROM standby_order o CROSS JOIN LATERAL unnest(o.classes) c (class)
    WHERE o.sale_id = $1 AND o.state IN ('queued', 'pending')),
queue AS (
    SELECT number, class, leg_from, leg_to, score, quantity, together, true AS queued FROM standby_queue WHERE sale_id = $1)
SELECT number, 'order ' || number || CASE WHEN waiting THEN ' waits and does not stand' ELSE ' stands without waiting' END
    || ' in the queue of ' || class || ', legs ' || leg_from || ' to ' || leg_to || ', score ' || score
FROM waits FULL JOIN queue USING (number, class, leg_from, leg_to, score, quantity, together)
WHERE waiting IS NULL OR queued IS NULL

-- name: orders
-- Invariant 4: an order is one thing alone: seats that it has, or none.
SELECT o.number, 'order ' || o.number || ' is ' || o.state || ', its booking ' || o.booking || ' is ' || COALESCE(b.state, 'missing')
FROM standby_order o LEFT JOIN booking b ON b.sale_id = o.sale_id AND b.number = o.booking AND b.account = o.account AND b.origin = 'match'
WHERE o.sale_id = $1 AND o.booking IS NOT NULL AND (b.state IS NULL
    OR o.state = 'matched' AND b.state IN ('booked', 'cancelled')
    OR o.state = 'booked' AND b.state NOT IN ('booked', 'cancelled')
    OR o.state NOT IN ('matched', 'booked') AND (b.state = 'booked' OR b.state = 'held' AND b.ends_at > now()))

-- name: standing
-- Who stands in which queue, for the comparison with Redis.
SELECT number, class, leg_from, leg_to, score FROM standby_queue WHERE sale_id = $1

-- name: moving
-- Of these orders, those whose change is on its way to Redis, or has just come there.
SELECT DISTINCT (o.payload ->> 'order')::bigint FROM outbox o
WHERE o.sale_id = $1 AND o.kind = 'standby_queue' AND o.subject = ANY ($2)
  AND (o.done_at IS NULL AND o.created_at > now() - interval '60 seconds' OR o.done_at > now() - interval '10 seconds')

-- name: outbox
-- Invariant 5: an outbox row undone for 60 s past due without an alert.
SELECT outbox_id, 'outbox row ' || outbox_id || ' (' || kind || ' ' || subject || ') is undone since ' || due_at
FROM outbox o
WHERE sale_id = $1 AND done_at IS NULL AND due_at < now() - interval '60 seconds' AND NOT EXISTS (
    SELECT 1 FROM alert a WHERE a.sale_id = $1 AND a.closed_at IS NULL AND a.kind IN ('outbox', 'outbox-late') AND a.subject = o.kind)

-- name: release_due
-- Invariant 5: a release not looked at for 60 s without an alert.
SELECT release_id, 'release ' || release_id || ' (' || event_type || ' of seat ' || seat || ') is undone since ' || released_at
FROM seat_release r
WHERE sale_id = $1 AND done_at IS NULL AND released_at < now() - interval '60 seconds' AND NOT EXISTS (
    SELECT 1 FROM alert a WHERE a.sale_id = $1 AND a.closed_at IS NULL AND a.kind = 'release' AND a.subject = r.release_id::text)

-- name: order_due
-- Invariant 5: a new order not looked at for 60 s without an alert.
SELECT number, 'order ' || number || ' was not looked at since ' || due_at
FROM standby_due d
WHERE sale_id = $1 AND due_at < now() - interval '60 seconds' AND NOT EXISTS (
    SELECT 1 FROM alert a WHERE a.sale_id = $1 AND a.closed_at IS NULL AND a.kind = 'release' AND a.subject = 'new orders')

-- name: unconsidered
-- Invariant 7: a free leg of a class with waiting orders that nobody has
-- considered for 60 s, without a due row or an alert.
SELECT s.number, 'leg ' || l.leg || ' of seat ' || s.number || ' is free since ' || s.taken_until[l.leg] || ' and was not considered'
FROM seat s JOIN class c ON c.sale_id = s.sale_id AND c.class = s.class
CROSS JOIN LATERAL generate_series(1, s.legs) l(leg)
WHERE s.sale_id = $1 AND c.sale_id = $1 AND EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = $1 AND q.class = c.class)
  AND s.taken_until[l.leg] > s.considered_at AND s.taken_until[l.leg] < now() - interval '60 seconds'
  AND NOT EXISTS (SELECT 1 FROM seat_release r WHERE r.sale_id = $1 AND r.seat = s.number AND r.done_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM alert a WHERE a.sale_id = $1 AND a.closed_at IS NULL AND a.kind = 'release' AND a.subject = 'seat ' || s.number)

-- name: limits
-- Invariant 6: an account with more live seats than the sale allows, or an
-- admission with two live bookings or more than two holds.
SELECT 0, 'an account has ' || sum(b.quantity) || ' live seats, the sale allows ' || max(s.account_limit)
FROM booking b JOIN sale s ON s.sale_id = b.sale_id
WHERE b.sale_id = $1 AND s.sale_id = $1 AND b.account <> 'house' AND (b.state = 'booked' OR b.state = 'held' AND b.ends_at > now())
GROUP BY b.account HAVING sum(b.quantity) > max(s.account_limit)
UNION ALL
SELECT admission, 'admission ' || admission || ' made ' || count(*) || ' holds, ' ||
    count(*) FILTER (WHERE state = 'booked' OR state = 'held' AND ends_at > now()) || ' of them live'
FROM booking WHERE sale_id = $1 AND admission IS NOT NULL
GROUP BY admission HAVING count(*) > 2 OR count(*) FILTER (WHERE state = 'booked' OR state = 'held' AND ends_at > now()) > 1

-- name: places
-- Invariant 6: two accounts admitted at one place, or one beyond the line.
SELECT a.place, 'room ' || a.room_id || ' generation ' || a.generation || ': place ' || a.place || ' was admitted for ' || count(*) || ' accounts'
FROM admission a WHERE a.room_id = $1 GROUP BY a.room_id, a.generation, a.place HAVING count(*) > 1
UNION ALL
SELECT a.place, 'room ' || a.room_id || ': place ' || a.place || ' was admitted, the line has served ' || r.serving
FROM admission a JOIN room r ON r.room_id = a.room_id AND r.generation = a.generation
WHERE a.room_id = $1 AND r.room_id = $1 AND a.place > r.serving

-- name: draws
-- The stored lists of a room.
SELECT generation, people, list, list_hash FROM room_draw WHERE room_id = $1 ORDER BY generation

-- name: rooms
-- The rooms there are.
SELECT room_id FROM room ORDER BY room_id

-- name: alerts
-- The open alerts.
SELECT sale_id, kind, subject, count, first_at, last_at, detail FROM alert
WHERE closed_at IS NULL AND ($1::bigint = 0 OR sale_id = $1) ORDER BY first_at LIMIT 1000
