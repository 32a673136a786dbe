-- +goose Up
-- What happens to a booking, each in one function and one transaction. Rows are
-- locked in the one order: account, booking, seats by number (law 2). A refusal
-- is returned as {"code": …}, never raised, so that its idempotency row commits
-- with it (law 5). Codes are those of the HTTP contract, or the state reached.

-- +goose StatementBegin
CREATE FUNCTION next_booking(p_sale bigint) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_number bigint;
BEGIN
    LOOP
        v_number := (nextval('booking_number') - 1) % 4194303 + 1; -- what hold_seats takes as it comes
        EXIT WHEN NOT EXISTS (SELECT 1 FROM booking WHERE sale_id = p_sale AND number = v_number);
    END LOOP;
    RETURN v_number;
END
$$;
-- +goose StatementEnd

-- One line of a booking's history: what happened after it was made.
CREATE FUNCTION history_line(p_at timestamptz, p_what text, p_why text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_array(jsonb_build_object('at', p_at, 'what', p_what, 'why', p_why))
$$;

-- Moves the ended holds of one account to `expired`. The caller holds the lock
-- of the account's row. The seats are free already: a hold that ended is free.
-- +goose StatementBegin
CREATE FUNCTION expire_account_holds(p_sale bigint, p_account text, p_trace text) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    b record;
    v_now timestamptz;
    v_seats integer := 0;
    v_n integer := 0;
BEGIN
    FOR b IN SELECT number, class, seats, quantity, leg_from, leg_to, ends_at FROM booking
             WHERE sale_id = p_sale AND account = p_account AND state = 'held' AND ends_at <= clock_timestamp()
             ORDER BY number FOR UPDATE
    LOOP
        v_now := clock_timestamp();
        UPDATE booking
        SET state = 'expired', ended_at = b.ends_at, history = history || history_line(v_now, 'expired', 'the hold ended unpaid')
        WHERE sale_id = p_sale AND number = b.number;
        PERFORM seat_released(p_sale, 'TIMEOUT', b.class, b.seats, b.leg_from, b.leg_to, b.number, b.ends_at, p_trace);
        v_seats := v_seats + b.quantity;
        v_n := v_n + 1;
    END LOOP;
    IF v_seats > 0 AND p_account <> 'house' THEN
        UPDATE account_sale SET live_seats = live_seats - v_seats WHERE sale_id = p_sale AND account = p_account;
    END IF;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- Moves ended holds of a sale to `expired`, at most p_limit accounts at a call;
-- accounts at work elsewhere are left for the next. Returns how many holds.
-- +goose StatementBegin
CREATE FUNCTION expire_ended_holds(p_sale bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    a record;
    v_n integer := 0;
BEGIN
    FOR a IN SELECT DISTINCT account FROM booking
             WHERE sale_id = p_sale AND state = 'held' AND ends_at <= clock_timestamp()
             ORDER BY account LIMIT p_limit
    LOOP
        IF a.account <> 'house' THEN
            PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = a.account FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
        END IF;
        v_n := v_n + expire_account_holds(p_sale, a.account, '');
    END LOOP;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- Holds seats: those named in p_seats, or any p_quantity of the class, p_choice
-- first. p_amount is the price of the whole booking in minor units of the
-- sale's currency. Answers {"code":"held", …} or a refusal; a booking that is
-- held already on the very same seats comes back with "again": true. Answers
-- that only say "later" (not-open-yet, paused, unavailable) are not kept for the
-- key; HF003 is a key that another kind of request has used.
-- +goose StatementBegin
CREATE FUNCTION hold_seats(
    p_sale bigint, p_account text, p_key text, p_hash bytea,
    p_admission bigint, p_admission_ends timestamptz,
    p_class text, p_from integer, p_to integer, p_seats integer[], p_choice integer[], p_quantity integer,
    p_amount bigint, p_departs_at timestamptz, p_passengers jsonb, p_contact jsonb, p_group text, p_origin text, p_trace text
) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_sale record;
    v_old record;
    b record;
    v_now timestamptz;
    v_live integer := 0;
    v_new boolean;               -- the account has no past in this sale, and these seats stand in live_seats
    v_used integer := 0;         -- bookings ever made with this admission
    v_ended boolean := false;
    v_avoid integer[] := '{}';   -- seats this account let go in the last ten minutes
    v_got integer[];
    v_number bigint;
    v_ends timestamptz;
    v_limit_at timestamptz;
    v_first boolean;             -- standby first
    v_answer jsonb;
    v_keep boolean := true;      -- the answer stands for the key
BEGIN
    SELECT s.state, s.legs, s.opens_at, s.closes_at, s.hold_seconds, s.extend_seconds, s.booking_limit, s.account_limit,
           s.currency
    INTO v_sale FROM sale s JOIN class c ON c.sale_id = s.sale_id
    WHERE s.sale_id = p_sale AND c.sale_id = p_sale AND c.class = p_class;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF p_from < 1 OR p_to < p_from OR p_to > v_sale.legs OR p_quantity < 1 OR cardinality(p_seats) <> p_quantity THEN
        RAISE EXCEPTION 'legs % to %, % seats %', p_from, p_to, p_quantity, p_seats USING ERRCODE = 'HF002';
    END IF;
    IF p_quantity > LEAST(v_sale.booking_limit, v_sale.account_limit) THEN
        RETURN jsonb_build_object('code', 'limit-reached', 'limit', LEAST(v_sale.booking_limit, v_sale.account_limit));
    END IF;
    v_first := EXISTS (SELECT 1 FROM standby_queue WHERE sale_id = p_sale AND class = p_class);

    -- The account's row is made with these seats counted, as most people hold
    -- once; taken back below when nothing is held. Whoever has no row yet has no
    -- booking here and has used no key for a hold.
    INSERT INTO account_sale (sale_id, account, live_seats, seat_limit)
    VALUES (p_sale, p_account, p_quantity, v_sale.account_limit)
    ON CONFLICT (sale_id, account) DO NOTHING;
    v_new := FOUND;
    IF NOT v_new THEN
        SELECT live_seats INTO v_live FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
        SELECT hash, answer INTO v_old FROM idempotency
        WHERE sale_id = p_sale AND account = p_account AND function = 'hold' AND key = p_key;
        IF FOUND THEN
            IF v_old.hash <> p_hash OR v_old.answer IS NULL THEN
                RETURN jsonb_build_object('code', 'idempotency-mismatch');
            END IF;
            RETURN v_old.answer || jsonb_build_object('replay', true, 'server_time', clock_timestamp());
        END IF;
    END IF;

    <<decide>>
    BEGIN
        v_now := clock_timestamp();
        IF v_sale.state = 'draft' OR v_now < v_sale.opens_at AND v_sale.state IN ('open', 'paused') THEN
            v_keep := false;
            v_answer := jsonb_build_object('code', 'not-open-yet', 'opens_at', v_sale.opens_at);
            EXIT decide;
        END IF;
        IF v_sale.state IN ('closed', 'cancelled') OR v_now >= v_sale.closes_at OR v_now >= p_departs_at THEN
            v_answer := jsonb_build_object('code', 'sale-closed');
            EXIT decide;
        END IF;
        IF v_sale.state = 'paused' THEN
            v_keep := false;
            v_answer := jsonb_build_object('code', 'paused');
            EXIT decide;
        END IF;
        IF p_admission IS NOT NULL AND v_now >= p_admission_ends THEN
            v_answer := jsonb_build_object('code', 'admit-expired');
            EXIT decide;
        END IF;

        IF NOT v_new THEN
            FOR b IN SELECT number, state, admission, class, leg_from, leg_to, seats, quantity, ends_at, limit_at, amount, currency
                     FROM booking
                     WHERE sale_id = p_sale AND account = p_account
                       AND (state = 'held' OR admission = p_admission OR state = 'released' AND ended_at > v_now - interval '10 minutes')
            LOOP
                IF b.admission = p_admission THEN
                    v_used := v_used + 1;
                END IF;
                IF b.state = 'held' AND b.ends_at <= v_now THEN
                    v_ended := true;
                ELSIF b.state = 'held' AND b.seats = p_seats AND b.leg_from = p_from AND b.leg_to = p_to AND b.class = p_class THEN
                    v_answer := jsonb_build_object('code', 'held', 'again', true, 'number', b.number, 'seats', b.seats,
                        'ends_at', b.ends_at, 'limit_at', b.limit_at, 'amount', b.amount, 'currency', b.currency);
                    EXIT decide;
                ELSIF b.state IN ('held', 'booked') AND b.admission = p_admission THEN
                    v_answer := jsonb_build_object('code', 'limit-reached', 'why', 'admission');
                ELSIF b.state = 'released' THEN
                    v_avoid := v_avoid || b.seats;
                END IF;
            END LOOP;
            EXIT decide WHEN v_answer IS NOT NULL;
            IF v_used >= 2 THEN
                v_answer := jsonb_build_object('code', 'limit-reached', 'why', 'admission');
                EXIT decide;
            END IF;
            IF v_ended THEN
                PERFORM expire_account_holds(p_sale, p_account, p_trace);
                SELECT live_seats INTO v_live FROM account_sale WHERE sale_id = p_sale AND account = p_account;
            END IF;
            IF v_live + p_quantity > v_sale.account_limit THEN
                v_answer := jsonb_build_object('code', 'limit-reached', 'limit', v_sale.account_limit);
                EXIT decide;
            END IF;
            IF p_seats && v_avoid THEN
                v_answer := jsonb_build_object('code', 'seat-taken', 'why', 'let-go', 'taken',
                    ARRAY(SELECT s FROM unnest(p_seats) s WHERE s = ANY (v_avoid) ORDER BY s));
                EXIT decide;
            END IF;
        END IF;

        v_number := nextval('booking_number');
        IF v_number > 4194303 THEN -- the numbers have come round: find one that this sale has not
            v_number := next_booking(p_sale);
        END IF;
        v_ends := LEAST(v_now + make_interval(secs => v_sale.hold_seconds), p_departs_at);
        v_limit_at := LEAST(v_ends + make_interval(secs => v_sale.extend_seconds), p_departs_at);
        -- 1: what the caller named or chose on its map. 2: any that nobody is at.
        -- 3 to 5: waiting for who is, while as many as that are free. Each try
        -- stands in a subtransaction that is undone when it finds too few, so that
        -- no try waits while it keeps another's locks.
        FOR v_try IN 1..5 LOOP
            CONTINUE WHEN v_try = 1 AND p_seats IS NULL AND p_choice IS NULL;
            IF v_try >= 3 THEN
                v_answer := hold_refusal(p_sale, p_class, NULL, v_avoid, p_from, p_to, p_quantity, v_first);
                EXIT WHEN v_answer IS NOT NULL;
            END IF;
            BEGIN
                v_got := seat_take(p_sale, v_number, p_class, CASE WHEN v_try = 1 THEN coalesce(p_seats, p_choice) END, p_quantity,
                    p_from, p_to, v_ends, v_first, v_avoid, p_seats IS NOT NULL OR v_try >= 3);
                INSERT INTO booking (sale_id, number, account, admission, class, leg_from, leg_to, seats, quantity, state,
                    amount, currency, made_at, ends_at, limit_at, departs_at, passengers, contact, group_id, origin, trace_id)
                VALUES (p_sale, v_number, p_account, p_admission, p_class, p_from, p_to, v_got, p_quantity, 'held',
                    p_amount, v_sale.currency, v_now, v_ends, v_limit_at, p_departs_at, p_passengers, p_contact, p_group,
                    p_origin, p_trace);
                v_answer := jsonb_build_object('code', 'held', 'number', v_number, 'seats', v_got,
                    'ends_at', v_ends, 'limit_at', v_limit_at, 'amount', p_amount, 'currency', v_sale.currency);
                EXIT;
            EXCEPTION
                WHEN SQLSTATE 'HF001' OR lock_not_available THEN
                    IF p_seats IS NOT NULL THEN
                        v_answer := hold_refusal(p_sale, p_class, p_seats, v_avoid, p_from, p_to, p_quantity, v_first);
                        EXIT;
                    END IF;
                WHEN unique_violation THEN
                    v_answer := jsonb_build_object('code', 'limit-reached', 'why', 'admission');
                    EXIT;
                WHEN SQLSTATE 'HF002' THEN -- the train left while we waited
                    v_answer := jsonb_build_object('code', 'sale-closed');
                    EXIT;
            END;
        END LOOP;
        IF v_answer IS NULL THEN -- free by what is committed, and still locked after all that waiting
            v_keep := false;
            v_answer := jsonb_build_object('code', 'unavailable');
        END IF;
    END;

    IF v_answer->>'code' = 'held' AND NOT v_answer ? 'again' THEN
        IF NOT v_new THEN
            UPDATE account_sale SET live_seats = live_seats + p_quantity, seat_limit = v_sale.account_limit
            WHERE sale_id = p_sale AND account = p_account;
        END IF;
    ELSIF v_new THEN
        UPDATE account_sale SET live_seats = live_seats - p_quantity WHERE sale_id = p_sale AND account = p_account;
    END IF;
    IF v_keep THEN
        INSERT INTO idempotency (sale_id, account, function, key, hash, status, answer)
        VALUES (p_sale, p_account, 'hold', p_key, p_hash, 200, v_answer)
        ON CONFLICT (sale_id, account, function, key) DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the key % was used by another request', p_key USING ERRCODE = 'HF003';
        END IF;
    END IF;
    RETURN v_answer || jsonb_build_object('server_time', clock_timestamp());
END
$$;
-- +goose StatementEnd

-- Why a hold found too few: the named seats that are taken; none left; or free
-- seats that standby has not been offered yet. NULL: enough are free now.
-- +goose StatementBegin
CREATE FUNCTION hold_refusal(p_sale bigint, p_class text, p_seats integer[], p_avoid integer[], p_from integer, p_to integer,
                             p_quantity integer, p_standby_first boolean) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_taken integer[];
    v_early integer[]; -- free, but to be offered to standby first
    v_free integer;
BEGIN
    IF p_seats IS NOT NULL THEN
        SELECT array_agg(number ORDER BY number) FILTER (WHERE NOT v_now >= ALL (taken_until[p_from:p_to])),
               array_agg(number ORDER BY number) FILTER (WHERE v_now >= ALL (taken_until[p_from:p_to]))
        INTO v_taken, v_early
        FROM seat WHERE sale_id = p_sale AND number = ANY (p_seats) AND class = p_class AND p_to <= legs;
        IF v_taken IS NULL AND p_standby_first AND v_early IS NOT NULL THEN
            RETURN jsonb_build_object('code', 'standby-first', 'taken', v_early);
        END IF;
        RETURN jsonb_build_object('code', 'seat-taken', 'taken', coalesce(v_taken, p_seats));
    END IF;
    SELECT count(*) FILTER (WHERE NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to])),
           array_agg(number) FILTER (WHERE p_standby_first AND NOT considered_at >= ALL (taken_until[p_from:p_to]))
    INTO v_free, v_early
    FROM seat
    WHERE sale_id = p_sale AND class = p_class AND p_to <= legs AND number <> ALL (p_avoid)
      AND v_now >= ALL (taken_until[p_from:p_to]);
    IF v_free >= p_quantity THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('code', CASE WHEN v_free + coalesce(cardinality(v_early), 0) >= p_quantity THEN 'standby-first' ELSE 'sold-out' END);
