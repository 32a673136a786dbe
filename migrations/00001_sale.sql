-- +goose Up
-- The sale in Postgres: what is sold, the seats and who has them. Every key
-- starts with sale_id (law 8). No foreign key points at sale from a hot table:
-- each insert would lock the sale's row. A list of words in a CHECK is one literal:
-- each statement that writes reads its table's constraints anew, and words that
-- stand one by one made an insert of an order a third longer (measured).

-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE holdfast_app LOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL; -- another database of this server has made it
END
$$;
-- +goose StatementEnd

CREATE EXTENSION IF NOT EXISTS btree_gist;

CREATE TABLE sale (
    sale_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    room_id        bigint,
    org            text NOT NULL,
    kind           text NOT NULL CONSTRAINT sale_kind CHECK (kind = ANY ('{train,show,stay}')),
    title          text NOT NULL,
    number         text NOT NULL DEFAULT '',
    service_date   date NOT NULL,
    timezone       text NOT NULL,
    state          text NOT NULL DEFAULT 'draft'
                   CONSTRAINT sale_state CHECK (state = ANY ('{draft,open,paused,closed,cancelled}')),
    legs           integer NOT NULL CONSTRAINT sale_legs CHECK (legs BETWEEN 1 AND 366),
    stops          jsonb NOT NULL,
    currency       text NOT NULL CONSTRAINT sale_currency CHECK (currency ~ '^[A-Z]{3}$'),
    opens_at       timestamptz NOT NULL,
    closes_at      timestamptz NOT NULL,
    departs_at     timestamptz,
    hold_seconds   integer NOT NULL DEFAULT 300 CONSTRAINT sale_hold_seconds CHECK (hold_seconds BETWEEN 1 AND 86400),
    extend_seconds integer NOT NULL DEFAULT 300 CONSTRAINT sale_extend_seconds CHECK (extend_seconds BETWEEN 0 AND 86400),
    booking_limit  integer NOT NULL DEFAULT 6 CONSTRAINT sale_booking_limit CHECK (booking_limit BETWEEN 1 AND 100),
    account_limit  integer NOT NULL DEFAULT 6 CONSTRAINT sale_account_limit CHECK (account_limit BETWEEN 1 AND 1000),
    gateways       text[] NOT NULL,
    test           boolean NOT NULL DEFAULT false,
    version        bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT sale_window CHECK (opens_at < closes_at)
);
CREATE INDEX sale_by_date ON sale (service_date, sale_id);
CREATE INDEX sale_by_room ON sale (room_id) WHERE room_id IS NOT NULL;

CREATE TABLE class (
    sale_id  bigint NOT NULL REFERENCES sale,
    class    text NOT NULL,
    position integer NOT NULL,
    title    text NOT NULL,
    stock    text NOT NULL CONSTRAINT class_stock CHECK (stock = ANY ('{numbered,counted}')),
    fare     jsonb NOT NULL,
    PRIMARY KEY (sale_id, class)
);

