package services

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" for goose
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrate brings the schema to the newest migration in files, as the owner,
// under an advisory lock of the database: several may start at once. It returns
// the version reached and how many migrations it ran. The connection must be to
// Postgres itself or to a pooler in session mode.
func Migrate(ctx context.Context, ownerURL string, files fs.FS) (version int64, ran int, err error) {
	db, err := sql.Open("pgx", ownerURL)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return 0, 0, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return 0, 0, fmt.Errorf("migrations: %w", err)
	}
	done, err := p.Up(ctx)
	if err != nil {
		return 0, len(done), fmt.Errorf("migrations: %w", err)
	}
	version, err = p.GetDBVersion(ctx)
	return version, len(done), err
}
