package catalog

import (
	"context"
)

// Reader looks sales up for one replica. What it returns is shared and must not
// be written to. It is safe for concurrent use.
//
// State, opening times and limits are at most a second old; stops, classes and
// places are kept until the sale's revision changes. While Postgres is away the
// last copy is returned.
type Reader struct{}

// Sale returns a sale by id. Errors: not-found; unavailable when Postgres is
// away and no copy is kept.
func (r *Reader) Sale(ctx context.Context, saleID int64) (*Sale, error) { panic("not yet") }
