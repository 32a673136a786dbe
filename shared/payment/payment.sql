-- name: begin
SELECT payment_begin($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: created
SELECT payment_created($1, $2, $3, $4);

-- name: confirm
-- The confirm step.
SELECT payment_confirm($1, $2, $3, $4, $5, $6, $7);

-- name: begin-order
SELECT payment_begin_order($1, $2, $3, $4, $5, $6);

-- name: authorised
SELECT payment_authorised($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: capturing
SELECT payment_capturing($1, $2);

-- name: captured
SELECT standby_captured($1, $2);

-- name: failed
SELECT standby_failed($1, $2, $3, $4);

-- name: payment-of-order
SELECT payment_id FROM payment WHERE sale_id = $1 AND standby_order = $2;

-- name: note
SELECT payment_note($1, $2, $3, $4, $5::interval, $6);

-- name: refund-note
SELECT refund_note($1, $2, $3, $4);

-- name: abandon
SELECT booking_abandon($1, $2, $3, $4);

-- name: refund-booking
SELECT booking_refund($1, $2, $3, $4, $5);

-- name: exchange
SELECT booking_exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: load
-- A payment with the booking or the standby order it is for.
SELECT COALESCE(p.booking, 0), COALESCE(p.standby_order, 0), p.account, p.gateway, p.state, p.step, p.amount, p.currency, p.return_url, COALESCE(p.reference, ''),
       COALESCE(p.outcome, ''), COALESCE(p.reason, ''), p.captured, p.returning_amount, p.returned_amount, p.asks, p.trace_id,
       COALESCE(b.state, ''), COALESCE(o.state, ''), COALESCE(b.ends_at, o.authorise_by), COALESCE(b.limit_at, o.authorise_by),
       s.title, s.test, clock_timestamp()
FROM payment p
JOIN sale s ON s.sale_id = p.sale_id
LEFT JOIN booking b ON b.sale_id = p.sale_id AND b.sale_id = $1 AND b.number = p.booking
LEFT JOIN standby_order o ON o.sale_id = p.sale_id AND o.sale_id = $1 AND o.number = p.standby_order
WHERE p.sale_id = $1 AND s.sale_id = $1 AND p.payment_id = $2;

-- name: claim-question
-- Whoever moves ask_at asks the gateway; others find it asked a moment ago.
UPDATE payment SET ask_at = now() + $4::interval
WHERE sale_id = $1 AND payment_id = $2 AND ask_at <= now() + $3::interval
RETURNING true;

-- name: ask-sales
-- Sales with payments to ask about: a look without locks (SQL rule 8). It steps
-- from sale to sale: those of millions of waiting orders may be due much later.
WITH RECURSIVE open (sale_id) AS (
    (SELECT p.sale_id FROM payment p WHERE p.ask_at IS NOT NULL ORDER BY p.sale_id LIMIT 1)
    UNION ALL
    SELECT (SELECT p.sale_id FROM payment p WHERE p.ask_at IS NOT NULL AND p.sale_id > open.sale_id ORDER BY p.sale_id LIMIT 1)
    FROM open WHERE open.sale_id IS NOT NULL)
SELECT open.sale_id FROM open
WHERE EXISTS (SELECT 1 FROM payment p WHERE p.sale_id = open.sale_id AND p.ask_at <= now())
ORDER BY open.sale_id LIMIT $1;

-- name: claim-asks
WITH due AS (
    SELECT p.sale_id, p.payment_id FROM payment p WHERE p.sale_id = $1 AND p.ask_at <= now()
    ORDER BY p.ask_at LIMIT $2 FOR UPDATE SKIP LOCKED)
UPDATE payment p SET ask_at = now() + $3::interval FROM due
WHERE p.sale_id = $1 AND p.sale_id = due.sale_id AND p.payment_id = due.payment_id
RETURNING p.payment_id;

-- name: load-refund
SELECT r.payment_id, COALESCE(r.booking, 0), r.amount, r.currency, r.key, r.state, p.gateway, COALESCE(p.reference, '')
FROM refund r JOIN payment p ON p.sale_id = r.sale_id AND p.payment_id = r.payment_id
WHERE r.sale_id = $1 AND p.sale_id = $1 AND r.refund_id = $2;

-- name: refund-by-reference
-- A refund event without our key: the refunds of that payment still open.
SELECT r.key FROM refund r WHERE r.sale_id = $1 AND r.payment_id = $2 AND r.state <> 'succeeded' AND r.amount = $3
ORDER BY r.refund_id LIMIT 1;

-- name: record
-- The gateway's word, once by its event id.
INSERT INTO gateway_event AS e (gateway, event_id, event_type, reference, payment, refund_key, amount, currency, body, received_at, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now() + $11::interval)
ON CONFLICT (gateway, event_id) DO UPDATE SET repeats = e.repeats + 1
RETURNING e.repeats = 0, e.applied_at IS NOT NULL;

-- name: applied
UPDATE gateway_event SET applied_at = now(), effect = $3
WHERE gateway = $1 AND event_id = $2 AND applied_at IS NULL;

-- name: event-later
UPDATE gateway_event SET due_at = now() + $3::interval, tries = tries + 1, effect = $4
WHERE gateway = $1 AND event_id = $2 AND applied_at IS NULL;

-- name: claim-events
WITH due AS (
    SELECT gateway, event_id FROM gateway_event WHERE applied_at IS NULL AND due_at <= now()
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE gateway_event e SET due_at = now() + $2::interval FROM due
WHERE e.gateway = due.gateway AND e.event_id = due.event_id
RETURNING e.gateway, e.event_id, e.event_type, e.reference, e.payment, e.refund_key, e.amount, e.currency, e.body, e.tries;

-- name: waiting-events
-- Events of a payment that came before its row knew the reference.
SELECT gateway, event_id, event_type, reference, payment, refund_key, amount, currency, body, tries FROM gateway_event
WHERE gateway = $1 AND reference = $2 AND applied_at IS NULL ORDER BY received_at LIMIT 100;

-- name: unknown-events
-- References nobody could place, for the alerts that are still true.
SELECT gateway || ' ' || reference FROM gateway_event
WHERE applied_at IS NULL AND tries > 0 LIMIT 1000;

-- name: money-sales
-- Sales whose money moved lately, and those with a difference still open.
SELECT sale_id FROM payment WHERE captured_at > now() - $1::interval
UNION SELECT sale_id FROM alert WHERE kind = 'money' AND closed_at IS NULL
ORDER BY sale_id LIMIT $2;

-- name: money-faults
SELECT subject, captured, due FROM money_faults($1, $2);

-- name: booked
-- What a cancelled sale still has to give back.
SELECT number FROM booking WHERE sale_id = $1 AND state = 'booked' AND account <> 'house' ORDER BY number LIMIT $2;

-- name: past
SELECT $1::timestamptz + $2::interval < clock_timestamp();

-- name: call-off
SELECT booking_call_off($1, $2, $3);
