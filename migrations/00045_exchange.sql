-- +goose Up
-- An exchange (RESCHEDULE): a booking that was paid for gets other seats, legs
-- or another class of its sale at the same price. It keeps its number, so its
-- locator, its payment and its passengers. Rows are locked in the one order:
-- account, booking, then all its seats old and new by number (law 2).

-- Whether a booking may have legs p_from to p_to of a seat of which it has legs
-- p_have_from to p_have_to already (0 and 0: none of it): what it has not is free
-- now and, with p_first, passed by `match`. What it has is never offered to
-- others by the exchange, so standby does not come first there. A part that is
-- empty passes ALL, as it must; the caller sees to p_to <= legs (law 4).
CREATE FUNCTION exchange_fits(p_taken_until timestamptz[], p_considered_at timestamptz, p_from integer, p_to integer,
                              p_have_from integer, p_have_to integer, p_first boolean, p_now timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_now >= ALL (p_taken_until[p_from:LEAST(p_to, p_have_from - 1)])
       AND p_now >= ALL (p_taken_until[GREATEST(p_from, p_have_to + 1):p_to])
       AND (NOT p_first OR p_considered_at >= ALL (p_taken_until[p_from:LEAST(p_to, p_have_from - 1)])
                       AND p_considered_at >= ALL (p_taken_until[GREATEST(p_from, p_have_to + 1):p_to]))
$$;

-- Exchanges a booking for p_quantity seats of a class on legs p_from to p_to:
-- those named in p_seats; or its own where they will do, p_choice where that is
-- free, or any. p_amount is the new price of all, in the sale's currency. With
-- p_preview nothing changes. Old legs are freed and new ones booked in one
-- subtransaction: when the new ones cannot all be had nothing has happened.
--
-- Codes: exchanged, preview, not-found, wrong-state, checked-in, not-open-yet,
-- paused, sale-closed, quantity, price, same (it has all that already),
-- seat-taken, standby-first, sold-out, unavailable (free, and always another's a
-- moment before). HF002 is an interval that is not within the sale.
-- +goose StatementBegin
CREATE FUNCTION booking_exchange(p_sale bigint, p_number bigint, p_account text, p_class text, p_from integer, p_to integer,
                                 p_seats integer[], p_choice integer[], p_quantity integer, p_amount bigint,
                                 p_departs_at timestamptz, p_preview boolean, p_trace text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    b record;
    v_sale record;
    v_now timestamptz;
    v_first boolean;             -- standby first
    v_own integer[] := '{}';     -- its seats where it stays in its class: what it has of them it may keep
    v_avoid integer[];           -- seats this account let go in the last ten minutes
    v_pick integer[];
    v_got integer[];
    v_stay integer[];            -- old seats that are among the new
    v_left integer[];            -- legs of those that come free before the new interval
    v_right integer[];           -- and after it
    v_at timestamptz;
    v_answer jsonb;
BEGIN
    PERFORM 1 FROM account_sale WHERE sale_id = p_sale AND account = p_account FOR UPDATE;
    SELECT class, seats, quantity, leg_from, leg_to, state, amount, currency, departs_at INTO b FROM booking
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
    SELECT s.state, s.legs, s.opens_at, s.closes_at INTO v_sale FROM sale s JOIN class c ON c.sale_id = s.sale_id
    WHERE s.sale_id = p_sale AND c.sale_id = p_sale AND c.class = p_class;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('code', 'not-found');
    END IF;
    IF p_from < 1 OR p_to < p_from OR p_to > v_sale.legs OR cardinality(p_seats) <> p_quantity THEN
        RAISE EXCEPTION 'legs % to %, % seats %', p_from, p_to, p_quantity, p_seats USING ERRCODE = 'HF002';
    END IF;
    v_now := clock_timestamp();
    IF v_sale.state = 'draft' OR v_now < v_sale.opens_at AND v_sale.state IN ('open', 'paused') THEN
        RETURN jsonb_build_object('code', 'not-open-yet');
    END IF;
    IF v_sale.state IN ('closed', 'cancelled') OR v_now >= v_sale.closes_at OR v_now >= b.departs_at OR v_now >= p_departs_at THEN
        RETURN jsonb_build_object('code', 'sale-closed');
    END IF;
    IF v_sale.state = 'paused' THEN
        RETURN jsonb_build_object('code', 'paused');
    END IF;
    IF p_quantity <> b.quantity THEN
        RETURN jsonb_build_object('code', 'quantity', 'quantity', b.quantity);
    END IF;
    IF p_amount <> b.amount THEN
        RETURN jsonb_build_object('code', 'price', 'amount', b.amount, 'currency', b.currency);
    END IF;
    IF p_class = b.class THEN
        v_own := b.seats;
        IF p_from = b.leg_from AND p_to = b.leg_to AND (p_seats IS NULL OR p_seats = b.seats) THEN
            RETURN jsonb_build_object('code', 'same');
        END IF;
    END IF;
    SELECT coalesce(array_agg(n), '{}') INTO v_avoid FROM booking k, unnest(k.seats) n
    WHERE k.sale_id = p_sale AND k.account = p_account AND k.state = 'released' AND k.ended_at > v_now - interval '10 minutes';
    IF p_seats && v_avoid THEN
        RETURN jsonb_build_object('code', 'seat-taken', 'why', 'let-go', 'taken',
            ARRAY(SELECT s FROM unnest(p_seats) s WHERE s = ANY (v_avoid) ORDER BY s));
    END IF;
    v_first := EXISTS (SELECT 1 FROM standby_queue WHERE sale_id = p_sale AND class = p_class);

    -- 1: what was named, or its own seats. 2: what was chosen on the map. 3 and 4:
    -- any, looked for without locks, as all locks are taken in one order below.
    -- Each try stands in a subtransaction, so that no try waits while it keeps
    -- another's locks.
    FOR v_try IN 1..4 LOOP
        EXIT WHEN v_try > 1 AND p_seats IS NOT NULL;
        v_now := clock_timestamp();
        v_pick := CASE v_try WHEN 1 THEN coalesce(p_seats, v_own) WHEN 2 THEN p_choice ELSE ARRAY(
            SELECT s.number FROM seat s
            WHERE s.sale_id = p_sale AND s.class = p_class AND p_to <= s.legs AND s.number <> ALL (v_avoid)
              AND exchange_fits(s.taken_until, s.considered_at, p_from, p_to,
                  CASE WHEN s.number = ANY (v_own) THEN b.leg_from ELSE 0 END,
                  CASE WHEN s.number = ANY (v_own) THEN b.leg_to ELSE 0 END, v_first, v_now)
            ORDER BY random() LIMIT p_quantity) END;
        CONTINUE WHEN cardinality(v_pick) IS DISTINCT FROM p_quantity;
        v_pick := ARRAY(SELECT n FROM unnest(v_pick) n ORDER BY n);
        BEGIN
            IF NOT p_preview THEN
                PERFORM seat_lock(p_sale, b.seats || v_pick);
            END IF;
            v_now := clock_timestamp();
            IF (SELECT count(*) FROM seat s
                WHERE s.sale_id = p_sale AND s.number = ANY (v_pick) AND s.class = p_class AND p_to <= s.legs AND s.number <> ALL (v_avoid)
                  AND exchange_fits(s.taken_until, s.considered_at, p_from, p_to,
                      CASE WHEN s.number = ANY (v_own) THEN b.leg_from ELSE 0 END,
                      CASE WHEN s.number = ANY (v_own) THEN b.leg_to ELSE 0 END, v_first, v_now)) <> p_quantity THEN
                RAISE EXCEPTION 'not every seat is free' USING ERRCODE = 'HF001';
            END IF;
            IF NOT p_preview THEN
                v_at := seat_free(p_sale, p_number, b.seats, b.leg_from, b.leg_to);
                PERFORM seat_hold(p_sale, p_number, v_pick, p_from, p_to, clock_timestamp() + interval '1 minute', false);
                PERFORM seat_book(p_sale, p_number, v_pick, p_from, p_to);
            END IF;
            v_got := v_pick;
        EXCEPTION WHEN SQLSTATE 'HF001' THEN
            v_got := NULL; -- taken meanwhile, or never free
        END;
        EXIT WHEN v_got IS NOT NULL;
    END LOOP;
    IF v_got IS NULL THEN
        RETURN exchange_refusal(p_sale, p_class, p_seats, v_own, v_avoid, p_from, p_to, b.leg_from, b.leg_to, p_quantity, v_first);
    END IF;

    -- What came free: the seats it has no more, and of those it keeps the legs
    -- before and after the new ones.
    v_stay := ARRAY(SELECT n FROM unnest(v_own) n WHERE n = ANY (v_got) ORDER BY n);
    v_left := CASE WHEN p_from > b.leg_from THEN ARRAY[b.leg_from, LEAST(p_from - 1, b.leg_to)] END;
    v_right := CASE WHEN p_to < b.leg_to THEN ARRAY[GREATEST(p_to + 1, b.leg_from), b.leg_to] END;
    v_answer := jsonb_build_object('code', CASE WHEN p_preview THEN 'preview' ELSE 'exchanged' END, 'state', b.state, 'seats', v_got,
        'released', ARRAY(SELECT n FROM unnest(b.seats) n WHERE n <> ALL (v_stay) OR v_left IS NOT NULL OR v_right IS NOT NULL ORDER BY n),
        'amount', b.amount, 'currency', b.currency);
    IF p_preview THEN
        RETURN v_answer;
    END IF;
    PERFORM seat_released(p_sale, 'RESCHEDULE', b.class, ARRAY(SELECT n FROM unnest(b.seats) n WHERE n <> ALL (v_stay) ORDER BY n),
        b.leg_from, b.leg_to, p_number, v_at, p_trace);
    IF v_left IS NOT NULL THEN
        PERFORM seat_released(p_sale, 'RESCHEDULE', b.class, v_stay, v_left[1], v_left[2], p_number, v_at, p_trace);
    END IF;
    IF v_right IS NOT NULL THEN
        PERFORM seat_released(p_sale, 'RESCHEDULE', b.class, v_stay, v_right[1], v_right[2], p_number, v_at, p_trace);
    END IF;
    UPDATE booking SET class = p_class, leg_from = p_from, leg_to = p_to, seats = v_got, departs_at = p_departs_at,
        history = history || history_line(v_at, 'exchanged', (
            SELECT b.class || ', ' || coalesce(s.stops -> (b.leg_from - 1) ->> 'id', (b.leg_from - 1)::text)
                || ' to ' || coalesce(s.stops -> b.leg_to ->> 'id', b.leg_to::text) || ', ' || string_agg(p.name, ' ' ORDER BY p.number)
            FROM sale s JOIN seat_place p ON p.sale_id = s.sale_id
            WHERE s.sale_id = p_sale AND p.sale_id = p_sale AND p.number = ANY (b.seats) GROUP BY s.sale_id))
    WHERE sale_id = p_sale AND number = p_number;
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    VALUES (p_sale, 'ticket', p_number::text, jsonb_build_object('booking', p_number), p_trace);
    INSERT INTO outbox (sale_id, kind, subject, payload, trace_id)
    VALUES (p_sale, 'notify', p_number::text, jsonb_build_object('booking', p_number, 'template', 'exchanged',
        'data', jsonb_build_object('seats', (SELECT jsonb_agg(p.name ORDER BY p.number) FROM seat_place p
            WHERE p.sale_id = p_sale AND p.number = ANY (v_got)))), p_trace);
    RETURN v_answer;
END
$$;
-- +goose StatementEnd

-- Why an exchange found too few: hold_refusal, but that the booking has its own
-- legs already. `unavailable`: enough are free now.
-- +goose StatementBegin
CREATE FUNCTION exchange_refusal(p_sale bigint, p_class text, p_seats integer[], p_own integer[], p_avoid integer[],
                                 p_from integer, p_to integer, p_have_from integer, p_have_to integer, p_quantity integer,
                                 p_first boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_free integer[];  -- whoever comes first
    v_open integer[];  -- of those, for the open sale
BEGIN
    SELECT coalesce(array_agg(s.number), '{}'),
           coalesce(array_agg(s.number) FILTER (WHERE exchange_fits(s.taken_until, s.considered_at, p_from, p_to,
               CASE WHEN s.number = ANY (p_own) THEN p_have_from ELSE 0 END,
               CASE WHEN s.number = ANY (p_own) THEN p_have_to ELSE 0 END, p_first, v_now)), '{}')
    INTO v_free, v_open
    FROM seat s
    WHERE s.sale_id = p_sale AND s.class = p_class AND p_to <= s.legs AND s.number <> ALL (p_avoid)
      AND (p_seats IS NULL OR s.number = ANY (p_seats))
      AND exchange_fits(s.taken_until, s.considered_at, p_from, p_to,
          CASE WHEN s.number = ANY (p_own) THEN p_have_from ELSE 0 END,
          CASE WHEN s.number = ANY (p_own) THEN p_have_to ELSE 0 END, false, v_now);
    IF cardinality(v_open) >= p_quantity THEN
        RETURN jsonb_build_object('code', 'unavailable');
    END IF;
    IF cardinality(v_free) >= p_quantity THEN
        RETURN jsonb_build_object('code', 'standby-first', 'taken',
            ARRAY(SELECT n FROM unnest(p_seats) n WHERE n <> ALL (v_open) ORDER BY n));
    END IF;
    IF p_seats IS NULL THEN
        RETURN jsonb_build_object('code', 'sold-out');
    END IF;
    RETURN jsonb_build_object('code', 'seat-taken', 'taken', ARRAY(SELECT n FROM unnest(p_seats) n WHERE n <> ALL (v_free) ORDER BY n));
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION
    exchange_fits(timestamptz[], timestamptz, integer, integer, integer, integer, boolean, timestamptz),
    exchange_refusal(bigint, text, integer[], integer[], integer[], integer, integer, integer, integer, integer, boolean),
    booking_exchange(bigint, bigint, text, text, integer, integer, integer[], integer[], integer, bigint, timestamptz, boolean, text)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    exchange_fits(timestamptz[], timestamptz, integer, integer, integer, integer, boolean, timestamptz),
    exchange_refusal(bigint, text, integer[], integer[], integer[], integer, integer, integer, integer, integer, boolean),
    booking_exchange(bigint, bigint, text, text, integer, integer, integer[], integer[], integer, bigint, timestamptz, boolean, text)
TO holdfast_app;

-- +goose Down
DROP FUNCTION booking_exchange, exchange_refusal, exchange_fits;