END
$$;
-- +goose StatementEnd

-- Lets a hold go before its end (ABANDON). Codes: released, expired (it had
-- ended already), wrong-state, not-found.
-- +goose StatementBegin
CREATE FUNCTION let_go_booking(p_sale bigint, p_number bigint, p_account text, p_why text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    b record;
    v_at timestamptz;
BEGIN
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
    SELECT class, seats, quantity, leg_from, leg_to, state, ends_at INTO b FROM booking
    WHERE sale_id = p_sale AND number = p_number AND account = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF b.state <> 'held' THEN
        RETURN jsonb_build_object('code', CASE WHEN b.state = 'released' THEN 'released' ELSE 'wrong-state' END, 'state', b.state);
    END IF;
    BEGIN
        v_at := seat_let_go(p_sale, p_number, b.seats, b.leg_from, b.leg_to);
    EXCEPTION WHEN SQLSTATE 'HF001' THEN
        v_at := NULL; -- it ended while we came
    END;
    IF v_at IS NULL THEN
        PERFORM expire_account_holds(p_sale, p_account, p_trace);
        RETURN jsonb_build_object('code', 'expired', 'seats', b.seats);
    END IF;
    UPDATE booking SET state = 'released', ended_at = v_at, history = history || history_line(v_at, 'released', p_why)
    WHERE sale_id = p_sale AND number = p_number;
    UPDATE account_sale SET live_seats = live_seats - b.quantity WHERE sale_id = p_sale AND account = p_account;
    PERFORM seat_released(p_sale, 'ABANDON', b.class, b.seats, b.leg_from, b.leg_to, p_number, v_at, p_trace);
    RETURN jsonb_build_object('code', 'released', 'seats', b.seats, 'released_at', v_at);
END
$$;
-- +goose StatementEnd

-- Takes back a booking that was paid for: booked -> cancelled, its seats free
-- (REFUND). The money is the caller's, in the same transaction. Codes:
-- cancelled, wrong-state, not-found.
-- +goose StatementBegin
CREATE FUNCTION cancel_booking(p_sale bigint, p_number bigint, p_account text, p_why text, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    b record;
    v_at timestamptz;
BEGIN
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
    SELECT class, seats, quantity, leg_from, leg_to, state INTO b FROM booking
    WHERE sale_id = p_sale AND number = p_number AND account = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF b.state <> 'booked' THEN
        RETURN jsonb_build_object('code', 'wrong-state', 'state', b.state);
    END IF;
    v_at := seat_free(p_sale, p_number, b.seats, b.leg_from, b.leg_to);
    UPDATE booking SET state = 'cancelled', ended_at = v_at, history = history || history_line(v_at, 'cancelled', p_why)
    WHERE sale_id = p_sale AND number = p_number;
    UPDATE account_sale SET live_seats = live_seats - b.quantity WHERE sale_id = p_sale AND account = p_account;
    PERFORM seat_released(p_sale, 'REFUND', b.class, b.seats, b.leg_from, b.leg_to, p_number, v_at, p_trace);
    RETURN jsonb_build_object('code', 'cancelled', 'seats', b.seats, 'released_at', v_at);
END
$$;
-- +goose StatementEnd

-- Blocks seats: one booking of the account `house` each, held until p_until, all
-- of them or none (HF001). Returns the booking numbers.
-- +goose StatementBegin
CREATE FUNCTION block_seats(p_sale bigint, p_seats integer[], p_from integer, p_to integer, p_until timestamptz, p_why text)
RETURNS bigint[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    s record;
    v_now timestamptz;
    v_number bigint;
    v_all bigint[] := '{}';
BEGIN
    PERFORM seat_lock(p_sale, p_seats);
    FOR s IN SELECT st.number, st.class, sa.currency FROM seat st JOIN sale sa ON sa.sale_id = st.sale_id
             WHERE st.sale_id = p_sale AND sa.sale_id = p_sale AND st.number = ANY (p_seats) ORDER BY st.number
    LOOP
        v_now := clock_timestamp();
        v_number := next_booking(p_sale);
        PERFORM seat_hold(p_sale, v_number, ARRAY[s.number], p_from, p_to, p_until, false);
        INSERT INTO booking (sale_id, number, account, class, leg_from, leg_to, seats, quantity, state, amount, currency,
            made_at, ends_at, limit_at, origin, history)
        VALUES (p_sale, v_number, 'house', s.class, p_from, p_to, ARRAY[s.number], 1, 'held', 0, s.currency,
            v_now, p_until, p_until, 'house', history_line(v_now, 'blocked', p_why));
        v_all := v_all || v_number;
    END LOOP;
    RETURN v_all;
END
$$;
-- +goose StatementEnd

-- Ends the blocks that stand on exactly these legs of these seats, each an
-- EXTRA_SEAT release. Returns the seats that came free.
-- +goose StatementBegin
CREATE FUNCTION unblock_seats(p_sale bigint, p_seats integer[], p_from integer, p_to integer, p_why text, p_trace text)
RETURNS integer[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    b record;
    v_at timestamptz;
    v_all integer[] := '{}';
BEGIN
    FOR b IN SELECT number, class, seats FROM booking
             WHERE sale_id = p_sale AND account = 'house' AND kept_for IS NULL AND state = 'held' AND ends_at > clock_timestamp()
               AND leg_from = p_from AND leg_to = p_to AND seats <@ p_seats
             ORDER BY number FOR UPDATE
    LOOP
        v_at := seat_let_go(p_sale, b.number, b.seats, p_from, p_to);
        UPDATE booking SET state = 'released', ended_at = v_at, history = history || history_line(v_at, 'unblocked', p_why)
        WHERE sale_id = p_sale AND number = b.number;
        PERFORM seat_released(p_sale, 'EXTRA_SEAT', b.class, b.seats, p_from, p_to, b.number, v_at, p_trace);
        v_all := v_all || b.seats;
    END LOOP;
    RETURN v_all;
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION
    next_booking(bigint),
    history_line(timestamptz, text, text),
    expire_account_holds(bigint, text, text),
    expire_ended_holds(bigint, integer),
    hold_seats(bigint, text, text, bytea, bigint, timestamptz, text, integer, integer, integer[], integer[], integer,
        bigint, timestamptz, jsonb, jsonb, text, text, text),
    hold_refusal(bigint, text, integer[], integer[], integer, integer, integer, boolean),
    let_go_booking(bigint, bigint, text, text, text),
    cancel_booking(bigint, bigint, text, text, text),
    block_seats(bigint, integer[], integer, integer, timestamptz, text),
    unblock_seats(bigint, integer[], integer, integer, text, text)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    next_booking(bigint),
    history_line(timestamptz, text, text),
    expire_account_holds(bigint, text, text),
    expire_ended_holds(bigint, integer),
    hold_seats(bigint, text, text, bytea, bigint, timestamptz, text, integer, integer, integer[], integer[], integer,
        bigint, timestamptz, jsonb, jsonb, text, text, text),
    hold_refusal(bigint, text, integer[], integer[], integer, integer, integer, boolean),
    let_go_booking(bigint, bigint, text, text, text),
    cancel_booking(bigint, bigint, text, text, text),
    block_seats(bigint, integer[], integer, integer, timestamptz, text),
    unblock_seats(bigint, integer[], integer, integer, text, text)
TO holdfast_app;

-- +goose Down
DROP FUNCTION unblock_seats, block_seats, cancel_booking, let_go_booking, hold_refusal, hold_seats, expire_ended_holds, expire_account_holds, history_line, next_booking;
