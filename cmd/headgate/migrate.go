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
	// From and To are the version of the tables before and after; 0 is none.
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func newMigrate(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "migrate --config FILE",
		Short: "Make the tables in PostgreSQL, or bring them up to this version",
		Long: `Make the tables in the PostgreSQL that postgres.address of the config names, or bring them up to what this version
needs. Run it before the servers of a new version are started; those of the version before go on meanwhile. It may be run
again and at the same time from elsewhere.

Exit code: 0 the tables are up to date; 1 there are problems in the config; 2 they could not be made so.`,
		Example: "  headgate migrate --config /etc/headgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage(cmd, errors.New("say where the config of the servers is: --config FILE"))
			}
			return p.migrate(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "`FILE` with the config of a server")
	return cmd
}

func (p *program) migrate(ctx context.Context, file string) error {
	c, err := p.loadConfig(file)
	switch {
	case err != nil:
		return err
	case c.Postgres.Address == "":
		return fmt.Errorf("%s has no postgres.address: rules in files need no tables; to have them in PostgreSQL write "+
			"postgres: {address: postgres://USER@HOST:5432/DATABASE} in the place of rules", file)
	}
	db, err := server.OpenPostgres(c) //nolint:contextcheck // it does not connect yet
	if err != nil {
		return err
	}
	defer db.Close()
	r := migrateReport{Database: db.Address()}
	if r.From, r.To, err = db.Migrate(ctx); err != nil {
		return fmt.Errorf("%w\nis PostgreSQL up, and may the user in postgres.address make tables there? It can be run again at "+
			"any time", err)
	}
	return p.end(&r, nil)
}

func (r *migrateReport) text() string {
	if r.From == r.To {
		return fmt.Sprintf("%s has version %d of the tables already\n", r.Database, r.To)
	}
	return fmt.Sprintf("%s: tables brought from version %d to %d\n", r.Database, r.From, r.To)
}
