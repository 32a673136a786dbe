package seat

import (
	"context"

	"handler/function/shared/catalog"
	"handler/function/shared/queue"
	"handler/function/shared/store"
)

// Maps gives a replica the map of any sale, at most a second old.
type Maps struct {
	db    *store.DB
	redis *queue.Client
}

// NewMaps makes Maps; redis may be nil, then every load comes from Postgres.
func NewMaps(db *store.DB, redis *queue.Client) *Maps { return &Maps{db: db, redis: redis} }

// Get returns the map of a sale, at most a second old, loaded from Postgres at
// most once a second by all replicas together. While Postgres is away it is the
// last one known, with Stale set; with none known the error is unavailable.
func (ms *Maps) Get(ctx context.Context, sale *catalog.Sale) (*Map, error) { panic("not yet") }
