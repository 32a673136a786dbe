-- +goose Up
-- Standby: orders that wait for seats, and their queues. Postgres is the queue's
-- truth: an order stands in standby_queue once for each of its classes exactly
-- while it is queued or pending. Rows are locked in the one order: match row,
-- accounts, bookings, seats, orders, queue rows by number and class, due rows (law 2).
--
--   authorising -> queued | pending -> matched -> booked
--   authorising, queued, pending -> cancelling -> cancelled
--   authorising, queued, pending -> expired
--   matched -> cancelled                     queued <-> pending
--
-- An order that has left the queue never comes back to it.

-- Places in a queue: given once, when an order is queued, and never changed.
CREATE SEQUENCE standby_score;

CREATE TABLE standby_order (
    sale_id      bigint NOT NULL,
    number       bigint GENERATED ALWAYS AS IDENTITY,
    account      text NOT NULL CONSTRAINT standby_order_account CHECK (char_length(account) BETWEEN 1 AND 128),
    request_key  text NOT NULL,          -- Idempotency-Key of the request that joined
    admission    bigint,
    classes      text[] NOT NULL,        -- in order of liking
    leg_from     integer NOT NULL,
    leg_to       integer NOT NULL,
    quantity     integer NOT NULL CONSTRAINT standby_order_quantity CHECK (quantity BETWEEN 1 AND 100),
    together     smallint NOT NULL CONSTRAINT standby_order_together CHECK (together BETWEEN 0 AND 2), -- 0 apart, 1 one row, 2 one coach
    fares        bigint[] NOT NULL,      -- of the whole order in each class, minor units
    currency     text NOT NULL,
    gateway      text NOT NULL,
    payment_id   uuid,                   -- its payment: the authorisation
    state        text NOT NULL CONSTRAINT standby_order_state CHECK (state = ANY ('{authorising,queued,pending,matched,booked,cancelling,cancelled,expired}')),
    step         text NOT NULL DEFAULT 'joined' CONSTRAINT standby_order_step CHECK (step = ANY ('{joined,authorised,matched,capturing,captured,confirmed,voided}')),
    until        timestamptz NOT NULL,   -- waits no longer; cut to the authorisation's life
    authorise_by timestamptz NOT NULL,   -- the authorisation must stand by then
    departs_at   timestamptz,
    score        bigint,
    booking      bigint,
    class        text,                   -- of the booking
    passengers   jsonb NOT NULL DEFAULT '[]',
    contact      jsonb NOT NULL DEFAULT '{}',
    reason       text,                   -- of an end other than booked
    joined_at    timestamptz NOT NULL,
    queued_at    timestamptz,
    matched_at   timestamptz,
    ended_at     timestamptz,
    history      jsonb NOT NULL DEFAULT '[]', -- [{at, what, why}]
    trace_id     text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, number),
    CONSTRAINT standby_order_request UNIQUE (sale_id, account, request_key),
    CONSTRAINT standby_order_interval CHECK (leg_from >= 1 AND leg_from <= leg_to),
    CONSTRAINT standby_order_classes CHECK (cardinality(classes) BETWEEN 1 AND 10 AND array_position(classes, NULL) IS NULL
        AND cardinality(fares) = cardinality(classes) AND 0 <= ALL (fares)),
    CONSTRAINT standby_order_score CHECK (score IS NOT NULL OR state <> ALL ('{queued,pending,matched,booked}')),
    CONSTRAINT standby_order_booking CHECK ((booking IS NOT NULL) = (matched_at IS NOT NULL) AND (booking IS NOT NULL) = (class IS NOT NULL)
        AND (booking IS NOT NULL OR state <> ALL ('{matched,booked}'))),
    CONSTRAINT standby_order_ended CHECK ((ended_at IS NOT NULL) = (state = ANY ('{booked,cancelled,expired}')))
) WITH (fillfactor = 80);
CREATE INDEX standby_order_until ON standby_order (sale_id, until) WHERE state IN ('authorising', 'queued', 'pending');
CREATE INDEX standby_order_authorising ON standby_order (sale_id, authorise_by) WHERE state = 'authorising';
CREATE INDEX standby_order_pending ON standby_order (sale_id, number) WHERE state = 'pending';
CREATE INDEX standby_order_matched ON standby_order (sale_id, matched_at) WHERE matched_at IS NOT NULL;

