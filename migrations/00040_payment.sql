-- +goose Up
-- Money: attempts to pay, what gateways told us, and what goes back. Rows are
-- locked in the one order: account, booking, payments, seats (law 2). No
-- function here calls anything outside; what must happen there is an outbox row
-- of kind `refund` ({"refund"}) or `payment_cancel` ({"payment"}).
--
-- A payment is for a booking, or it is the authorisation of a standby order: then
-- it has no booking until `match` finds seats, and pays for those afterwards. It
-- is locked before its order, never after.

CREATE TABLE payment (
    sale_id     bigint NOT NULL,
    payment_id  uuid NOT NULL,          -- made by the application, version 7
    booking     bigint,                 -- NULL while the payment is an authorisation for a standby order that waits
    standby_order bigint,               -- the order it was authorised for
    account     text NOT NULL,
    gateway     text NOT NULL,
    request_key text NOT NULL,          -- Idempotency-Key of the request that began it
    amount      bigint NOT NULL CONSTRAINT payment_amount CHECK (amount >= 0), -- the price, minor units
    currency    text NOT NULL,
    return_url  text NOT NULL DEFAULT '',
    state       text NOT NULL DEFAULT 'pending' CONSTRAINT payment_state_known
                CHECK (state = ANY ('{pending,succeeded,failed,refunded,partly_refunded}')),
    step        text NOT NULL DEFAULT 'made' CONSTRAINT payment_step_known
                CHECK (step = ANY ('{made,created,settled}')),
    reference   text,                   -- the gateway's name for it
    outcome     text CONSTRAINT payment_outcome_known CHECK (outcome = ANY ('{booked,rescued,refund}')),
    reason      text,                   -- of outcome refund
    captured    bigint NOT NULL DEFAULT 0,
    captured_in text,                   -- currency of what was captured
    captured_at timestamptz,
    returning_amount bigint NOT NULL DEFAULT 0, -- sum of its refunds
    returned_amount  bigint NOT NULL DEFAULT 0, -- sum of those that succeeded
    made_at     timestamptz NOT NULL,
    settled_at  timestamptz,            -- nobody asks the gateway any more
    ask_at      timestamptz,            -- when the gateway is asked next; NULL once settled
    asks        integer NOT NULL DEFAULT 0,
    trace_id    text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, payment_id),
    CONSTRAINT payment_request UNIQUE (sale_id, account, request_key),
    CONSTRAINT payment_money CHECK (0 <= returned_amount AND returned_amount <= returning_amount AND returning_amount <= captured),
    CONSTRAINT payment_captured CHECK ((captured_at IS NOT NULL) = (state = ANY ('{succeeded,refunded,partly_refunded}'))
        AND (captured_at IS NOT NULL) = (outcome IS NOT NULL) AND (captured_at IS NOT NULL) = (captured_in IS NOT NULL)),
    CONSTRAINT payment_settled CHECK ((settled_at IS NOT NULL) = (step = 'settled') AND (ask_at IS NULL) = (step = 'settled')),
    CONSTRAINT payment_created CHECK (step <> 'created' OR reference IS NOT NULL),
    CONSTRAINT payment_subject CHECK (booking IS NOT NULL OR standby_order IS NOT NULL)
) WITH (fillfactor = 80);
CREATE INDEX payment_of_booking ON payment (sale_id, booking);
CREATE UNIQUE INDEX payment_of_order ON payment (sale_id, standby_order) WHERE standby_order IS NOT NULL;
CREATE UNIQUE INDEX payment_reference ON payment (sale_id, gateway, reference) WHERE reference IS NOT NULL;
CREATE INDEX payment_captured_at ON payment (captured_at) WHERE captured_at IS NOT NULL;
CREATE INDEX payment_to_ask ON payment (sale_id, ask_at) WHERE ask_at IS NOT NULL;
-- One payment keeps one booking: the second is refunded.
CREATE UNIQUE INDEX payment_keeps ON payment (sale_id, booking)
    WHERE outcome IN ('booked', 'rescued') AND returning_amount < captured;

-- What a gateway told us, once by its event id. Not keyed by sale (law 8): an
-- event may come before anything of ours, and may name nothing of ours.
CREATE TABLE gateway_event (
    gateway     text NOT NULL,
    event_id    text NOT NULL,
    event_type  text NOT NULL,
    reference   text NOT NULL,
    payment     text NOT NULL DEFAULT '', -- our public payment id from its metadata
    refund_key  text NOT NULL DEFAULT '',
    amount      bigint NOT NULL,
    currency    text NOT NULL,
    body        jsonb NOT NULL,
    received_at timestamptz NOT NULL,
    repeats     integer NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries       integer NOT NULL DEFAULT 0,
    applied_at  timestamptz,
    effect      text,
    PRIMARY KEY (gateway, event_id)
);
CREATE INDEX gateway_event_due ON gateway_event (due_at) WHERE applied_at IS NULL;
CREATE INDEX gateway_event_reference ON gateway_event (gateway, reference) WHERE applied_at IS NULL;

CREATE TABLE refund (
    sale_id    bigint NOT NULL,
    refund_id  bigint GENERATED ALWAYS AS IDENTITY,
    payment_id uuid NOT NULL,
    booking    bigint,         -- NULL: of money that came for a standby order without a booking
    amount     bigint NOT NULL CONSTRAINT refund_amount CHECK (amount > 0),
    currency   text NOT NULL,
    fee        bigint NOT NULL DEFAULT 0 CONSTRAINT refund_fee CHECK (fee >= 0), -- kept back
    reason     text NOT NULL,
    key        text NOT NULL, -- the gateway's idempotency key: the same for every try
    state      text NOT NULL DEFAULT 'due' CONSTRAINT refund_state CHECK (state = ANY ('{due,asked,succeeded,failed}')),
    reference  text,
    made_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at    timestamptz,
    trace_id   text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, refund_id),
    UNIQUE (sale_id, key),
    FOREIGN KEY (sale_id, payment_id) REFERENCES payment
);
CREATE INDEX refund_of_payment ON refund (sale_id, payment_id);
CREATE INDEX refund_of_booking ON refund (sale_id, booking);

