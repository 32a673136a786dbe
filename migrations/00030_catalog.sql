-- +goose Up
-- What the catalog needs beside its tables.

-- The id of a sale is planned before it is made, so that a POST that died in the
-- middle is taken up again and makes no second sale.
GRANT USAGE ON SEQUENCE sale_sale_id_seq TO holdfast_app;

-- The list of what is still to be had, by departure.
CREATE INDEX sale_by_departure ON sale (departs_at, sale_id);

-- +goose Down
DROP INDEX sale_by_departure;
REVOKE USAGE ON SEQUENCE sale_sale_id_seq FROM holdfast_app;