-- The queues. quantity and together stand here too: `match` looks at the first of a
-- queue and reads nothing else of them. passed counts how often this head was passed;
-- kept_until is when seats are kept for it no more, once some were.
CREATE TABLE standby_queue (
    sale_id  bigint NOT NULL,
    class    text NOT NULL,
    leg_from integer NOT NULL,
    leg_to   integer NOT NULL,
    score    bigint NOT NULL,
    number   bigint NOT NULL,
    quantity integer NOT NULL,
    together smallint NOT NULL,
    passed   integer NOT NULL DEFAULT 0,
    kept_until timestamptz,
    PRIMARY KEY (sale_id, class, leg_from, leg_to, score),
    FOREIGN KEY (sale_id, number) REFERENCES standby_order
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX standby_queue_order ON standby_queue (sale_id, number);

-- Waiting orders that `match` has not looked for free seats for: a row while it is
-- due, and none after. Not a column of the order, as an order has many indexes.
CREATE TABLE standby_due (
    sale_id bigint NOT NULL,
    score   bigint NOT NULL,
    number  bigint NOT NULL,
    due_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (sale_id, score)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- One row a sale, the lock of `match`: one sale at a time, many in parallel.
CREATE TABLE standby_match (
    sale_id bigint NOT NULL PRIMARY KEY,
    runs    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- An order joins. One that the same request made before a crash is found again.
-- Codes: joined, or a refusal. What it may pay at most is the dearest of p_fares.
-- +goose StatementBegin
CREATE FUNCTION standby_join(
    p_sale bigint, p_account text, p_key text, p_admission bigint, p_admission_ends timestamptz,
    p_classes text[], p_from integer, p_to integer, p_quantity integer, p_together integer, p_fares bigint[], p_gateway text,
    p_until timestamptz, p_departs_at timestamptz, p_most integer, p_passengers jsonb, p_contact jsonb, p_trace text
) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    s record;
    o record;
    v_now timestamptz;
    v_live integer;
    v_until timestamptz;
BEGIN
    SELECT state, legs, opens_at, closes_at, hold_seconds, extend_seconds, booking_limit, account_limit, currency, gateways, test, title
    INTO s FROM sale WHERE sale_id = p_sale;
    IF NOT FOUND OR (SELECT count(*) FROM class WHERE sale_id = p_sale AND class = ANY (p_classes) AND stock = 'numbered') <> cardinality(p_classes) THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF p_from < 1 OR p_to < p_from OR p_to > s.legs OR p_quantity < 1 THEN
        RAISE EXCEPTION 'legs % to %, % seats', p_from, p_to, p_quantity USING ERRCODE = 'HF002';
    END IF;
    INSERT INTO account_sale (sale_id, account, live_seats, seat_limit)
    VALUES (p_sale, p_account, 0, s.account_limit)
    ON CONFLICT (sale_id, account) DO NOTHING;
    SELECT live_seats INTO v_live FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
    SELECT number, state, payment_id, fares, currency, gateway, until, authorise_by, joined_at INTO o FROM standby_order
    WHERE sale_id = p_sale AND account = p_account AND request_key = p_key;
    IF FOUND THEN
        RETURN jsonb_build_object('code', 'joined', 'again', true, 'order', o.number, 'state', o.state, 'payment', o.payment_id,
            'amount', (SELECT max(f) FROM unnest(o.fares) f), 'currency', o.currency, 'gateway', o.gateway, 'until', o.until,
            'authorise_by', o.authorise_by, 'title', s.title, 'test', s.test, 'server_time', clock_timestamp());
    END IF;
    v_now := clock_timestamp();
    IF s.state = 'draft' OR v_now < s.opens_at AND s.state IN ('open', 'paused') THEN
        RETURN jsonb_build_object('code', 'not-open-yet', 'opens_at', s.opens_at);
    END IF;
    IF s.state IN ('closed', 'cancelled') OR v_now >= s.closes_at OR v_now >= p_departs_at THEN
        RETURN jsonb_build_object('code', 'sale-closed');
    END IF;
    IF s.state = 'paused' THEN
        RETURN jsonb_build_object('code', 'paused');
    END IF;
    IF p_admission IS NOT NULL AND v_now >= p_admission_ends THEN
        RETURN jsonb_build_object('code', 'admit-expired');
    END IF;
    IF NOT p_gateway = ANY (s.gateways) THEN
        RETURN jsonb_build_object('code', 'gateway', 'gateways', s.gateways);
    END IF;
    IF p_quantity > s.booking_limit OR v_live + p_quantity > s.account_limit THEN
        RETURN jsonb_build_object('code', 'limit-reached', 'limit', LEAST(s.booking_limit, s.account_limit));
    END IF;
    IF (SELECT count(*) FROM standby_order WHERE sale_id = p_sale AND account = p_account
            AND state IN ('authorising', 'queued', 'pending', 'matched', 'cancelling')) >= p_most THEN
        RETURN jsonb_build_object('code', 'limit-reached', 'why', 'orders', 'limit', p_most);
    END IF;
    v_until := LEAST(p_until, s.closes_at, p_departs_at);
    IF v_until <= v_now THEN
        RETURN jsonb_build_object('code', 'until');
    END IF;
    INSERT INTO standby_order (sale_id, account, request_key, admission, classes, leg_from, leg_to, quantity, together, fares, currency,
        gateway, state, until, authorise_by, departs_at, passengers, contact, joined_at, trace_id)
    VALUES (p_sale, p_account, p_key, p_admission, p_classes, p_from, p_to, p_quantity, p_together, p_fares, s.currency,
        p_gateway, 'authorising', v_until, LEAST(v_until, v_now + make_interval(secs => s.hold_seconds + s.extend_seconds)), p_departs_at,
        p_passengers, p_contact, v_now, p_trace)
    RETURNING number, state, payment_id, until, authorise_by INTO o;
    RETURN jsonb_build_object('code', 'joined', 'order', o.number, 'state', o.state, 'payment', o.payment_id,
        'amount', (SELECT max(f) FROM unnest(p_fares) f), 'currency', s.currency, 'gateway', p_gateway, 'until', o.until,
        'authorise_by', o.authorise_by, 'title', s.title, 'test', s.test, 'server_time', clock_timestamp());
END
$$;
-- +goose StatementEnd

-- The sum stands: the order takes its place. p_life_ends is the end of the
-- authorisation (NULL where nothing costs anything): the order does not outlive
-- it. p_reachable: the queues in Redis can be reached. Codes: queued, pending,
-- none (it has its place already or has left it), gone (it ended before: what
-- was authorised is to be voided, and an outbox row says so).
-- +goose StatementBegin
CREATE FUNCTION standby_authorised(p_sale bigint, p_number bigint, p_life_ends timestamptz, p_reachable boolean, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
    v_now timestamptz;
    v_state text := CASE WHEN p_reachable THEN 'queued' ELSE 'pending' END;
    v_score bigint;
    v_until timestamptz;
BEGIN
    SELECT state, score, until, classes, leg_from, leg_to, quantity, together INTO o
    FROM standby_order WHERE sale_id = p_sale AND number = p_number FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'unknown');
    END IF;
    IF o.state IN ('cancelling', 'cancelled', 'expired') THEN
        PERFORM standby_void(p_sale, p_number, p_trace);
        RETURN jsonb_build_object('code', 'gone', 'state', o.state);
    END IF;
    IF o.state <> 'authorising' THEN
        RETURN jsonb_build_object('code', 'none', 'state', o.state, 'score', o.score, 'until', o.until);
    END IF;
    v_now := clock_timestamp();
    v_until := LEAST(o.until, p_life_ends);
    v_score := nextval('standby_score');
    UPDATE standby_order SET state = v_state, step = 'authorised', score = v_score, until = v_until, queued_at = v_now,
        history = history || history_line(v_now, v_state, CASE WHEN v_until < o.until THEN 'until the end of the authorisation' ELSE '' END)
    WHERE sale_id = p_sale AND number = p_number;
    INSERT INTO standby_queue (sale_id, class, leg_from, leg_to, score, number, quantity, together)
    SELECT p_sale, c, o.leg_from, o.leg_to, v_score, p_number, o.quantity, o.together FROM unnest(o.classes) c;
    INSERT INTO standby_due (sale_id, score, number) VALUES (p_sale, v_score, p_number);
    PERFORM standby_mirror(p_sale, p_number, p_trace);
    RETURN jsonb_build_object('code', v_state, 'state', v_state, 'score', v_score, 'until', v_until);
END
$$;
-- +goose StatementEnd

-- The queues in Redis are to be looked at again for this order. (Its statement has
-- but one plan, and settings of a function's own cost it half as much again.)
-- +goose StatementBegin
CREATE FUNCTION standby_mirror(p_sale bigint, p_number bigint, p_trace text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    VALUES (p_sale, 'standby_queue', p_number::text, jsonb_build_object('order', p_number), p_trace);
END
$$;
-- +goose StatementEnd

-- What was authorised for this order is not to be charged: an outbox row for its
-- payment, unless one waits already or the payment is settled.
-- +goose StatementBegin
CREATE FUNCTION standby_void(p_sale bigint, p_number bigint, p_trace text) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_payment uuid;
BEGIN
    SELECT p.payment_id INTO v_payment FROM payment p
    WHERE p.sale_id = p_sale AND p.standby_order = p_number AND p.step <> 'settled';
    IF v_payment IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    SELECT p.sale_id, 'payment_cancel', v_payment::text, jsonb_build_object('payment', v_payment), p_trace
    FROM payment p WHERE p.sale_id = p_sale AND p.payment_id = v_payment AND NOT EXISTS (
        SELECT 1 FROM outbox o WHERE o.sale_id = p_sale AND o.kind = 'payment_cancel' AND o.subject = v_payment::text AND o.done_at IS NULL);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- Ends an order that the caller has locked: `cancelled` or `expired` for p_reason.
-- It leaves its queues, its authorisation is voided, and its holder is told where
-- p_tell. Seats kept for it are let go by the next run of `match`.
-- +goose StatementBegin
CREATE FUNCTION standby_end(p_sale bigint, p_number bigint, p_state text, p_reason text, p_tell boolean, p_trace text) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_open boolean;
    v_left integer;
    v_score bigint;
BEGIN
    PERFORM 1 FROM standby_queue WHERE sale_id = p_sale AND number = p_number ORDER BY class FOR UPDATE; -- as `match` locks them
    DELETE FROM standby_queue WHERE sale_id = p_sale AND number = p_number;
    GET DIAGNOSTICS v_left = ROW_COUNT;
    v_open := standby_void(p_sale, p_number, p_trace);
    UPDATE standby_order SET
        state = CASE WHEN p_state = 'cancelling' AND NOT v_open THEN 'cancelled' ELSE p_state END,
        ended_at = CASE WHEN p_state = 'cancelling' AND v_open THEN NULL ELSE v_now END,
        step = CASE WHEN v_open THEN step ELSE 'voided' END,
        reason = p_reason, history = history || history_line(v_now, p_state, p_reason)
    WHERE sale_id = p_sale AND number = p_number RETURNING score INTO v_score;
    DELETE FROM standby_due WHERE sale_id = p_sale AND score = v_score;
    IF v_left > 0 THEN
        PERFORM standby_mirror(p_sale, p_number, p_trace);
    END IF;
    IF p_tell THEN
        INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
        SELECT o.sale_id, 'notify', 'order ' || o.number, jsonb_build_object('order', o.number, 'template',
            CASE WHEN o.matched_at IS NOT NULL THEN 'standby_failed' ELSE 'standby_' || p_state END,
            'data', jsonb_build_object('reason', p_reason)), p_trace
        FROM standby_order o WHERE o.sale_id = p_sale AND o.number = p_number;
    END IF;
END
$$;
-- +goose StatementEnd

-- The holder leaves. A match that is further than that wins: `matched` and
-- `booked` are wrong-state. Codes: left, wrong-state, not-found.
-- +goose StatementBegin
CREATE FUNCTION standby_leave(p_sale bigint, p_number bigint, p_account text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
BEGIN
    SELECT state INTO o FROM standby_order WHERE sale_id = p_sale AND number = p_number AND account = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF o.state IN ('authorising', 'queued', 'pending') THEN
        PERFORM standby_end(p_sale, p_number, 'cancelling', 'left by its holder', false, p_trace);
    ELSIF o.state NOT IN ('cancelling', 'cancelled') THEN
        RETURN jsonb_build_object('code', 'wrong-state', 'state', o.state);
    END IF;
    RETURN jsonb_build_object('code', 'left', 'state',
        (SELECT state FROM standby_order WHERE sale_id = p_sale AND number = p_number));
END
$$;
-- +goose StatementEnd

-- The gateway has ended the order's payment without taking anything: it was
-- voided, or never authorised.
-- +goose StatementBegin
CREATE FUNCTION standby_voided(p_sale bigint, p_number bigint, p_trace text) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
    v_now timestamptz;
BEGIN
    SELECT state INTO o FROM standby_order WHERE sale_id = p_sale AND number = p_number FOR UPDATE;
    v_now := clock_timestamp();
    CASE
        WHEN o.state = 'cancelling' THEN
            UPDATE standby_order SET state = 'cancelled', step = 'voided', ended_at = v_now,
                history = history || history_line(v_now, 'cancelled', 'nothing was charged')
            WHERE sale_id = p_sale AND number = p_number;
        WHEN o.state IN ('authorising', 'queued', 'pending') THEN
            PERFORM standby_end(p_sale, p_number, 'cancelled', 'the payment was not authorised', true, p_trace);
        WHEN o.state IN ('cancelled', 'expired') THEN
            UPDATE standby_order SET step = 'voided' WHERE sale_id = p_sale AND number = p_number AND step <> 'voided';
        ELSE -- matched: the capture fails and says so; booked: nothing to do
            NULL;
    END CASE;
END
$$;
-- +goose StatementEnd

-- Orders of a sale whose time is over: past `until`, not authorised in time, or
-- of a sale that sells no more. At most p_limit. Returns how many.
-- +goose StatementBegin
CREATE FUNCTION standby_expire(p_sale bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
    s record;
    v_until timestamptz; -- who waits until then at most is over
    v_n integer := 0;
BEGIN
    SELECT state, closes_at, clock_timestamp() AS now INTO s FROM sale WHERE sale_id = p_sale;
    v_until := CASE WHEN s.state IN ('closed', 'cancelled') OR s.closes_at <= s.now THEN 'infinity' ELSE s.now END;
    -- Two looks into two indexes, as an OR would read all who wait.
    FOR o IN SELECT number, state, until, authorise_by FROM standby_order
             WHERE sale_id = p_sale AND state IN ('authorising', 'queued', 'pending') AND number = ANY (ARRAY(
                 (SELECT number FROM standby_order
                  WHERE sale_id = p_sale AND state IN ('authorising', 'queued', 'pending') AND until <= v_until
                  ORDER BY until LIMIT p_limit)
                 UNION
                 (SELECT number FROM standby_order
                  WHERE sale_id = p_sale AND state = 'authorising' AND authorise_by <= s.now
                  ORDER BY authorise_by LIMIT p_limit)))
             ORDER BY number LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM standby_end(p_sale, o.number, 'expired', CASE
            WHEN s.state = 'cancelled' THEN 'the sale was cancelled'
            WHEN s.state = 'closed' OR s.closes_at <= s.now THEN 'the sale has closed'
            WHEN o.until <= s.now THEN 'no seat came free in time'
            ELSE 'the payment was not authorised in time' END, o.state <> 'authorising', '');
        v_n := v_n + 1;
    END LOOP;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- Takes the sale's match row, first of all locks.
-- +goose StatementBegin
CREATE FUNCTION standby_match_begin(p_sale bigint) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    UPDATE standby_match SET runs = runs + 1 WHERE sale_id = p_sale;
    IF NOT FOUND THEN
        INSERT INTO standby_match (sale_id) VALUES (p_sale) ON CONFLICT (sale_id) DO UPDATE SET runs = standby_match.runs + 1;
    END IF;
END
$$;
-- +goose StatementEnd

-- The gaps of the seats of due releases, p_limit of them, in classes that somebody
-- waits for: runs of free legs with one that came free since the seat was last
-- considered, without those that lie inside another's.
-- +goose StatementBegin
CREATE FUNCTION standby_gaps(p_sale bigint, p_limit integer) RETURNS TABLE (class text, leg_from integer, leg_to integer)
LANGUAGE plpgsql STABLE ROWS 5 SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY
    WITH gap AS MATERIALIZED (
        SELECT DISTINCT f.class, min(f.leg)::integer AS first, max(f.leg)::integer AS last
        FROM (SELECT s.class, s.number, l.leg, l.until > s.considered_at AS fresh,
                  l.leg - row_number() OVER (PARTITION BY s.number ORDER BY l.leg) AS run
              FROM seat s CROSS JOIN LATERAL unnest(s.taken_until) WITH ORDINALITY l (until, leg)
              WHERE s.sale_id = p_sale AND l.until <= clock_timestamp() AND s.number = ANY (ARRAY(
                  SELECT r.seat FROM seat_release r WHERE r.sale_id = p_sale AND r.done_at IS NULL ORDER BY r.tries > 0, r.release_id LIMIT p_limit))) f
        GROUP BY f.class, f.number, f.run HAVING bool_or(f.fresh))
    SELECT g.class, g.first, g.last
    FROM gap g CROSS JOIN LATERAL (
        SELECT 1 FROM standby_queue q WHERE q.sale_id = p_sale AND q.class = g.class ORDER BY q.leg_from, q.leg_to, q.score LIMIT 1) w
    WHERE NOT EXISTS (SELECT 1 FROM gap o WHERE o.class = g.class AND o.first <= g.first AND o.last >= g.last AND (o.first, o.last) <> (g.first, g.last));
END
$$;
-- +goose StatementEnd

-- Locks seats, and sees whether their rows are still the versions that were read
-- (-1: nobody has read it) and no hold of theirs has ended since p_at. HF005: plan anew.
-- +goose StatementBegin
CREATE FUNCTION standby_still(p_sale bigint, p_seats integer[], p_versions bigint[], p_at timestamptz) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
    v_n integer;
BEGIN
    PERFORM seat_lock(p_sale, p_seats);
    v_now := clock_timestamp();
    SELECT count(*) INTO v_n
    FROM unnest(p_seats, p_versions) k (number, version) JOIN seat s ON s.sale_id = p_sale AND s.number = k.number
    WHERE (k.version < 0 OR s.xmin::text::bigint = k.version) AND NOT EXISTS (SELECT 1 FROM unnest(s.taken_until) u WHERE u > p_at AND u <= v_now);
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'seats have changed' USING ERRCODE = 'HF005';
    END IF;
END
$$;
-- +goose StatementEnd

-- Gives seats to orders: free -> held, to each all of them or to nobody any. Order
-- k of p_numbers gets p_counts[k] of p_seats, which lie one order's after another's,
-- in p_classes[k] for p_whys[k]. The caller has locked the match row, the orders'
-- accounts and the seats. Seat k of p_let_go is kept by the house for order
-- p_kept_for[k] of these and is let go first. What must not be raises HF004 with the order as DETAIL, and
-- the whole plan is to be made anew: gone (it waits no more), over (its time or the
-- sale's is over), limit (of the account, field case 42); a seat that is taken
-- raises HF001. One call for all, as most of what a statement costs is beginning it.
-- +goose StatementBegin
CREATE FUNCTION standby_seat(p_sale bigint, p_numbers bigint[], p_classes text[], p_counts integer[], p_seats integer[],
                             p_kept_for bigint[], p_let_go integer[], p_whys text[]) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
    s record;
    k record;
    v_now timestamptz;
    v_bookings bigint[] := ARRAY(SELECT next_booking(p_sale) FROM unnest(p_numbers));
    v_seats integer := 0; -- of p_seats, of the orders before
    v_bad bigint;
BEGIN
    SELECT state, closes_at, hold_seconds, extend_seconds, account_limit INTO s FROM sale WHERE sale_id = p_sale;
    IF cardinality(p_let_go) > 0 THEN
        FOR k IN SELECT number, seats, leg_from, leg_to FROM booking
                 WHERE sale_id = p_sale AND kept_for = ANY (p_kept_for) AND state = 'held'
                   AND (kept_for, seats[1]) IN (SELECT number, seat FROM unnest(p_kept_for, p_let_go) l (number, seat))
                 ORDER BY number FOR UPDATE
        LOOP
            PERFORM seat_let_go(p_sale, k.number, k.seats, k.leg_from, k.leg_to);
            UPDATE booking SET state = 'released', ended_at = clock_timestamp(),
                history = history || history_line(clock_timestamp(), 'released', 'given to whom it was kept for')
            WHERE sale_id = p_sale AND number = k.number;
        END LOOP;
    END IF;
    -- The payments before the orders, as the functions of payments lock them.
    UPDATE payment p SET booking = n.booking FROM unnest(p_numbers, v_bookings) n (number, booking)
    WHERE p.sale_id = p_sale AND p.standby_order = n.number;
    PERFORM 1 FROM standby_order WHERE sale_id = p_sale AND number = ANY (p_numbers) ORDER BY number FOR UPDATE;
    v_now := clock_timestamp();
    FOR o IN SELECT n.number, n.class, n.count, n.booking, d.state, d.classes, d.quantity, d.leg_from, d.leg_to, d.until, d.departs_at
             FROM unnest(p_numbers, p_classes, p_counts, v_bookings) WITH ORDINALITY n (number, class, count, booking, k)
             LEFT JOIN standby_order d ON d.sale_id = p_sale AND d.number = n.number ORDER BY n.k
    LOOP
        IF o.state IS NULL OR o.state NOT IN ('queued', 'pending') OR NOT o.class = ANY (o.classes) OR o.count <> o.quantity THEN
            RAISE EXCEPTION USING ERRCODE = 'HF004', MESSAGE = 'gone', DETAIL = o.number::text;
        END IF;
        IF s.state IN ('draft', 'paused') THEN -- since a moment ago: what is due stays due
            RAISE EXCEPTION 'the sale is paused' USING ERRCODE = 'HF005';
        END IF;
        IF s.state <> 'open' OR v_now >= s.closes_at OR v_now >= o.until OR v_now >= o.departs_at THEN
            RAISE EXCEPTION USING ERRCODE = 'HF004', MESSAGE = 'over', DETAIL = o.number::text;
        END IF;
        PERFORM seat_hold(p_sale, o.booking, p_seats[v_seats + 1:v_seats + o.count], o.leg_from, o.leg_to,
            LEAST(v_now + make_interval(secs => s.hold_seconds), o.departs_at), false);
        v_seats := v_seats + o.count;
    END LOOP;
    -- The first, in the order of the plan, that is more than its account may have.
    SELECT x.number INTO v_bad
    FROM (SELECT n.number, n.k, a.live_seats + sum(d.quantity) OVER (PARTITION BY d.account ORDER BY n.k) AS total
          FROM unnest(p_numbers) WITH ORDINALITY n (number, k)
          JOIN standby_order d ON d.sale_id = p_sale AND d.number = n.number
          LEFT JOIN account_sale a ON a.sale_id = p_sale AND a.account = d.account) x
    WHERE (x.total > s.account_limit) IS NOT FALSE ORDER BY x.k LIMIT 1;
    IF v_bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'HF004', MESSAGE = 'limit', DETAIL = v_bad::text;
    END IF;
    UPDATE account_sale a SET live_seats = a.live_seats + n.quantity, seat_limit = s.account_limit
    FROM (SELECT d.account, sum(d.quantity) AS quantity FROM standby_order d
          WHERE d.sale_id = p_sale AND d.number = ANY (p_numbers) GROUP BY d.account) n
    WHERE a.sale_id = p_sale AND a.account = n.account;
    INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency,
        made_at, ends_at, limit_at, departs_at, passengers, contact, origin, history, trace_id)
    SELECT p_sale, n.booking, d.account, n.class, d.leg_from, d.leg_to, p_seats[n.last - n.count + 1:n.last], d.quantity, 'held',
        d.fares[array_position(d.classes, n.class)], d.currency,
        v_now, e.ends, LEAST(e.ends + make_interval(secs => s.extend_seconds), d.departs_at), d.departs_at,
        d.passengers, d.contact, 'match', history_line(v_now, 'matched', n.why), d.trace_id
    FROM (SELECT u.number, u.class, u.count, u.booking, u.why, sum(u.count) OVER (ORDER BY u.k) AS last
          FROM unnest(p_numbers, p_classes, p_counts, v_bookings, p_whys) WITH ORDINALITY u (number, class, count, booking, why, k)) n
    JOIN standby_order d ON d.sale_id = p_sale AND d.number = n.number
    CROSS JOIN LATERAL (SELECT LEAST(v_now + make_interval(secs => s.hold_seconds), d.departs_at) AS ends) e;
    UPDATE standby_order d SET state = 'matched', step = 'matched', booking = n.booking, class = n.class, matched_at = v_now,
        history = d.history || history_line(v_now, 'matched', n.why)
    FROM unnest(p_numbers, p_classes, v_bookings, p_whys) n (number, class, booking, why)
    WHERE d.sale_id = p_sale AND d.number = n.number;
    DELETE FROM standby_queue WHERE sale_id = p_sale AND number = ANY (p_numbers);
    DELETE FROM standby_due WHERE sale_id = p_sale AND score = ANY (ARRAY(
        SELECT d.score FROM standby_order d WHERE d.sale_id = p_sale AND d.number = ANY (p_numbers)));
    -- The queues in Redis, as standby_mirror, and the capture.
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    SELECT p_sale, u.kind, d.number::text, jsonb_build_object('order', d.number), d.trace_id
    FROM standby_order d CROSS JOIN unnest(ARRAY['standby_queue', 'order_matched']) u (kind)
    WHERE d.sale_id = p_sale AND d.number = ANY (p_numbers);
END
$$;
-- +goose StatementEnd

-- Ends a waiting order that `match` found it may not serve: its account's limit
-- (field case 42), or its time. The caller has locked the match row.
-- +goose StatementBegin
CREATE FUNCTION standby_refuse(p_sale bigint, p_number bigint, p_code text) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_state text;
BEGIN
    SELECT state INTO v_state FROM standby_order WHERE sale_id = p_sale AND number = p_number FOR UPDATE;
    IF v_state IN ('queued', 'pending') THEN
        IF p_code = 'limit' THEN
            PERFORM standby_end(p_sale, p_number, 'cancelled', 'the account has reached its limit of seats', true, '');
        ELSE
            PERFORM standby_end(p_sale, p_number, 'expired', 'no seat came free in time', true, '');
        END IF;
    END IF;
END
$$;
-- +goose StatementEnd

-- Keeps free seats for orders, one each, on their interval: bookings of the house,
-- at most 30 minutes from the first one kept for an order. One that is taken raises
-- HF001.
-- +goose StatementBegin
CREATE FUNCTION standby_keep(p_sale bigint, p_numbers bigint[], p_classes text[], p_seats integer[], p_from integer[], p_to integer[]) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_bookings bigint[] := ARRAY(SELECT next_booking(p_sale) FROM unnest(p_numbers));
    v_untils timestamptz[];
    v_until timestamptz;
BEGIN
    UPDATE standby_queue SET kept_until = v_now + interval '30 minutes'
    WHERE sale_id = p_sale AND number = ANY (p_numbers) AND kept_until IS NULL;
    FOR k IN 1..cardinality(p_numbers) LOOP
        SELECT min(kept_until) INTO v_until FROM standby_queue WHERE sale_id = p_sale AND number = p_numbers[k];
        IF v_until IS NULL OR v_until <= v_now THEN -- since the plan was made
            RAISE EXCEPTION 'order % has left, or had its time of keeping', p_numbers[k] USING ERRCODE = 'HF005';
        END IF;
        PERFORM seat_hold(p_sale, v_bookings[k], p_seats[k:k], p_from[k], p_to[k], v_until, false);
        v_untils[k] := v_until;
    END LOOP;
    INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency,
        made_at, ends_at, limit_at, origin, kept_for, history)
    SELECT s.sale_id, k.booking, 'house', k.class, k.leg_from, k.leg_to, ARRAY[k.seat], 1, 'held', 0, s.currency,
        v_now, k.until, k.until, 'house', k.number, history_line(v_now, 'kept', 'for a group that was passed ten times')
    FROM sale s, unnest(v_bookings, p_numbers, p_classes, p_seats, p_from, p_to, v_untils) k (booking, number, class, seat, leg_from, leg_to, until)
    WHERE s.sale_id = p_sale;
END
$$;
-- +goose StatementEnd

-- Lets go what the house keeps for orders that wait no more: ABANDON releases.
-- The caller has locked the match row. Returns how many.
-- +goose StatementBegin
CREATE FUNCTION standby_unkeep(p_sale bigint) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    b record;
    v_numbers bigint[];
    v_seats integer[]; -- one each
    v_at timestamptz;
    v_n integer := 0;
BEGIN
    SELECT array_agg(x.number), array_agg(x.seat) INTO v_numbers, v_seats
    FROM (SELECT k.number, k.seats[1] AS seat FROM booking k
          WHERE k.sale_id = p_sale AND k.kept_for IS NOT NULL AND k.state = 'held' AND k.ends_at > clock_timestamp()
            AND NOT EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = p_sale AND q.number = k.kept_for
                            OFFSET 0) -- asked of each, as a join would read all queues
          ORDER BY k.number FOR UPDATE) x;
    IF v_numbers IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM seat_lock(p_sale, v_seats);
    FOR b IN SELECT number, class, seats, leg_from, leg_to FROM booking WHERE sale_id = p_sale AND number = ANY (v_numbers) ORDER BY number LOOP
        BEGIN
            v_at := seat_let_go(p_sale, b.number, b.seats, b.leg_from, b.leg_to);
        EXCEPTION WHEN SQLSTATE 'HF001' THEN
            CONTINUE; -- it ended while we came
        END;
        UPDATE booking SET state = 'released', ended_at = v_at, history = history || history_line(v_at, 'released', 'the group waits no more')
        WHERE sale_id = p_sale AND number = b.number;
        PERFORM seat_released(p_sale, 'ABANDON', b.class, b.seats, b.leg_from, b.leg_to, b.number, v_at, '');
        v_n := v_n + 1;
    END LOOP;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- The capture of a matched order begins, or is taken up again. Codes: capture
-- (with what the gateway has to be told), none (it is not matched, or done).
-- +goose StatementBegin
CREATE FUNCTION standby_capturing(p_sale bigint, p_number bigint) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
BEGIN
    SELECT o2.state, o2.step, o2.booking, o2.payment_id, o2.fares[array_position(o2.classes, o2.class)] AS fare, o2.currency
    INTO o FROM standby_order o2 WHERE o2.sale_id = p_sale AND o2.number = p_number FOR UPDATE;
    IF o.state IS DISTINCT FROM 'matched' THEN
        RETURN jsonb_build_object('code', 'none', 'state', o.state);
    END IF;
    IF o.step = 'matched' THEN
        UPDATE standby_order SET step = 'capturing' WHERE sale_id = p_sale AND number = p_number;
    END IF;
    RETURN jsonb_build_object('code', 'capture', 'step', o.step, 'booking', o.booking, 'payment', o.payment_id,
        'fare', o.fare, 'currency', o.currency);
END
$$;
-- +goose StatementEnd

-- The gateway has captured: the recovery point before the confirm step.
-- +goose StatementBegin
CREATE FUNCTION standby_captured(p_sale bigint, p_number bigint) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    UPDATE standby_order SET step = 'captured'
    WHERE sale_id = p_sale AND number = p_number AND state = 'matched' AND step IN ('matched', 'capturing');
END
$$;
-- +goose StatementEnd

-- The confirm step has decided about an order's money, in its transaction:
-- booked, or what came instead (p_reason), then the money goes back.
-- +goose StatementBegin
CREATE FUNCTION standby_confirmed(p_sale bigint, p_number bigint, p_booked boolean, p_reason text) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_state text;
    v_now timestamptz;
BEGIN
    SELECT state INTO v_state FROM standby_order WHERE sale_id = p_sale AND number = p_number FOR UPDATE;
    v_now := clock_timestamp();
    IF v_state = 'matched' THEN
        UPDATE standby_order SET state = CASE WHEN p_booked THEN 'booked' ELSE 'cancelled' END, step = 'confirmed', ended_at = v_now,
            reason = CASE WHEN p_booked THEN reason ELSE p_reason END,
            history = history || history_line(v_now, CASE WHEN p_booked THEN 'booked' ELSE 'cancelled' END, p_reason)
        WHERE sale_id = p_sale AND number = p_number;
    ELSIF v_state IN ('authorising', 'queued', 'pending', 'cancelling') THEN
        -- Money came that nobody asked for: it goes back, and the order ends.
        PERFORM standby_end(p_sale, p_number, 'cancelled', p_reason, true, '');
    END IF;
END
$$;
-- +goose StatementEnd

-- The capture of a matched order has failed for good: the seats go to the next
-- (ABANDON), the order is over and its holder told. Codes: failed, none.
-- +goose StatementBegin
CREATE FUNCTION standby_failed(p_sale bigint, p_number bigint, p_reason text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    o record;
    v_let jsonb;
BEGIN
    SELECT account, booking INTO o FROM standby_order WHERE sale_id = p_sale AND number = p_number;
    IF NOT FOUND OR o.booking IS NULL THEN
        RETURN jsonb_build_object('code', 'none');
    END IF;
    v_let := let_go_booking(p_sale, o.booking, o.account, p_reason, p_trace); -- account, booking, seats; then the order
    SELECT account, booking, state INTO o FROM standby_order WHERE sale_id = p_sale AND number = p_number FOR UPDATE;
    IF o.state <> 'matched' OR v_let->>'code' NOT IN ('released', 'expired') AND v_let->>'state' NOT IN ('released', 'expired', 'lost') THEN
        RETURN jsonb_build_object('code', 'none', 'state', o.state, 'booking', v_let);
    END IF;
    PERFORM standby_end(p_sale, p_number, 'cancelled', p_reason, true, p_trace);
    RETURN jsonb_build_object('code', 'failed', 'booking', o.booking);
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION
    standby_join(bigint, text, text, bigint, timestamptz, text[], integer, integer, integer, integer, bigint[], text,
        timestamptz, timestamptz, integer, jsonb, jsonb, text),
    standby_authorised(bigint, bigint, timestamptz, boolean, text),
    standby_mirror(bigint, bigint, text),
    standby_void(bigint, bigint, text),
    standby_end(bigint, bigint, text, text, boolean, text),
    standby_leave(bigint, bigint, text, text),
    standby_voided(bigint, bigint, text),
    standby_expire(bigint, integer),
    standby_match_begin(bigint),
    standby_gaps(bigint, integer),
    standby_still(bigint, integer[], bigint[], timestamptz),
    standby_seat(bigint, bigint[], text[], integer[], integer[], bigint[], integer[], text[]),
    standby_refuse(bigint, bigint, text),
    standby_keep(bigint, bigint[], text[], integer[], integer[], integer[]),
    standby_unkeep(bigint),
    standby_capturing(bigint, bigint),
    standby_captured(bigint, bigint),
    standby_confirmed(bigint, bigint, boolean, text),
    standby_failed(bigint, bigint, text, text)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    standby_join(bigint, text, text, bigint, timestamptz, text[], integer, integer, integer, integer, bigint[], text,
        timestamptz, timestamptz, integer, jsonb, jsonb, text),
    standby_authorised(bigint, bigint, timestamptz, boolean, text),
    standby_mirror(bigint, bigint, text),
    standby_void(bigint, bigint, text),
    standby_end(bigint, bigint, text, text, boolean, text),
    standby_leave(bigint, bigint, text, text),
    standby_voided(bigint, bigint, text),
    standby_expire(bigint, integer),
    standby_match_begin(bigint),
    standby_gaps(bigint, integer),
    standby_still(bigint, integer[], bigint[], timestamptz),
    standby_seat(bigint, bigint[], text[], integer[], integer[], bigint[], integer[], text[]),
    standby_refuse(bigint, bigint, text),
    standby_keep(bigint, bigint[], text[], integer[], integer[], integer[]),
    standby_unkeep(bigint),
    standby_capturing(bigint, bigint),
    standby_captured(bigint, bigint),
    standby_confirmed(bigint, bigint, boolean, text),
    standby_failed(bigint, bigint, text, text)
TO holdfast_app;
GRANT SELECT, INSERT, UPDATE ON standby_order, standby_match TO holdfast_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON standby_queue, standby_due TO holdfast_app;
GRANT USAGE ON SEQUENCE standby_score TO holdfast_app;

-- +goose Down
DROP FUNCTION standby_failed, standby_confirmed, standby_captured, standby_capturing, standby_unkeep, standby_keep, standby_refuse, standby_seat,
    standby_still, standby_gaps, standby_match_begin, standby_expire, standby_voided, standby_leave, standby_end, standby_void, standby_mirror, standby_authorised, standby_join;
DROP TABLE standby_match, standby_due, standby_queue, standby_order;
DROP SEQUENCE standby_score;
