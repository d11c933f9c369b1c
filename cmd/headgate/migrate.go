package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server"
)

// migrateReport is the JSON of "migrate".
type migrateReport struct {
	Database string `json:"database"`
	// From and To are the schema version before and after; 0 means no schema.
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func newMigrate(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "migrate --config FILE",
		Short: "Create or upgrade the PostgreSQL schema",
		Long: `Create the schema in the database at postgres.address of the config, or upgrade it to this version. Run it before you
start servers of a new version; servers of the previous version keep working. It is safe to repeat and to run
concurrently.

Exit codes:
  0  the schema is up to date
  1  the config has problems
  2  the migration failed`,
		Example: "  headgate migrate --config /etc/headgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage(cmd, errors.New("no config given: use --config FILE"))
			}
			return p.migrate(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "`FILE` with the server config")
	return cmd
}

func (p *program) migrate(ctx context.Context, file string) error {
	c, err := p.loadConfig(file)
	switch {
	case err != nil:
		return err
	case c.Postgres.Address == "":
		return fmt.Errorf("%s: postgres.address is not set: rules in files need no schema; to keep rules in PostgreSQL, replace rules by "+
			"postgres: {address: postgres://USER@HOST:5432/DATABASE}", file)
	}
	db, err := server.OpenPostgres(c) //nolint:contextcheck // it connects later
	if err != nil {
		return err
	}
	defer db.Close()
	r := migrateReport{Database: db.Address()}
	if r.From, r.To, err = db.Migrate(ctx); err != nil {
		return fmt.Errorf("%w\ncheck that PostgreSQL is up and that the user in postgres.address may create tables; the command is "+
			"safe to repeat", err)
	}
	return p.finish(&r, nil)
}

func (r *migrateReport) text() string {
	if r.From == r.To {
		return fmt.Sprintf("%s: schema is up to date at version %d\n", r.Database, r.To)
	}
	return fmt.Sprintf("%s: schema migrated from version %d to %d\n", r.Database, r.From, r.To)
}
