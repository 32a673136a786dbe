package main

import (
	"context"
	"fmt"
	"io"

	"handler/function/migrations"
)

// migrateCmd brings a database to the newest schema, under a lock of that
// database. The role holdfast_app must be there: the migrations grant to it.
type migrateCmd struct {
	PostgresURL string `required:"" env:"HOLDFAST_POSTGRES_OWNER_URL" help:"URL of the schema's owner, to Postgres itself or a pooler in session mode."`
}

type migrateResult struct {
	Version int64 `json:"version"`
}

func (c *migrateCmd) Run(ctx context.Context, out *output) error {
	version, err := migrations.Up(ctx, c.PostgresURL)
	if err != nil {
		return err
	}
	return out.result(migrateResult{version}, func(w io.Writer) {
		fmt.Fprintf(w, "the schema is at version %d\n", version)
	})
}
