-- +goose Up
-- What keeps the queues of standby right: orders that were pending, seats and
-- orders that nobody looked at.

-- Orders whose queues could not be reached when they joined stand in them now.
-- Their places and times stay what they were. Returns how many were pending.
-- +goose StatementBegin
CREATE FUNCTION standby_recovered(p_sale bigint, p_numbers bigint[]) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_number bigint;
    v_now timestamptz;
    v_n integer := 0;
BEGIN
    FOR v_number IN SELECT number FROM standby_order
                    WHERE sale_id = p_sale AND number = ANY (p_numbers) AND state = 'pending'
                    ORDER BY number FOR UPDATE
    LOOP
        v_now := clock_timestamp();
        UPDATE standby_order SET state = 'queued', history = history || history_line(v_now, 'queued', 'its position is known')
        WHERE sale_id = p_sale AND number = v_number;
        v_n := v_n + 1;
    END LOOP;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- Nothing is stranded: a due row for each run of legs that came free more than
-- p_seconds ago and was not considered, of seats without a due row, where their
-- class has waiting orders. What ended unnoticed is a TIMEOUT, and so is the
-- forgotten rest: what matters is that `match` looks at the seat. Two calls at
-- once make a row twice, which is looked at twice. Returns how many.
-- +goose StatementBegin
CREATE FUNCTION standby_recheck(p_sale bigint, p_seconds integer) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_until timestamptz := v_now - make_interval(secs => p_seconds);
    v_classes text[];
    v_n integer;
BEGIN
    SELECT array_agg(c.class) INTO v_classes FROM class c
    WHERE c.sale_id = p_sale AND EXISTS (SELECT 1 FROM standby_queue q WHERE q.sale_id = p_sale AND q.class = c.class);
    INSERT INTO seat_release (sale_id, event_type, class, seat, leg_from, leg_to, released_at)
    SELECT f.sale_id, 'TIMEOUT', f.class, f.number, min(f.leg), max(f.leg), v_now
    FROM (SELECT s.sale_id, s.class, s.number, l.leg, l.leg - row_number() OVER (PARTITION BY s.number ORDER BY l.leg) AS run
          FROM seat s CROSS JOIN LATERAL unnest(s.taken_until) WITH ORDINALITY l (until, leg)
          WHERE s.sale_id = p_sale AND s.class = ANY (v_classes) AND s.considered_at < v_until
            AND s.considered_at < ANY (s.taken_until)
            AND l.until > s.considered_at AND l.until < v_until
            AND NOT EXISTS (SELECT 1 FROM seat_release r WHERE r.sale_id = p_sale AND r.seat = s.number AND r.done_at IS NULL)) f
    GROUP BY f.sale_id, f.class, f.number, f.run
    ORDER BY f.number, min(f.leg);
    GET DIAGNOSTICS v_n = ROW_COUNT;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

-- Makes waiting orders due for `match` again, as if they had just joined: they
-- stand beside seats that they could have. Returns how many.
-- +goose StatementBegin
CREATE FUNCTION standby_recheck_orders(p_sale bigint, p_numbers bigint[]) RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    v_n integer;
BEGIN
    PERFORM 1 FROM standby_order WHERE sale_id = p_sale AND number = ANY (p_numbers) ORDER BY number FOR UPDATE;
    INSERT INTO standby_due (sale_id, score, number)
    SELECT sale_id, score, number FROM standby_order
    WHERE sale_id = p_sale AND number = ANY (p_numbers) AND state IN ('queued', 'pending')
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_n = ROW_COUNT;
    RETURN v_n;
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION standby_recovered(bigint, bigint[]), standby_recheck(bigint, integer), standby_recheck_orders(bigint, bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION standby_recovered(bigint, bigint[]), standby_recheck(bigint, integer), standby_recheck_orders(bigint, bigint[]) TO holdfast_app;

-- +goose Down
DROP FUNCTION standby_recheck_orders, standby_recheck, standby_recovered;
