-- +goose Up
-- What becomes of a ticket after it was paid for: what was sent, and who came.

-- How far the sending of an outbox row has come, a row for each way. begun_at is
-- committed before the mail or SMS goes out and sent_at after the other side has
-- taken it, so that a crash between two ways sends none of them twice. What is
-- begun and not sent is sent again with the same message id.
CREATE TABLE delivery (
    sale_id   bigint NOT NULL,
    outbox_id bigint NOT NULL,
    way       text NOT NULL CONSTRAINT delivery_way CHECK (way = ANY ('{mail,sms}')),
    begun_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries     integer NOT NULL DEFAULT 1,
    sent_at   timestamptz,
    outcome   text CONSTRAINT delivery_outcome CHECK (outcome = ANY ('{sent,refused}')),
    PRIMARY KEY (sale_id, outbox_id, way),
    CONSTRAINT delivery_done CHECK ((sent_at IS NULL) = (outcome IS NULL))
);

-- A ticket that was checked in: once. Numbered stock has the seat and serial 0,
-- counted stock the ticket's number within its booking and seat 0.
CREATE TABLE check_in (
    sale_id bigint NOT NULL,
    booking bigint NOT NULL,
    seat    integer NOT NULL,
    serial  integer NOT NULL,
    account text NOT NULL, -- of the gate staff
    at      timestamptz NOT NULL,
    PRIMARY KEY (sale_id, booking, seat, serial),
    CONSTRAINT check_in_unit CHECK ((seat > 0 AND serial = 0) OR (seat = 0 AND serial > 0))
);

-- Every scan with its answer, so that the same scan_id gets the same.
CREATE TABLE scan (
    sale_id          bigint NOT NULL,
    account          text NOT NULL,
    scan_id          text NOT NULL CONSTRAINT scan_id_length CHECK (char_length(scan_id) BETWEEN 1 AND 128),
    booking          bigint NOT NULL,
    serial           integer NOT NULL,
    result           text NOT NULL CONSTRAINT scan_result CHECK (result = ANY ('{valid,used,invalid}')),
    reason           text NOT NULL,
    first_scanned_at timestamptz,
    at               timestamptz NOT NULL,
    PRIMARY KEY (sale_id, account, scan_id)
);

-- Checks one ticket in. The booking's row is locked, so a refund and a check-in
-- of one booking come one after the other: cancel_booking locks it too, and
-- whoever refunds for the holder looks for check_in after that lock.
-- Codes: valid, used, invalid with a reason; idempotency-mismatch for a scan_id
-- that stood for another ticket. Reason `changed`: the booking was exchanged, and
-- this is not what its ticket says now.
-- +goose StatementBegin
CREATE FUNCTION check_in_ticket(
    p_sale bigint, p_booking bigint, p_serial integer, p_seat integer, p_from integer, p_to integer, p_account text, p_scan_id text
) RETURNS TABLE (result text, reason text, first_scanned_at timestamptz, passenger jsonb)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b record;
    s record;
    v_now timestamptz;
    v_first timestamptz;
    v_result text;
    v_reason text := '';
    v_serial integer := CASE WHEN p_seat > 0 THEN 0 ELSE p_serial END;
    v_passenger jsonb;
BEGIN
    SELECT k.state, k.leg_from, k.leg_to, k.quantity, k.seats, k.passengers INTO b FROM booking k
    WHERE k.sale_id = p_sale AND k.number = p_booking FOR UPDATE;
    v_passenger := b.passengers -> (CASE WHEN p_seat > 0 THEN array_position(b.seats, p_seat) ELSE p_serial END - 1);
    SELECT c.booking, c.serial, c.result, c.reason, c.first_scanned_at INTO s FROM scan c
    WHERE c.sale_id = p_sale AND c.account = p_account AND c.scan_id = p_scan_id;
    IF FOUND THEN
        IF s.booking <> p_booking OR s.serial <> p_serial THEN
            RETURN QUERY SELECT 'idempotency-mismatch', '', NULL::timestamptz, NULL::jsonb;
        ELSE
            RETURN QUERY SELECT s.result, s.reason, s.first_scanned_at, v_passenger;
        END IF;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    CASE
        WHEN b.state IS NULL THEN
            v_result := 'invalid'; v_reason := 'unknown';
        WHEN b.state <> 'booked' THEN
            v_result := 'invalid'; v_reason := CASE b.state WHEN 'cancelled' THEN 'refunded' ELSE 'not-paid' END;
        WHEN p_from <> b.leg_from OR p_to <> b.leg_to OR (p_seat = 0 AND p_serial > b.quantity)
             OR (p_seat > 0 AND b.seats[p_serial] IS DISTINCT FROM p_seat)
             OR (p_seat > 0 AND NOT EXISTS (SELECT 1 FROM booked_seat o
                 WHERE o.sale_id = p_sale AND o.booking = p_booking AND o.seat = p_seat)) THEN
            v_result := 'invalid'; v_reason := 'changed';
        ELSE
            INSERT INTO check_in (sale_id, booking, seat, serial, account, at)
            VALUES (p_sale, p_booking, p_seat, v_serial, p_account, v_now)
            ON CONFLICT (sale_id, booking, seat, serial) DO NOTHING;
            v_result := CASE WHEN FOUND THEN 'valid' ELSE 'used' END;
            SELECT c.at INTO v_first FROM check_in c
            WHERE c.sale_id = p_sale AND c.booking = p_booking AND c.seat = p_seat AND c.serial = v_serial;
    END CASE;
    INSERT INTO scan (sale_id, account, scan_id, booking, serial, result, reason, first_scanned_at, at)
    VALUES (p_sale, p_account, p_scan_id, p_booking, p_serial, v_result, v_reason, v_first, v_now)
    ON CONFLICT (sale_id, account, scan_id) DO NOTHING;
    IF NOT FOUND THEN -- the same scan came twice at once, of a booking that is not there to lock
        RETURN QUERY SELECT c.result, c.reason, c.first_scanned_at, v_passenger FROM scan c
        WHERE c.sale_id = p_sale AND c.account = p_account AND c.scan_id = p_scan_id;
        RETURN;
    END IF;
    RETURN QUERY SELECT v_result, v_reason, v_first, v_passenger;
END
$$;
-- +goose StatementEnd

-- Says whether any ticket of a booking was checked in. Whoever refunds for the
-- holder asks it in the refund's transaction, after cancel_booking.
-- +goose StatementBegin
CREATE FUNCTION checked_in(p_sale bigint, p_booking bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM check_in WHERE sale_id = p_sale AND booking = p_booking)
$$;
-- +goose StatementEnd

GRANT SELECT, INSERT, UPDATE ON delivery TO holdfast_app;
GRANT SELECT, INSERT ON check_in, scan TO holdfast_app;
REVOKE ALL ON FUNCTION check_in_ticket(bigint, bigint, integer, integer, integer, integer, text, text), checked_in(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION check_in_ticket(bigint, bigint, integer, integer, integer, integer, text, text), checked_in(bigint, bigint) TO holdfast_app;

-- +goose Down
DROP FUNCTION checked_in, check_in_ticket;
DROP TABLE scan, check_in, delivery;