-- A seat is a strip of legs. Only the functions of 00002 write it.
CREATE TABLE seat (
    sale_id       bigint NOT NULL,
    number        integer NOT NULL CONSTRAINT seat_number CHECK (number > 0),
    legs          smallint NOT NULL CONSTRAINT seat_legs CHECK (legs BETWEEN 1 AND 100),
    class         text NOT NULL,
    considered_at timestamptz NOT NULL,
    taken_until   timestamptz[] NOT NULL,
    taken_by      bigint[] NOT NULL,
    PRIMARY KEY (sale_id, number),
    FOREIGN KEY (sale_id, class) REFERENCES class,
    CONSTRAINT seat_taken_until CHECK (array_ndims(taken_until) = 1 AND array_lower(taken_until, 1) = 1
        AND cardinality(taken_until) = legs AND array_position(taken_until, NULL) IS NULL),
    CONSTRAINT seat_taken_by CHECK (array_ndims(taken_by) = 1 AND array_lower(taken_by, 1) = 1
        AND cardinality(taken_by) = legs AND array_position(taken_by, NULL) IS NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE seat_place (
    sale_id    bigint NOT NULL,
    number     integer NOT NULL,
    name       text NOT NULL,
    coach      text NOT NULL,
    row_number integer NOT NULL,
    column_name text NOT NULL,
    attributes text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (sale_id, number),
    UNIQUE (sale_id, name)
);

-- A booking's number is unique within its sale and at most 22 bits, so that a
-- locator has room for it; the sequence comes round (next_booking in 00002).
CREATE SEQUENCE booking_number;

CREATE TABLE booking (
    sale_id    bigint NOT NULL,
    number     bigint NOT NULL CONSTRAINT booking_number_bits CHECK (number BETWEEN 1 AND 4194303),
    account    text NOT NULL CONSTRAINT booking_account CHECK (char_length(account) BETWEEN 1 AND 128),
    admission  bigint,
    class      text NOT NULL,
    leg_from   integer NOT NULL,
    leg_to     integer NOT NULL,
    seats      integer[] NOT NULL,
    quantity   integer NOT NULL CONSTRAINT booking_quantity CHECK (quantity BETWEEN 1 AND 10000),
    state      text NOT NULL CONSTRAINT booking_state
               CHECK (state = ANY ('{held,booked,released,expired,lost,cancelled}')),
    amount     bigint NOT NULL CONSTRAINT booking_amount CHECK (amount >= 0), -- minor units, the whole booking
    currency   text NOT NULL,
    made_at    timestamptz NOT NULL,
    ends_at    timestamptz NOT NULL,  -- of the hold
    limit_at   timestamptz NOT NULL,  -- the latest the hold may be extended to, or be rescued
    ended_at   timestamptz,           -- when it left held or booked for good
    departs_at timestamptz,           -- of its first stop; NULL where unknown
    passengers jsonb NOT NULL DEFAULT '[]',
    contact    jsonb NOT NULL DEFAULT '{}',
    group_id   text,
    origin     text NOT NULL DEFAULT 'customer'
               CONSTRAINT booking_origin CHECK (origin = ANY ('{customer,seller,match,exchange,house}')),
    kept_for   bigint,                -- of the house: the standby order that these seats are kept for
    history    jsonb NOT NULL DEFAULT '[]', -- [{at, what, why}]
    trace_id   text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, number),
    CONSTRAINT booking_interval CHECK (leg_from >= 1 AND leg_from <= leg_to),
    CONSTRAINT booking_seats CHECK (array_position(seats, NULL) IS NULL AND (cardinality(seats) = quantity OR cardinality(seats) = 0)),
    CONSTRAINT booking_hold CHECK (made_at <= ends_at AND ends_at <= limit_at)
) WITH (fillfactor = 80);
CREATE INDEX booking_of_account ON booking (sale_id, account);
CREATE INDEX booking_held ON booking (sale_id, ends_at) WHERE state = 'held';
CREATE INDEX booking_kept ON booking (sale_id, kept_for) WHERE kept_for IS NOT NULL AND state = 'held';
CREATE UNIQUE INDEX booking_live_admission ON booking (sale_id, admission)
    WHERE admission IS NOT NULL AND state IN ('held', 'booked');

-- The last guard (law 4): no two bookings on one leg of a seat.
CREATE TABLE booked_seat (
    sale_id bigint NOT NULL,
    seat    integer NOT NULL,
    legs    int4range NOT NULL CONSTRAINT booked_seat_legs CHECK (NOT isempty(legs) AND lower(legs) >= 1),
    booking bigint NOT NULL,
    PRIMARY KEY (sale_id, booking, seat),
    FOREIGN KEY (sale_id, seat) REFERENCES seat (sale_id, number),
    CONSTRAINT booked_seat_once EXCLUDE USING gist (sale_id WITH =, seat WITH =, legs WITH &&)
);

-- How many live seats an account has in a sale; also the index from an account
-- to its sales (the one read across sales, law 8).
CREATE TABLE account_sale (
    sale_id    bigint NOT NULL,
    account    text NOT NULL,
    live_seats integer NOT NULL,
    seat_limit integer NOT NULL,
    PRIMARY KEY (sale_id, account),
    CONSTRAINT account_sale_limit CHECK (live_seats >= 0 AND live_seats <= seat_limit)
) WITH (fillfactor = 80);
CREATE INDEX account_sale_of ON account_sale (account, sale_id);

-- A release: legs that came free. Each is its own outbox row: due for `match`
-- until done_at, to be told on NATS until told_at. `outcome` is what came of it:
-- {"gaps": [[from, to]], "served": [{from, to, quantity, score, exact}], "kept": [score]}.
CREATE TABLE seat_release (
    sale_id     bigint NOT NULL,
    release_id  bigint GENERATED ALWAYS AS IDENTITY,
    event_type  text NOT NULL CONSTRAINT seat_release_type
                CHECK (event_type = ANY ('{REFUND,TIMEOUT,RESCHEDULE,EXTRA_SEAT,ABANDON}')),
    class       text NOT NULL,
    seat        integer NOT NULL,
    leg_from    integer NOT NULL,
    leg_to      integer NOT NULL,
    booking     bigint,
    released_at timestamptz NOT NULL,
    told_at     timestamptz,
    done_at     timestamptz,
    tries       integer NOT NULL DEFAULT 0,
    outcome     jsonb,
    trace_id    text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, release_id)
);
CREATE INDEX seat_release_due ON seat_release (sale_id, release_id) WHERE done_at IS NULL;
CREATE INDEX seat_release_untold ON seat_release (sale_id, release_id) WHERE told_at IS NULL;
CREATE INDEX seat_release_done ON seat_release (sale_id, class, done_at) WHERE done_at IS NOT NULL;

