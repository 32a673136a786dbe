-- +goose Up
-- The moves of a seat (law 3). These functions alone write `seat` and
-- `booked_seat`: they run as the schema's owner, and the application's role may
-- only read the tables. Each locks its seats in order of number, reads the time
-- after that, and moves all of them or none: a seat that is not in the state it
-- must leave raises HF001, which undoes the (sub)transaction; an interval that
-- is not within the strips raises HF002.
--
--   free -> held    seat_hold, seat_take    held   -> free  seat_let_go
--   held -> booked  seat_book               booked -> free  seat_free
--
-- free -> booked and booked -> held do not exist.
--
-- Every statement finds its rows by key, so plans are made once and never by a
-- scan of the table: a plan made for ten rows would live on when there are ten
-- thousand.

-- Locks seats in order and says how many there are.
-- +goose StatementBegin
CREATE FUNCTION seat_lock(p_sale bigint, p_seats integer[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_n integer;
BEGIN
    PERFORM 1 FROM seat WHERE sale_id = p_sale AND number = ANY (p_seats) ORDER BY number FOR UPDATE;
    GET DIAGNOSTICS v_n = ROW_COUNT;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- Locks seats in order, and refuses seats that are not there and an interval that
-- is not within their strips: a slice outside a strip is empty and would pass ALL
-- (law 4). It has no rights of its own: the moves below call it with theirs.
-- +goose StatementBegin
CREATE FUNCTION seat_lock_interval(p_sale bigint, p_seats integer[], p_from integer, p_to integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_n integer;
    v_legs integer;
BEGIN
    SELECT count(*), min(legs) INTO v_n, v_legs FROM (
        SELECT legs FROM seat WHERE sale_id = p_sale AND number = ANY (p_seats) ORDER BY number FOR UPDATE) locked;
    IF v_n = 0 OR v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'of the seats % only % are there', p_seats, v_n USING ERRCODE = 'HF001';
    END IF;
    IF p_from IS NULL OR p_to IS NULL OR p_from < 1 OR p_to < p_from OR p_to > v_legs THEN
        RAISE EXCEPTION 'the legs % to % are not within 1 to %', p_from, p_to, v_legs USING ERRCODE = 'HF002';
    END IF;
END
$$;
-- +goose StatementEnd

-- free -> held. With p_standby_first only legs that `match` has passed by.
-- +goose StatementBegin
CREATE FUNCTION seat_hold(p_sale bigint, p_booking bigint, p_seats integer[], p_from integer, p_to integer,
                          p_until timestamptz, p_standby_first boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
    v_n integer;
BEGIN
    PERFORM seat_lock_interval(p_sale, p_seats, p_from, p_to);
    v_now := clock_timestamp();
    IF p_until IS NULL OR p_until <= v_now OR p_until = 'infinity' THEN
        RAISE EXCEPTION 'a hold must end in the future, not at %', p_until USING ERRCODE = 'HF002';
    END IF;
    UPDATE seat
    SET taken_until[p_from:p_to] = array_fill(p_until, ARRAY[p_to - p_from + 1]),
        taken_by[p_from:p_to] = array_fill(p_booking, ARRAY[p_to - p_from + 1]),
        considered_at = LEAST(considered_at, v_now)
    WHERE sale_id = p_sale AND number = ANY (p_seats)
      AND v_now >= ALL (taken_until[p_from:p_to])
      AND (NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to]));
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'not every seat is free' USING ERRCODE = 'HF001';
    END IF;
END
$$;
-- +goose StatementEnd

-- free -> held for p_quantity free seats of a class, in order of number: among
-- p_choice where that is given, without p_avoid. Without p_wait seats that another
-- transaction is at are passed over; with it they are waited for, each at most
-- 250 ms where there is no choice. Returns the seats; too few of them raise HF001,
-- a wait in vain 55P03.
-- +goose StatementBegin
CREATE FUNCTION seat_take(p_sale bigint, p_booking bigint, p_class text, p_choice integer[], p_quantity integer, p_from integer, p_to integer,
                          p_until timestamptz, p_standby_first boolean, p_avoid integer[], p_wait boolean) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_got integer[];
    v_n integer;
BEGIN
    IF p_from IS NULL OR p_to IS NULL OR p_from < 1 OR p_to < p_from THEN
        RAISE EXCEPTION 'the legs % to % are no interval', p_from, p_to USING ERRCODE = 'HF002';
    END IF;
    IF p_choice IS NOT NULL AND p_wait THEN
        SELECT array_agg(number) INTO v_got FROM (
            SELECT number FROM seat
            WHERE sale_id = p_sale AND number = ANY (p_choice) AND class = p_class AND p_to <= legs
              AND v_now >= ALL (taken_until[p_from:p_to])
              AND (NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to]))
              AND number <> ALL (p_avoid)
            ORDER BY number LIMIT p_quantity FOR UPDATE) free;
    ELSIF p_choice IS NOT NULL THEN
        SELECT array_agg(number) INTO v_got FROM (
            SELECT number FROM seat
            WHERE sale_id = p_sale AND number = ANY (p_choice) AND class = p_class AND p_to <= legs
              AND v_now >= ALL (taken_until[p_from:p_to])
              AND (NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to]))
              AND number <> ALL (p_avoid)
            ORDER BY number LIMIT p_quantity FOR UPDATE SKIP LOCKED) free;
    ELSIF NOT p_wait THEN
        SELECT array_agg(number) INTO v_got FROM (
            SELECT number FROM seat
            WHERE sale_id = p_sale AND class = p_class AND p_to <= legs
              AND v_now >= ALL (taken_until[p_from:p_to])
              AND (NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to]))
              AND number <> ALL (p_avoid)
            ORDER BY number LIMIT p_quantity FOR UPDATE SKIP LOCKED) free;
    ELSE
        PERFORM set_config('lock_timeout', '250ms', true);
        SELECT array_agg(number) INTO v_got FROM (
            SELECT number FROM seat
            WHERE sale_id = p_sale AND class = p_class AND p_to <= legs
              AND v_now >= ALL (taken_until[p_from:p_to])
              AND (NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to]))
              AND number <> ALL (p_avoid)
            ORDER BY number LIMIT p_quantity FOR UPDATE) free;
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
    IF cardinality(v_got) IS DISTINCT FROM p_quantity THEN
        RAISE EXCEPTION 'too few seats are free' USING ERRCODE = 'HF001';
    END IF;
    v_now := clock_timestamp();
    IF p_until IS NULL OR p_until <= v_now OR p_until = 'infinity' THEN
        RAISE EXCEPTION 'a hold must end in the future, not at %', p_until USING ERRCODE = 'HF002';
    END IF;
    UPDATE seat
    SET taken_until[p_from:p_to] = array_fill(p_until, ARRAY[p_to - p_from + 1]),
        taken_by[p_from:p_to] = array_fill(p_booking, ARRAY[p_to - p_from + 1]),
        considered_at = LEAST(considered_at, v_now)
    WHERE sale_id = p_sale AND number = ANY (v_got) AND p_to <= legs
      AND v_now >= ALL (taken_until[p_from:p_to])
      AND (NOT p_standby_first OR considered_at >= ALL (taken_until[p_from:p_to]));
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> p_quantity THEN
        RAISE EXCEPTION 'not every seat is free' USING ERRCODE = 'HF001';
    END IF;
    RETURN v_got;
