package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// A server migrates its store when it opens it. The command does the same beforehand, for operators
// who want to see a migration succeed before they start servers of a new version.

// migrateCommand is `millrace migrate`. It is idempotent: a store that is up to date is left as it
// is.
func migrateCommand(p cli.Process) *cobra.Command {
	var flags settingsFlags
	var moves moveFlags
	var status bool
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema of the store up to date, or move it to another database",
		Long: `Bring the schema of the configured store up to date and report its version before
and after. A server does the same when it starts; this command does it beforehand.
With --status nothing is changed: exit code 0 when the schema is up to date, 1
when it is not.

With --from and --to it moves a store from SQLite to PostgreSQL or back: jobs of all
contracts, their events and dependencies, dead letters, schedules, clients, keys and
webhooks, and what is not published yet. No server may run on either. A move that was
interrupted goes on where it was. At the end both sides are read and compared, by
counts and checksums; then servers start on the new store, and no more on the old one.`,
		Example: `  millrace migrate --from sqlite:millrace-data --to postgres://millrace@db.internal/millrace
  millrace migrate --from postgres://millrace@db.internal/millrace --to sqlite:new-data`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := flags.load(p, c)
			if err != nil {
				return err
			}
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			if moves.isMove() {
				return moves.run(ctx, p, s)
			}
			return migrate(ctx, p, s, status)
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&status, "status", false, "only show the versions")
	moves.register(c)
	return c
}

// migrate brings the schema of the store up to date and prints its versions. With status it only
// prints them, and returns an error where they differ; it then makes no store where there is none.
func migrate(ctx context.Context, p cli.Process, s *nodeSettings, status bool) error {
	have, want, err := schemaVersion(ctx, s)
	if err != nil {
		return err
	}
	if status {
		fmt.Fprintf(p.Stdout, "store %s: schema %d, this binary has %d\n", s.Store, have, want)
		return schemaError(have, want)
	}
	// Opening a store migrates it.
	opened, err := openStore(ctx, p, s, func(string, time.Duration, error) {})
	if err != nil {
		return err
	}
	if err := opened.Close(); err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	now, _, err := schemaVersion(ctx, s)
	if err != nil {
		return err
	}
	if now == have {
		fmt.Fprintf(p.Stdout, "store %s: schema %d, nothing to do\n", s.Store, now)
	} else {
		fmt.Fprintf(p.Stdout, "store %s: schema %d, was %d\n", s.Store, now, have)
	}
	return nil
}

// schemaError says what to do about a schema that is not the one of this binary; nil if it is.
func schemaError(have, want int64) error {
	switch {
	case have > want:
		return cli.FailedError("the schema is newer than this binary: run the newer version")
	case have < want:
		return cli.FailedError(
			"the schema is not up to date: run 'millrace migrate', or start a server")
	}
	return nil
}