-- What must happen outside Postgres because of a change, written with it.
CREATE TABLE outbox (
    sale_id    bigint NOT NULL,
    outbox_id  bigint GENERATED ALWAYS AS IDENTITY,
    kind       text NOT NULL CONSTRAINT outbox_kind CHECK (kind ~ '^[a-z_]{1,40}$'),
    subject    text NOT NULL, -- what it is about: a booking number, a payment id
    payload    jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries      integer NOT NULL DEFAULT 0,
    done_at    timestamptz,
    set_aside_at timestamptz,
    error      text,
    trace_id   text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, outbox_id)
);
CREATE INDEX outbox_due ON outbox (sale_id, due_at) WHERE done_at IS NULL;

CREATE TABLE idempotency (
    sale_id      bigint NOT NULL, -- 0 where the request makes the sale
    account      text NOT NULL,
    function     text NOT NULL,
    key          text NOT NULL,
    hash         bytea NOT NULL,
    locked_until timestamptz,     -- of a request still running; NULL once answered
    status       integer,
    answer       jsonb,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (sale_id, account, function, key)
);
CREATE INDEX idempotency_age ON idempotency (sale_id, created_at);

CREATE TABLE alert (
    sale_id   bigint NOT NULL, -- 0 where it is about no sale
    kind      text NOT NULL,
    subject   text NOT NULL,
    count     bigint NOT NULL DEFAULT 1,
    first_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    detail    text NOT NULL DEFAULT '',
    PRIMARY KEY (sale_id, kind, subject)
);

GRANT USAGE ON SCHEMA public TO holdfast_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON sale, class, seat_place, booking, account_sale, seat_release, outbox, idempotency, alert TO holdfast_app;
GRANT SELECT ON seat, booked_seat TO holdfast_app;
GRANT USAGE ON SEQUENCE booking_number TO holdfast_app;

-- +goose Down
DROP TABLE alert, idempotency, outbox, seat_release, account_sale, booked_seat, booking, seat_place, seat, class, sale;
DROP SEQUENCE booking_number;