END
$$;
-- +goose StatementEnd

-- held -> held, with a later end.
-- +goose StatementBegin
CREATE FUNCTION seat_extend(p_sale bigint, p_booking bigint, p_seats integer[], p_from integer, p_to integer,
                            p_until timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
    v_n integer;
BEGIN
    PERFORM seat_lock_interval(p_sale, p_seats, p_from, p_to);
    v_now := clock_timestamp();
    IF p_until IS NULL OR p_until <= v_now OR p_until = 'infinity' THEN
        RAISE EXCEPTION 'a hold must end in the future, not at %', p_until USING ERRCODE = 'HF002';
    END IF;
    UPDATE seat
    SET taken_until[p_from:p_to] = array_fill(p_until, ARRAY[p_to - p_from + 1])
    WHERE sale_id = p_sale AND number = ANY (p_seats)
      AND p_booking = ALL (taken_by[p_from:p_to])
      AND v_now < ALL (taken_until[p_from:p_to]) AND 'infinity' > ALL (taken_until[p_from:p_to])
      AND p_until >= ALL (taken_until[p_from:p_to]);
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'not every seat is held by booking % until before that', p_booking USING ERRCODE = 'HF001';
    END IF;
END
$$;
-- +goose StatementEnd

-- held -> free, before its end.
-- +goose StatementBegin
CREATE FUNCTION seat_let_go(p_sale bigint, p_booking bigint, p_seats integer[], p_from integer, p_to integer)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
    v_n integer;
BEGIN
    PERFORM seat_lock_interval(p_sale, p_seats, p_from, p_to);
    v_now := clock_timestamp();
    UPDATE seat
    SET taken_until[p_from:p_to] = array_fill(v_now, ARRAY[p_to - p_from + 1]),
        considered_at = LEAST(considered_at, v_now - interval '1 microsecond')
    WHERE sale_id = p_sale AND number = ANY (p_seats)
      AND p_booking = ALL (taken_by[p_from:p_to])
      AND v_now < ALL (taken_until[p_from:p_to]) AND 'infinity' > ALL (taken_until[p_from:p_to]);
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'not every seat is held by booking %', p_booking USING ERRCODE = 'HF001';
    END IF;
    RETURN v_now;
END
$$;
-- +goose StatementEnd

-- held -> booked, before the hold's end.
-- +goose StatementBegin
CREATE FUNCTION seat_book(p_sale bigint, p_booking bigint, p_seats integer[], p_from integer, p_to integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
    v_n integer;
BEGIN
    PERFORM seat_lock_interval(p_sale, p_seats, p_from, p_to);
    v_now := clock_timestamp();
    UPDATE seat
    SET taken_until[p_from:p_to] = array_fill('infinity'::timestamptz, ARRAY[p_to - p_from + 1])
    WHERE sale_id = p_sale AND number = ANY (p_seats)
      AND p_booking = ALL (taken_by[p_from:p_to])
      AND v_now < ALL (taken_until[p_from:p_to]) AND 'infinity' > ALL (taken_until[p_from:p_to]);
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'not every seat is held by booking %', p_booking USING ERRCODE = 'HF001';
    END IF;
    INSERT INTO booked_seat (sale_id, seat, legs, booking)
    SELECT s.sale_id, s.number, int4range(p_from, p_to, '[]'), p_booking
    FROM seat s WHERE s.sale_id = p_sale AND s.number = ANY (p_seats);
END
$$;
-- +goose StatementEnd

-- booked -> free.
-- +goose StatementBegin
CREATE FUNCTION seat_free(p_sale bigint, p_booking bigint, p_seats integer[], p_from integer, p_to integer)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
    v_n integer;
BEGIN
    PERFORM seat_lock_interval(p_sale, p_seats, p_from, p_to);
    v_now := clock_timestamp();
    UPDATE seat
    SET taken_until[p_from:p_to] = array_fill(v_now, ARRAY[p_to - p_from + 1]),
        considered_at = LEAST(considered_at, v_now - interval '1 microsecond')
    WHERE sale_id = p_sale AND number = ANY (p_seats)
      AND p_booking = ALL (taken_by[p_from:p_to])
      AND 'infinity' = ALL (taken_until[p_from:p_to]);
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'not every seat is booked by booking %', p_booking USING ERRCODE = 'HF001';
    END IF;
    DELETE FROM booked_seat WHERE sale_id = p_sale AND booking = p_booking AND seat = ANY (p_seats)
        AND legs = int4range(p_from, p_to, '[]');
    GET DIAGNOSTICS v_n = ROW_COUNT;
    IF v_n <> cardinality(p_seats) THEN
        RAISE EXCEPTION 'booked_seat does not agree about booking %', p_booking USING ERRCODE = 'HF001';
    END IF;
    RETURN v_now;
END
$$;
-- +goose StatementEnd

-- `match` has looked at these seats and passed them by. The time is the
-- database's, read after the lock.
-- +goose StatementBegin
CREATE FUNCTION seat_considered(p_sale bigint, p_seats integer[]) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz;
BEGIN
    PERFORM seat_lock(p_sale, p_seats);
    v_now := clock_timestamp();
    UPDATE seat SET considered_at = v_now WHERE sale_id = p_sale AND number = ANY (p_seats);
    RETURN v_now;
END
$$;
-- +goose StatementEnd

-- Makes seats of a class, numbered as given. Those of a new sale have no past;
-- those added later came free at this moment and nobody has considered them,
-- and each is a release.
-- +goose StatementBegin
CREATE FUNCTION seat_create(p_sale bigint, p_class text, p_legs integer, p_numbers integer[], p_later boolean)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_since timestamptz := CASE WHEN p_later THEN v_now ELSE '-infinity'::timestamptz END;
BEGIN
    INSERT INTO seat (sale_id, number, legs, class, considered_at, taken_until, taken_by)
    SELECT c.sale_id, n, p_legs, c.class, '-infinity',
           array_fill(v_since, ARRAY[p_legs]), array_fill(0::bigint, ARRAY[p_legs])
    FROM class c, unnest(p_numbers) n
    WHERE c.sale_id = p_sale AND c.class = p_class AND c.stock = 'numbered'
    ORDER BY n;
    IF p_later THEN
        PERFORM seat_released(p_sale, 'EXTRA_SEAT', p_class, p_numbers, 1, p_legs, NULL, v_now, '');
    END IF;
END
$$;
-- +goose StatementEnd

-- Writes the release row of each seat, due for `match` whether or not anybody
-- waits: an order that joins while this commits is seen by one of the two.
-- +goose StatementBegin
CREATE FUNCTION seat_released(p_sale bigint, p_type text, p_class text, p_seats integer[], p_from integer, p_to integer,
                              p_booking bigint, p_at timestamptz, p_trace text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seat_release (sale_id, event_type, class, seat, leg_from, leg_to, booking, released_at, trace_id)
    SELECT c.sale_id, p_type, c.class, n, p_from, p_to, p_booking, p_at, p_trace
    FROM class c, unnest(p_seats) n
    WHERE c.sale_id = p_sale AND c.class = p_class
    ORDER BY n;
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION
    seat_lock(bigint, integer[]),
    seat_lock_interval(bigint, integer[], integer, integer),
    seat_hold(bigint, bigint, integer[], integer, integer, timestamptz, boolean),
    seat_take(bigint, bigint, text, integer[], integer, integer, integer, timestamptz, boolean, integer[], boolean),
    seat_extend(bigint, bigint, integer[], integer, integer, timestamptz),
    seat_let_go(bigint, bigint, integer[], integer, integer),
    seat_book(bigint, bigint, integer[], integer, integer),
    seat_free(bigint, bigint, integer[], integer, integer),
    seat_considered(bigint, integer[]),
    seat_create(bigint, text, integer, integer[], boolean),
    seat_released(bigint, text, text, integer[], integer, integer, bigint, timestamptz, text)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    seat_lock(bigint, integer[]),
    seat_hold(bigint, bigint, integer[], integer, integer, timestamptz, boolean),
    seat_take(bigint, bigint, text, integer[], integer, integer, integer, timestamptz, boolean, integer[], boolean),
    seat_extend(bigint, bigint, integer[], integer, integer, timestamptz),
    seat_let_go(bigint, bigint, integer[], integer, integer),
    seat_book(bigint, bigint, integer[], integer, integer),
    seat_free(bigint, bigint, integer[], integer, integer),
    seat_considered(bigint, integer[]),
    seat_create(bigint, text, integer, integer[], boolean),
    seat_released(bigint, text, text, integer[], integer, integer, bigint, timestamptz, text)
TO holdfast_app;

-- +goose Down
DROP FUNCTION seat_released, seat_create, seat_considered, seat_free, seat_book, seat_let_go, seat_extend, seat_take, seat_hold, seat_lock_interval, seat_lock;