-- The one rule about when a booking may be paid, for pay, the extension and the
-- confirm step: a hold made before closes_at may be paid until it ends, never
-- past its limit nor its departure. An ended hold may still be rescued while the
-- sale is open, inside that same limit.
--
--   in-time    held, and its end is ahead
--   ended      held or expired, its end is past, may be rescued
--   closed     the same, but nothing more is sold
--   late       past the hold's limit
--   departed   past its departure
--   cancelled  the sale is cancelled
--   booked, let-go, lost   what the booking became
-- +goose StatementBegin
CREATE FUNCTION booking_standing(p_booking_state text, p_ends_at timestamptz, p_limit_at timestamptz, p_departs_at timestamptz,
                                 p_sale_state text, p_closes_at timestamptz, p_now timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_booking_state = 'booked' THEN 'booked'
        WHEN p_booking_state IN ('released', 'cancelled') THEN 'let-go'
        WHEN p_booking_state = 'lost' THEN 'lost'
        WHEN p_sale_state = 'cancelled' THEN 'cancelled'
        WHEN p_now >= p_departs_at THEN 'departed'
        WHEN p_booking_state = 'held' AND p_now < p_ends_at THEN 'in-time'
        WHEN p_now >= p_limit_at THEN 'late'
        WHEN p_sale_state IN ('closed', 'draft') OR p_now >= p_closes_at THEN 'closed'
        ELSE 'ended'
    END
$$;
-- +goose StatementEnd

-- Extends a live hold to its sale's extension from now, at most to its limit.
-- The caller has locked the booking. Returns the end that holds now.
-- +goose StatementBegin
CREATE FUNCTION hold_extend(p_sale bigint, p_number bigint) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    v_until timestamptz;
BEGIN
    SELECT k.seats, k.leg_from, k.leg_to, k.state, k.ends_at, k.limit_at, s.extend_seconds INTO b
    FROM booking k JOIN sale s ON s.sale_id = k.sale_id
    WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = p_number;
    v_until := LEAST(clock_timestamp() + make_interval(secs => b.extend_seconds), b.limit_at);
    IF b.state <> 'held' OR v_until <= b.ends_at THEN
        RETURN b.ends_at;
    END IF;
    BEGIN
        PERFORM seat_extend(p_sale, p_number, b.seats, b.leg_from, b.leg_to, v_until);
    EXCEPTION WHEN SQLSTATE 'HF001' OR SQLSTATE 'HF002' THEN
        RETURN b.ends_at; -- it ended while we came
    END;
    UPDATE booking SET ends_at = v_until WHERE sale_id = p_sale AND number = p_number;
    RETURN v_until;
END
$$;
-- +goose StatementEnd

-- Begins an attempt to pay, or finds the one that the same request began before
-- a crash. Codes: made (with what the gateway has to be told), or a refusal.
-- +goose StatementBegin
CREATE FUNCTION payment_begin(p_sale bigint, p_number bigint, p_account text, p_gateway text, p_request_key text,
                              p_payment uuid, p_return_url text, p_most integer, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    p record;
    v_now timestamptz;
    v_standing text;
BEGIN
    SELECT k.state, k.ends_at, k.limit_at, k.departs_at, k.amount, k.currency, s.state AS sale_state, s.closes_at, s.gateways,
           s.test, s.title
    INTO b FROM booking k JOIN sale s ON s.sale_id = k.sale_id
    WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = p_number AND k.account = p_account
    FOR UPDATE OF k;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND account = p_account AND request_key = p_request_key;
    IF NOT FOUND THEN
        IF NOT p_gateway = ANY (b.gateways) THEN
            RETURN jsonb_build_object('code', 'gateway', 'gateways', b.gateways);
        END IF;
        v_now := clock_timestamp();
        v_standing := booking_standing(b.state, b.ends_at, b.limit_at, b.departs_at, b.sale_state, b.closes_at, v_now);
        IF v_standing <> 'in-time' THEN
            RETURN jsonb_build_object('code', v_standing, 'state', b.state);
        END IF;
        IF EXISTS (SELECT 1 FROM payment WHERE sale_id = p_sale AND booking = p_number AND standby_order IS NOT NULL AND step <> 'settled') THEN
            RETURN jsonb_build_object('code', 'matched', 'state', b.state); -- it is being charged for its standby order
        END IF;
        IF (SELECT count(*) FROM payment WHERE sale_id = p_sale AND booking = p_number) >= p_most THEN
            RETURN jsonb_build_object('code', 'too-many');
        END IF;
        INSERT INTO payment (sale_id, payment_id, booking, account, gateway, request_key, amount, currency, return_url,
            made_at, ask_at, trace_id)
        VALUES (p_sale, p_payment, p_number, p_account, p_gateway, p_request_key, b.amount, b.currency, p_return_url,
            v_now, v_now + interval '15 seconds', p_trace)
        RETURNING * INTO p;
        UPDATE booking SET history = history || history_line(v_now, 'payment begun', p_gateway)
        WHERE sale_id = p_sale AND number = p_number;
    END IF;
    RETURN jsonb_build_object('code', 'made', 'payment', p.payment_id, 'booking', p.booking, 'gateway', p.gateway, 'step', p.step,
        'state', p.state, 'reference', p.reference, 'amount', p.amount, 'currency', p.currency, 'return_url', p.return_url,
        'title', b.title, 'test', b.test, 'ends_at', b.ends_at, 'limit_at', b.limit_at);
END
$$;
-- +goose StatementEnd

-- Begins the payment of a standby order, one an order: the sum of its dearest
-- class is authorised. The order is locked first, as nobody can have locked a
-- payment that is not there yet. Codes: made (with what the gateway has to be
-- told), over (the order waits no more), not-found.
-- +goose StatementBegin
CREATE FUNCTION payment_begin_order(p_sale bigint, p_number bigint, p_account text, p_payment uuid, p_return_url text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    o record;
    p record;
    s record;
    v_now timestamptz;
BEGIN
    SELECT k.state, k.gateway, k.request_key, k.fares, k.currency, k.until, k.authorise_by INTO o FROM standby_order k
    WHERE k.sale_id = p_sale AND k.number = p_number AND k.account = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    SELECT k.title, k.test INTO s FROM sale k WHERE k.sale_id = p_sale;
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND standby_order = p_number;
    IF NOT FOUND THEN
        v_now := clock_timestamp();
        IF o.state <> 'authorising' OR v_now >= LEAST(o.until, o.authorise_by) THEN
            RETURN jsonb_build_object('code', 'over', 'state', o.state);
        END IF;
        -- No Idempotency-Key has a space in it, so this one is no other payment's.
        INSERT INTO payment (sale_id, payment_id, standby_order, account, gateway, request_key, amount, currency, return_url,
            made_at, ask_at, trace_id)
        VALUES (p_sale, p_payment, p_number, p_account, o.gateway, 'standby ' || o.request_key, (SELECT max(f) FROM unnest(o.fares) f),
            o.currency, p_return_url, v_now, v_now + interval '15 seconds', p_trace)
        RETURNING * INTO p;
        UPDATE standby_order SET payment_id = p_payment WHERE sale_id = p_sale AND number = p_number;
    END IF;
    RETURN jsonb_build_object('code', 'made', 'payment', p.payment_id, 'order', p_number, 'gateway', p.gateway, 'step', p.step,
        'state', p.state, 'reference', p.reference, 'amount', p.amount, 'currency', p.currency, 'return_url', p.return_url,
        'title', s.title, 'test', s.test, 'order_state', o.state, 'until', o.until, 'authorise_by', o.authorise_by);
END
$$;
-- +goose StatementEnd

-- The gateway has made the payment: its reference is stored and the hold
-- extended. Answers the booking's standing; one that is not in time any more is
-- the caller's to cancel at the gateway, so that row is written here. Of an
-- order's payment the standing is the order's state.
-- +goose StatementBegin
CREATE FUNCTION payment_created(p_sale bigint, p_payment uuid, p_reference text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    p record;
    v_number bigint;
    v_order bigint;
    v_now timestamptz;
    v_ends timestamptz;
    v_standing text;
BEGIN
    SELECT booking, standby_order INTO v_number, v_order FROM payment WHERE sale_id = p_sale AND payment_id = p_payment;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'unknown');
    END IF;
    IF v_order IS NULL THEN
        SELECT k.state, k.ends_at, k.limit_at, k.departs_at, s.state AS sale_state, s.closes_at
        INTO b FROM booking k JOIN sale s ON s.sale_id = k.sale_id
        WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = v_number FOR UPDATE OF k;
    END IF;
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment FOR UPDATE;
    IF p.reference IS NOT NULL AND p.reference <> p_reference THEN
        RAISE EXCEPTION 'payment % has the reference %, not %', p_payment, p.reference, p_reference;
    END IF;
    v_now := clock_timestamp();
    -- One that was settled before anybody had its reference was thought not to be made.
    IF p.step = 'made' OR p.step = 'settled' AND p.reference IS NULL AND p.captured_at IS NULL THEN
        p.step := 'created';
        UPDATE payment SET step = 'created', settled_at = NULL, reference = p_reference, ask_at = v_now + interval '5 seconds'
        WHERE sale_id = p_sale AND payment_id = p_payment;
    ELSIF p.reference IS NULL THEN
        UPDATE payment SET reference = p_reference WHERE sale_id = p_sale AND payment_id = p_payment;
    END IF;
    IF v_order IS NOT NULL THEN
        SELECT o.state, o.authorise_by INTO b FROM standby_order o WHERE o.sale_id = p_sale AND o.number = v_order;
        IF b.state IN ('cancelling', 'cancelled', 'expired') AND p.captured_at IS NULL THEN
            PERFORM standby_void(p_sale, v_order, p_trace);
        END IF;
        RETURN jsonb_build_object('code', 'created', 'standing', b.state, 'state', p.state, 'order', v_order, 'ends_at', b.authorise_by,
            'limit_at', b.authorise_by);
    END IF;
    v_ends := b.ends_at;
    v_standing := booking_standing(b.state, b.ends_at, b.limit_at, b.departs_at, b.sale_state, b.closes_at, v_now);
    IF v_standing = 'in-time' AND p.step <> 'settled' THEN
        v_ends := hold_extend(p_sale, v_number);
    ELSIF p.captured_at IS NULL AND p.step <> 'settled' THEN
        INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
        VALUES (p_sale, 'payment_cancel', p_payment::text, jsonb_build_object('payment', p_payment), p_trace);
    END IF;
    RETURN jsonb_build_object('code', 'created', 'standing', v_standing, 'state', p.state, 'booking', v_number,
        'ends_at', v_ends, 'limit_at', b.limit_at, 'booking_state', b.state);
END
$$;
-- +goose StatementEnd

-- A standby order's sum is authorised at the gateway: the order takes its place.
-- p_life_seconds is how long an authorisation lives, counted from when we asked
-- for it, so never too long. Whatever is not exactly what we asked for, or comes
-- for an order that has ended, is voided. Codes: those of standby_authorised, and
-- amount, unknown (no such payment here, or of no order).
-- +goose StatementBegin
CREATE FUNCTION payment_authorised(p_sale bigint, p_payment uuid, p_gateway text, p_reference text, p_amount bigint, p_currency text,
                                   p_life_seconds integer, p_reachable boolean, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    p record;
    v_state text;
    v_now timestamptz;
BEGIN
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment FOR UPDATE;
    IF NOT FOUND OR p.gateway <> p_gateway THEN
        RETURN jsonb_build_object('code', 'unknown');
    END IF;
    IF p.standby_order IS NULL OR p.captured_at IS NOT NULL THEN
        RETURN jsonb_build_object('code', 'none', 'order', p.standby_order);
    END IF;
    IF p.reference IS NOT NULL AND p.reference <> p_reference THEN
        RAISE EXCEPTION 'payment % has the reference %, not %', p_payment, p.reference, p_reference;
    END IF;
    v_now := clock_timestamp();
    -- A waiting order's payment is asked about seldom: it may wait for weeks. One
    -- that was settled without money, as the gateway had said that it would not be,
    -- is open again until it is voided.
    UPDATE payment SET state = 'pending', step = 'created', settled_at = NULL, reference = p_reference, asks = 0, ask_at = v_now + interval '1 hour'
    WHERE sale_id = p_sale AND payment_id = p_payment;
    IF p_amount <> p.amount OR p_currency <> p.currency THEN
        SELECT state INTO v_state FROM standby_order WHERE sale_id = p_sale AND number = p.standby_order FOR UPDATE;
        IF v_state = 'authorising' THEN
            PERFORM standby_end(p_sale, p.standby_order, 'cancelled', 'another sum was authorised', true, p_trace);
            RETURN jsonb_build_object('code', 'amount', 'order', p.standby_order, 'state', 'cancelled');
        END IF;
    END IF;
    RETURN jsonb_build_object('order', p.standby_order) || standby_authorised(p_sale, p.standby_order,
        CASE WHEN p.amount > 0 THEN p.made_at + make_interval(secs => p_life_seconds) END, p_reachable, p_trace);
END
$$;
-- +goose StatementEnd

-- The money of a matched order is about to be taken, or that is taken up again:
-- its hold is extended, and the recovery point moved to `capturing`. Codes:
--
--   capture  with what the gateway has to be told, and the step that was reached
--   lost     the same, but there are no seats any more for this money: why says it
--   none     the order is not matched (any more)
-- +goose StatementBegin
CREATE FUNCTION payment_capturing(p_sale bigint, p_order bigint) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    v_payment uuid;
    v_account text;
    v_now timestamptz;
    v_standing text;
    v_why text;
    v_done jsonb;
BEGIN
    SELECT booking, payment_id, account INTO b FROM standby_order WHERE sale_id = p_sale AND number = p_order AND state = 'matched';
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'none');
    END IF;
    v_payment := b.payment_id;
    v_account := b.account;
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = v_account FOR UPDATE;
    SELECT k.number, k.state, k.seats, k.leg_from, k.leg_to, k.ends_at, k.limit_at, k.departs_at, s.state AS sale_state, s.closes_at
    INTO b FROM booking k JOIN sale s ON s.sale_id = k.sale_id
    WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = b.booking FOR UPDATE OF k;
    PERFORM 1 FROM payment WHERE sale_id = p_sale AND payment_id = v_payment FOR UPDATE;
    v_now := clock_timestamp();
    v_standing := booking_standing(b.state, b.ends_at, b.limit_at, b.departs_at, b.sale_state, b.closes_at, v_now);
    v_why := CASE v_standing
        WHEN 'in-time' THEN NULL
        WHEN 'booked' THEN NULL
        WHEN 'ended' THEN CASE WHEN EXISTS (
            SELECT 1 FROM seat k WHERE k.sale_id = p_sale AND k.number = ANY (b.seats)
                AND NOT v_now >= ALL (k.taken_until[b.leg_from:b.leg_to])) THEN 'seats lost before they were paid for' END
        WHEN 'cancelled' THEN 'the sale was cancelled'
        WHEN 'let-go' THEN 'left by its holder'
        ELSE 'not paid for in time' END;
    IF v_standing = 'in-time' THEN
        PERFORM hold_extend(p_sale, b.number);
    END IF;
    v_done := standby_capturing(p_sale, p_order);
    IF v_done->>'code' = 'capture' AND v_why IS NOT NULL THEN
        v_done := v_done || jsonb_build_object('code', 'lost', 'why', v_why);
    END IF;
    RETURN v_done;
END
$$;
-- +goose StatementEnd

-- Writes a refund and the outbox row that carries it out. The caller has locked
-- the payment. Its key never changes.
-- +goose StatementBegin
CREATE FUNCTION payment_refund(p_sale bigint, p_payment uuid, p_booking bigint, p_amount bigint, p_currency text, p_fee bigint,
                               p_reason text, p_trace text) RETURNS bigint
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    v_id bigint;
    v_n integer;
BEGIN
    SELECT count(*) + 1 INTO v_n FROM refund WHERE sale_id = p_sale AND payment_id = p_payment;
    INSERT INTO refund (sale_id, payment_id, booking, amount, currency, fee, reason, key, trace_id)
    VALUES (p_sale, p_payment, p_booking, p_amount, p_currency, p_fee, p_reason,
        'refund-' || p_sale || '-' || p_payment || '-' || v_n, p_trace)
    RETURNING refund_id INTO v_id;
    UPDATE payment SET returning_amount = returning_amount + p_amount WHERE sale_id = p_sale AND payment_id = p_payment;
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    VALUES (p_sale, 'refund', v_id::text, jsonb_build_object('refund', v_id), p_trace);
    RETURN v_id;
END
$$;
-- +goose StatementEnd

-- The confirm step: money has arrived, and this alone decides what becomes of
-- the booking (law 10). Called any number of times for a payment it has one
-- effect. Answers {"code": booked | rescued | refund | none | unknown, …}; unknown
-- too for a payment of another gateway than the one that says so.
--
-- What was authorised for a standby order pays for the booking that `match` made
-- of it: the fare, or the whole sum where the gateway cannot take a part, and then
-- the difference goes back. The order ends with it. Money for an order that has no
-- booking goes back.
-- +goose StatementBegin
CREATE FUNCTION payment_confirm(p_sale bigint, p_payment uuid, p_gateway text, p_reference text, p_amount bigint, p_currency text, p_trace text)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    p record;
    o record;
    v_now timestamptz;
    v_standing text;
    v_reason text;
    v_code text;
    v_over bigint := 0; -- captured beyond the fare
BEGIN
    -- Neither column ever changes, so they are read before any lock.
    SELECT account, gateway INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment;
    IF NOT FOUND OR p.gateway <> p_gateway THEN
        RETURN jsonb_build_object('code', 'unknown');
    END IF;
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = p.account FOR UPDATE;
    -- `match` gives an order's payment its booking, and has locked the account.
    SELECT booking INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment;
    SELECT k.number, k.account, k.admission, k.class, k.leg_from, k.leg_to, k.seats, k.quantity, k.state, k.amount, k.currency,
           k.ends_at, k.limit_at, k.departs_at, s.state AS sale_state, s.closes_at, s.account_limit
    INTO b FROM booking k JOIN sale s ON s.sale_id = k.sale_id
    WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = p.booking FOR UPDATE OF k;
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment FOR UPDATE;
    IF p.captured_at IS NOT NULL THEN
        RETURN jsonb_build_object('code', 'none', 'booking', p.booking, 'order', p.standby_order, 'state', b.state, 'outcome', p.outcome);
    END IF;
    IF p.reference IS NOT NULL AND p.reference <> p_reference THEN
        RAISE EXCEPTION 'payment % has the reference %, not %', p_payment, p.reference, p_reference;
    END IF;

    v_now := clock_timestamp();
    IF p.booking IS NULL THEN
        UPDATE payment SET state = 'succeeded', step = 'settled', reference = COALESCE(reference, p_reference), settled_at = v_now,
            ask_at = NULL, captured = p_amount, captured_in = p_currency, captured_at = v_now, outcome = 'refund', reason = 'no-booking'
        WHERE sale_id = p_sale AND payment_id = p_payment;
        IF p_amount > 0 THEN
            PERFORM payment_refund(p_sale, p_payment, NULL, p_amount, p_currency, 0, 'no-booking', p_trace);
        END IF;
        PERFORM standby_confirmed(p_sale, p.standby_order, false, 'it was paid before it had seats, and the money goes back');
        RETURN jsonb_build_object('code', 'refund', 'order', p.standby_order, 'reason', 'no-booking');
    END IF;
    IF p.standby_order IS NOT NULL AND p_amount = p.amount AND p_amount > b.amount THEN
        v_over := p_amount - b.amount;
    END IF;
    v_standing := booking_standing(b.state, b.ends_at, b.limit_at, b.departs_at, b.sale_state, b.closes_at, v_now);
    IF p_amount - v_over <> b.amount OR p_currency <> b.currency THEN
        v_reason := 'amount';
    ELSIF v_standing = 'in-time' THEN
        BEGIN
            PERFORM seat_book(p_sale, b.number, b.seats, b.leg_from, b.leg_to);
            UPDATE booking SET state = 'booked', history = history || history_line(v_now, 'booked', 'paid')
            WHERE sale_id = p_sale AND number = b.number;
            v_code := 'booked';
        EXCEPTION WHEN SQLSTATE 'HF001' THEN
            -- It ended while we waited for the seats: the rule is asked again.
            v_now := clock_timestamp();
            v_standing := booking_standing(b.state, b.ends_at, b.limit_at, b.departs_at, b.sale_state, b.closes_at, v_now);
        END;
    END IF;
    IF v_code IS NULL AND b.state = 'held' AND b.ends_at <= v_now THEN
        PERFORM expire_account_holds(p_sale, b.account, p_trace);
        b.state := 'expired';
        v_now := clock_timestamp();
    END IF;
    IF v_code IS NULL AND v_reason IS NULL THEN
        IF v_standing = 'ended' THEN
            BEGIN
                PERFORM seat_hold(p_sale, b.number, b.seats, b.leg_from, b.leg_to, clock_timestamp() + interval '1 minute', false);
                PERFORM seat_book(p_sale, b.number, b.seats, b.leg_from, b.leg_to);
                UPDATE account_sale SET live_seats = live_seats + b.quantity, seat_limit = b.account_limit
                WHERE sale_id = p_sale AND account = b.account;
                UPDATE booking SET state = 'booked', ended_at = NULL,
                    history = history || history_line(v_now, 'rescued', 'paid after its hold had ended, the seats were still free')
                WHERE sale_id = p_sale AND number = b.number;
                v_code := 'rescued';
            EXCEPTION
                WHEN SQLSTATE 'HF001' THEN
                    v_reason := 'taken';
                WHEN check_violation OR unique_violation THEN
                    v_reason := 'limit'; -- of the account, or of one live booking for its admission
            END;
        ELSE
            v_reason := CASE v_standing
                WHEN 'booked' THEN 'second' WHEN 'let-go' THEN 'let-go' WHEN 'lost' THEN 'late' WHEN 'cancelled' THEN 'cancelled'
                WHEN 'closed' THEN 'closed' ELSE 'late' END;
        END IF;
    END IF;

    UPDATE payment
    SET state = 'succeeded', step = 'settled', reference = COALESCE(reference, p_reference), settled_at = v_now, ask_at = NULL,
        captured = p_amount, captured_in = p_currency, captured_at = v_now, outcome = COALESCE(v_code, 'refund'), reason = v_reason
    WHERE sale_id = p_sale AND payment_id = p_payment;

    IF p.standby_order IS NOT NULL THEN
        PERFORM standby_confirmed(p_sale, p.standby_order, v_code IS NOT NULL, CASE
            WHEN v_code IS NOT NULL THEN 'paid'
            WHEN v_reason = 'taken' THEN 'seats lost before they were paid for'
            WHEN v_reason = 'cancelled' THEN 'the sale was cancelled'
            WHEN v_reason = 'limit' THEN 'the account has reached its limit of seats'
            WHEN v_reason = 'amount' THEN 'another sum was charged'
            WHEN v_reason = 'let-go' THEN 'left by its holder'
            ELSE 'not paid for in time' END);
    END IF;

    IF v_code IS NOT NULL THEN
        IF v_over > 0 THEN
            PERFORM payment_refund(p_sale, p_payment, b.number, v_over, p_currency, 0, 'difference', p_trace);
        END IF;
        IF p.standby_order IS NOT NULL THEN
            INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
            VALUES (p_sale, 'notify', b.number::text, jsonb_build_object('booking', b.number, 'order', p.standby_order,
                'template', 'standby_matched', 'data', '{}'::jsonb), p_trace);
        END IF;
        INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
        VALUES (p_sale, 'ticket', b.number::text, jsonb_build_object('booking', b.number), p_trace);
        -- What else was begun for this booking is not to be charged as well.
        FOR o IN SELECT payment_id FROM payment
                 WHERE sale_id = p_sale AND booking = b.number AND payment_id <> p_payment AND step <> 'settled' ORDER BY payment_id
        LOOP
            INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
            VALUES (p_sale, 'payment_cancel', o.payment_id::text, jsonb_build_object('payment', o.payment_id), p_trace);
        END LOOP;
        RETURN jsonb_build_object('code', v_code, 'booking', b.number, 'order', p.standby_order, 'state', 'booked', 'back', v_over);
    END IF;

    IF p_amount > 0 THEN
        PERFORM payment_refund(p_sale, p_payment, b.number, p_amount, p_currency, 0, v_reason, p_trace);
    END IF;
    IF b.state = 'expired' THEN
        UPDATE booking SET state = 'lost', history = history || history_line(v_now, 'lost', v_reason)
        WHERE sale_id = p_sale AND number = b.number AND state = 'expired';
        b.state := 'lost';
    ELSE
        UPDATE booking SET history = history || history_line(v_now, 'payment returned', v_reason)
        WHERE sale_id = p_sale AND number = b.number;
    END IF;
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    VALUES (p_sale, 'notify', b.number::text, jsonb_build_object('booking', b.number, 'template',
        CASE WHEN b.state = 'lost' THEN 'lost' WHEN v_reason = 'second' THEN 'double_payment' ELSE 'refunded' END,
        'data', jsonb_build_object('amount', jsonb_build_object('amount', p_amount, 'currency', p_currency))), p_trace);
    RETURN jsonb_build_object('code', 'refund', 'booking', b.number, 'order', p.standby_order, 'state', b.state, 'reason', v_reason);
END
$$;
-- +goose StatementEnd

-- payment_note for a standby order's payment.
-- +goose StatementBegin
CREATE FUNCTION payment_note_order(p_sale bigint, p_payment uuid, p_status text, p_looked boolean, p_wait interval, p_trace text)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    p record;
    v_now timestamptz;
    v_order text;
    v_state text;
BEGIN
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment FOR UPDATE;
    IF p.captured_at IS NOT NULL THEN
        RETURN jsonb_build_object('code', 'none', 'state', p.state, 'order', p.standby_order);
    END IF;
    v_now := clock_timestamp();
    v_state := CASE WHEN p_status IN ('failed', 'cancelled') THEN 'failed' WHEN p_looked THEN 'pending' ELSE p.state END;
    IF p_status = 'cancelled' OR p.step = 'settled' THEN
        UPDATE payment SET state = v_state, step = 'settled', settled_at = COALESCE(settled_at, v_now), ask_at = NULL
        WHERE sale_id = p_sale AND payment_id = p_payment;
        PERFORM standby_voided(p_sale, p.standby_order, p_trace);
        RETURN jsonb_build_object('code', 'settled', 'state', v_state, 'order', p.standby_order);
    END IF;
    SELECT state INTO v_order FROM standby_order WHERE sale_id = p_sale AND number = p.standby_order;
    -- One that waits or is being charged is authorised: it is asked about seldom.
    UPDATE payment SET state = v_state, asks = CASE WHEN p_looked THEN p.asks + 1 ELSE p.asks END,
        ask_at = CASE WHEN NOT p_looked THEN p.ask_at WHEN v_order IN ('queued', 'pending', 'matched') THEN v_now + interval '1 hour'
            ELSE v_now + p_wait END
    WHERE sale_id = p_sale AND payment_id = p_payment;
    IF v_order IN ('cancelling', 'cancelled', 'expired') THEN
        PERFORM standby_void(p_sale, p.standby_order, p_trace);
    END IF;
    RETURN jsonb_build_object('code', 'noted', 'state', v_state, 'standing', v_order, 'order', p.standby_order);
END
$$;
-- +goose StatementEnd

-- What a gateway said of a payment that is not money: pending, failed or
-- cancelled. p_looked: it is the answer to our question and not an event, which
-- may be older than what we know. A payment still pending keeps its hold to the
-- limit; past the limit it is cancelled at the gateway. p_wait until the next
-- question. Of an order's payment the order decides: it stays pending until the
-- order's authorise_by, and what is left of an order that has ended is cancelled.
-- +goose StatementBegin
CREATE FUNCTION payment_note(p_sale bigint, p_payment uuid, p_status text, p_looked boolean, p_wait interval, p_trace text)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    p record;
    v_number bigint;
    v_now timestamptz;
    v_standing text;
    v_state text;
    v_order bigint;
BEGIN
    SELECT booking, standby_order INTO v_number, v_order FROM payment WHERE sale_id = p_sale AND payment_id = p_payment;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'unknown');
    END IF;
    IF v_order IS NOT NULL THEN
        RETURN payment_note_order(p_sale, p_payment, p_status, p_looked, p_wait, p_trace);
    END IF;
    SELECT k.state, k.ends_at, k.limit_at, k.departs_at, s.state AS sale_state, s.closes_at
    INTO b FROM booking k JOIN sale s ON s.sale_id = k.sale_id
    WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = v_number FOR UPDATE OF k;
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND payment_id = p_payment FOR UPDATE;
    IF p.captured_at IS NOT NULL THEN
        RETURN jsonb_build_object('code', 'none', 'state', p.state);
    END IF;
    v_now := clock_timestamp();
    v_state := CASE WHEN p_status IN ('failed', 'cancelled') THEN 'failed' WHEN p_looked THEN 'pending' ELSE p.state END;
    IF v_state <> p.state THEN
        UPDATE booking SET history = history || history_line(v_now, 'payment ' || v_state, p_status)
        WHERE sale_id = p_sale AND number = v_number;
    END IF;
    IF p_status = 'cancelled' OR p.step = 'settled' THEN
        UPDATE payment SET state = v_state, step = 'settled', settled_at = COALESCE(settled_at, v_now), ask_at = NULL
        WHERE sale_id = p_sale AND payment_id = p_payment;
        RETURN jsonb_build_object('code', 'settled', 'state', v_state);
    END IF;
    UPDATE payment SET state = v_state, asks = CASE WHEN p_looked THEN p.asks + 1 ELSE p.asks END,
        ask_at = CASE WHEN p_looked THEN v_now + p_wait ELSE p.ask_at END
    WHERE sale_id = p_sale AND payment_id = p_payment;
    v_standing := booking_standing(b.state, b.ends_at, b.limit_at, b.departs_at, b.sale_state, b.closes_at, v_now);
    IF v_standing = 'in-time' THEN
        IF v_state = 'pending' THEN
            b.ends_at := hold_extend(p_sale, v_number);
        END IF;
    ELSIF v_standing <> 'ended' AND p_looked AND NOT EXISTS (
        SELECT 1 FROM outbox WHERE sale_id = p_sale AND kind = 'payment_cancel' AND subject = p_payment::text AND done_at IS NULL) THEN
        INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
        VALUES (p_sale, 'payment_cancel', p_payment::text, jsonb_build_object('payment', p_payment), p_trace);
    END IF;
    RETURN jsonb_build_object('code', 'noted', 'state', v_state, 'standing', v_standing, 'ends_at', b.ends_at);
END
$$;
-- +goose StatementEnd

-- What a gateway said of a refund, found by our key: asked, succeeded or failed.
-- Succeeded stays unless the gateway says failed later.
-- +goose StatementBegin
CREATE FUNCTION refund_note(p_sale bigint, p_key text, p_reference text, p_status text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    r record;
    p record;
    v_returned bigint;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT payment_id INTO r FROM refund WHERE sale_id = p_sale AND key = p_key;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'unknown');
    END IF;
    SELECT * INTO p FROM payment WHERE sale_id = p_sale AND payment_id = r.payment_id FOR UPDATE;
    SELECT * INTO r FROM refund WHERE sale_id = p_sale AND key = p_key FOR UPDATE;
    IF r.state = p_status OR (r.state IN ('succeeded', 'failed') AND p_status = 'asked') THEN
        RETURN jsonb_build_object('code', 'none', 'state', r.state);
    END IF;
    UPDATE refund SET state = p_status, reference = COALESCE(p_reference, reference),
        done_at = CASE WHEN p_status = 'succeeded' THEN v_now END
    WHERE sale_id = p_sale AND key = p_key;
    SELECT COALESCE(sum(amount), 0) INTO v_returned FROM refund
    WHERE sale_id = p_sale AND payment_id = r.payment_id AND state = 'succeeded';
    UPDATE payment SET returned_amount = v_returned,
        state = CASE WHEN v_returned = 0 THEN 'succeeded' WHEN v_returned < captured THEN 'partly_refunded' ELSE 'refunded' END
    WHERE sale_id = p_sale AND payment_id = r.payment_id;
    RETURN jsonb_build_object('code', p_status, 'booking', r.booking, 'refund', r.refund_id);
END
$$;
-- +goose StatementEnd

-- Lets a hold go, but first its open payments must be cancelled at the gateway:
-- then the code is `cancelling` with their ids, and an outbox row for each will
-- see it through if the caller does not. Other codes: as let_go_booking.
-- +goose StatementBegin
CREATE FUNCTION booking_abandon(p_sale bigint, p_number bigint, p_account text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    v_open uuid[];
    v_state text;
    v_later timestamptz;
BEGIN
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
    SELECT state INTO v_state FROM booking WHERE sale_id = p_sale AND number = p_number AND account = p_account FOR UPDATE;
    IF v_state = 'held' THEN
        SELECT array_agg(payment_id ORDER BY payment_id) INTO v_open FROM payment
        WHERE sale_id = p_sale AND booking = p_number AND step <> 'settled';
    END IF;
    IF v_open IS NULL THEN
        RETURN let_go_booking(p_sale, p_number, p_account, 'let go by its holder', p_trace);
    END IF;
    v_later := clock_timestamp() + interval '15 seconds';
    INSERT INTO outbox (sale_id, kind, subject, payload, due_at, trace_id)
    SELECT p.sale_id, 'payment_cancel', p.payment_id::text, jsonb_build_object('payment', p.payment_id, 'release', true),
           v_later, p_trace
    FROM payment p WHERE p.sale_id = p_sale AND p.payment_id = ANY (v_open) AND NOT EXISTS (
        SELECT 1 FROM outbox o WHERE o.sale_id = p_sale AND o.kind = 'payment_cancel' AND o.subject = p.payment_id::text
            AND o.done_at IS NULL AND o.payload ? 'release');
    RETURN jsonb_build_object('code', 'cancelling', 'payments', v_open);
END
$$;
-- +goose StatementEnd

-- Takes a booked booking back: its seats come free, and what was paid for it goes
-- back but for the fee. The caller has locked the account's row and the booking.
-- Answers cancel_booking's code, with the amount that goes back.
-- +goose StatementBegin
CREATE FUNCTION booking_give_back(p_sale bigint, p_number bigint, p_account text, p_fee bigint, p_why text, p_reason text,
                                  p_template text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    p record;
    v_back bigint := 0;
    v_done jsonb;
BEGIN
    SELECT payment_id, captured - returning_amount AS kept, captured_in INTO p FROM payment
    WHERE sale_id = p_sale AND booking = p_number AND outcome IN ('booked', 'rescued') AND returning_amount < captured
    FOR UPDATE;
    v_done := cancel_booking(p_sale, p_number, p_account, p_why, p_trace);
    IF v_done->>'code' <> 'cancelled' THEN
        RETURN v_done;
    END IF;
    IF p.payment_id IS NOT NULL AND p.kept > p_fee THEN
        v_back := p.kept - p_fee;
        PERFORM payment_refund(p_sale, p.payment_id, p_number, v_back, p.captured_in, p_fee, p_reason, p_trace);
    END IF;
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    SELECT k.sale_id, 'notify', p_number::text, jsonb_build_object('booking', p_number, 'template', p_template,
        'data', jsonb_build_object('amount', jsonb_build_object('amount', v_back, 'currency', k.currency))), p_trace
    FROM booking k WHERE k.sale_id = p_sale AND k.number = p_number;
    RETURN v_done || jsonb_build_object('refund', v_back);
END
$$;
-- +goose StatementEnd

-- Returns a whole booking for its holder; with p_preview nothing changes. No fee
-- is kept: a sale has no refund rule yet. Codes: preview, cancelled, checked-in,
-- wrong-state, not-found.
-- +goose StatementBegin
CREATE FUNCTION booking_refund(p_sale bigint, p_number bigint, p_account text, p_preview boolean, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    b record;
    v_fee bigint := 0;
    v_back bigint;
    v_done jsonb;
BEGIN
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
    SELECT state, seats, currency INTO b FROM booking
    WHERE sale_id = p_sale AND number = p_number AND account = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF b.state <> 'booked' THEN
        RETURN jsonb_build_object('code', 'wrong-state', 'state', b.state);
    END IF;
    IF checked_in(p_sale, p_number) THEN
        RETURN jsonb_build_object('code', 'checked-in', 'state', b.state);
    END IF;
    IF p_preview THEN
        SELECT COALESCE(sum(captured - returning_amount), 0) INTO v_back FROM payment
        WHERE sale_id = p_sale AND booking = p_number AND outcome IN ('booked', 'rescued');
        RETURN jsonb_build_object('code', 'preview', 'state', b.state, 'seats', b.seats, 'refund', GREATEST(v_back - v_fee, 0),
            'fee', v_fee, 'currency', b.currency);
    END IF;
    v_done := booking_give_back(p_sale, p_number, p_account, v_fee, 'returned by its holder', 'asked', 'refunded', p_trace);
    RETURN v_done || jsonb_build_object('state', 'cancelled', 'seats', b.seats, 'fee', v_fee, 'currency', b.currency);
END
$$;
-- +goose StatementEnd

-- Takes back one booking of a cancelled sale, checked in or not, without a fee.
-- Codes: cancelled, wrong-state, not-found.
-- +goose StatementBegin
CREATE FUNCTION booking_call_off(p_sale bigint, p_number bigint, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    v_account text;
    v_state text;
BEGIN
    SELECT k.account INTO v_account FROM booking k JOIN sale s ON s.sale_id = k.sale_id
    WHERE k.sale_id = p_sale AND s.sale_id = p_sale AND k.number = p_number AND s.state = 'cancelled';
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = v_account FOR UPDATE;
    SELECT state INTO v_state FROM booking WHERE sale_id = p_sale AND number = p_number FOR UPDATE;
    IF v_state <> 'booked' THEN
        RETURN jsonb_build_object('code', 'wrong-state', 'state', v_state);
    END IF;
    RETURN booking_give_back(p_sale, p_number, v_account, 0, 'the sale was cancelled', 'cancelled', 'sale_cancelled', p_trace);
END
$$;
-- +goose StatementEnd

-- Invariant 3, for one sale: bookings whose captured money is not what the
-- booking costs, plus what goes back, plus fees kept; and standby orders without a
-- booking, all of whose money goes back. A payment whose money is dealt with in
-- one transaction leaves no other trace: every row is a fault.
-- +goose StatementBegin
CREATE FUNCTION money_faults(p_sale bigint, p_limit integer)
RETURNS TABLE (subject text, captured bigint, due bigint)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT m.subject, m.captured, m.due FROM (
        SELECT k.number::text AS subject,
               COALESCE((SELECT sum(p.captured) FROM payment p WHERE p.sale_id = p_sale AND p.booking = k.number), 0)::bigint AS captured,
               (CASE WHEN k.state = 'booked' THEN k.amount ELSE 0 END
                + COALESCE((SELECT sum(r.amount + r.fee) FROM refund r WHERE r.sale_id = p_sale AND r.booking = k.number), 0))::bigint AS due
        FROM booking k WHERE k.sale_id = p_sale AND k.account <> 'house'
          AND (k.state = 'booked' OR EXISTS (SELECT 1 FROM payment p WHERE p.sale_id = p_sale AND p.booking = k.number AND p.captured > 0))
        UNION ALL
        SELECT 'order ' || p.standby_order, p.captured,
               COALESCE((SELECT sum(r.amount + r.fee) FROM refund r WHERE r.sale_id = p_sale AND r.payment_id = p.payment_id), 0)::bigint
        FROM payment p WHERE p.sale_id = p_sale AND p.booking IS NULL AND p.captured > 0
    ) m WHERE m.captured <> m.due ORDER BY m.subject LIMIT p_limit
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION
    booking_standing(text, timestamptz, timestamptz, timestamptz, text, timestamptz, timestamptz),
    hold_extend(bigint, bigint),
    payment_begin(bigint, bigint, text, text, text, uuid, text, integer, text),
    payment_begin_order(bigint, bigint, text, uuid, text, text),
    payment_created(bigint, uuid, text, text),
    payment_authorised(bigint, uuid, text, text, bigint, text, integer, boolean, text),
    payment_capturing(bigint, bigint),
    payment_refund(bigint, uuid, bigint, bigint, text, bigint, text, text),
    payment_confirm(bigint, uuid, text, text, bigint, text, text),
    payment_note_order(bigint, uuid, text, boolean, interval, text),
    payment_note(bigint, uuid, text, boolean, interval, text),
    refund_note(bigint, text, text, text),
    booking_abandon(bigint, bigint, text, text),
    booking_give_back(bigint, bigint, text, bigint, text, text, text, text),
    booking_refund(bigint, bigint, text, boolean, text),
    booking_call_off(bigint, bigint, text),
    money_faults(bigint, integer)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    booking_standing(text, timestamptz, timestamptz, timestamptz, text, timestamptz, timestamptz),
    hold_extend(bigint, bigint),
    payment_begin(bigint, bigint, text, text, text, uuid, text, integer, text),
    payment_begin_order(bigint, bigint, text, uuid, text, text),
    payment_created(bigint, uuid, text, text),
    payment_authorised(bigint, uuid, text, text, bigint, text, integer, boolean, text),
    payment_capturing(bigint, bigint),
    payment_refund(bigint, uuid, bigint, bigint, text, bigint, text, text),
    payment_confirm(bigint, uuid, text, text, bigint, text, text),
    payment_note_order(bigint, uuid, text, boolean, interval, text),
    payment_note(bigint, uuid, text, boolean, interval, text),
    refund_note(bigint, text, text, text),
    booking_abandon(bigint, bigint, text, text),
    booking_give_back(bigint, bigint, text, bigint, text, text, text, text),
    booking_refund(bigint, bigint, text, boolean, text),
    booking_call_off(bigint, bigint, text),
    money_faults(bigint, integer)
TO holdfast_app;
GRANT SELECT, INSERT, UPDATE ON payment, refund TO holdfast_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway_event TO holdfast_app;

-- +goose Down
DROP FUNCTION money_faults, booking_call_off, booking_refund, booking_give_back, booking_abandon, refund_note, payment_note, payment_note_order, payment_confirm,
    payment_refund, payment_capturing, payment_authorised, payment_created, payment_begin_order, payment_begin, hold_extend, booking_standing;
DROP TABLE refund, gateway_event, payment;
