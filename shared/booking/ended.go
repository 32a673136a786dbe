package booking

import (
	"context"
	"time"

	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	expireSales    = 1000 // looked at by one call
	expireAccounts = 500  // of a sale in one call
	expireTogether = 2    // sales at a time
)

// ExpireEnded moves holds that ended at least late ago to `expired`, in every
// sale that has some, each sale in a transaction of its own. Their seats were
// free already; what changes is the account's count, and that the end becomes a
// release. It returns how many holds it moved, also with an error.
func ExpireEnded(ctx context.Context, db *store.DB, late time.Duration) (n int, err error) {
	var due []int64
	err = db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["ended-sales"], late, expireSales)
		if err != nil {
			return err
		}
		due, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, err
	}
	counts := make([]int, len(due))
	var group errgroup.Group
	group.SetLimit(expireTogether)
	for i, sale := range due {
		group.Go(func() error {
			return db.Do(ctx, func(ctx context.Context, q store.Querier) error {
				return q.QueryRow(ctx, sql["expire"], sale, expireAccounts).Scan(&counts[i])
			})
		})
	}
	err = group.Wait()
	for _, c := range counts {
		n += c
	}
	return n, err
}

// PaidBy says whether an admission has led to a booking that was paid, in any of
// the sales.
func PaidBy(ctx context.Context, db *store.DB, sales []int64, admission int64) (yes bool, err error) {
	for _, sale := range sales {
		err := db.Do(ctx, func(ctx context.Context, q store.Querier) error {
			return q.QueryRow(ctx, sql["paid"], sale, admission).Scan(&yes)
		})
		if yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}
