package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/telemetry"
)

// The store is SQLite in the data directory, or a PostgreSQL that several nodes share. This file
// opens either for writing, and export.go for reading alone; no other file names a driver.

// databaseFile is the path of the SQLite database.
func databaseFile(s *nodeSettings) string { return filepath.Join(s.DataDir, "millrace.db") }

// openStore opens what the settings name and brings its schema up to date. observe is called with
// the name, the duration and the error of each statement, concurrently. The caller closes the
// store. An error has the code ExitUnable, but for a wrong log setting.
func openStore(ctx context.Context, p cli.Process, s *nodeSettings,
	observe func(string, time.Duration, error)) (store.Store, error) {
	if s.Store.Postgres() {
		log, err := telemetry.NewLogger(p.Stderr, s.Log.Format, s.Log.Level)
		if err != nil {
			return nil, cli.WithCode(cli.ExitUsage, err)
		}
		opened, err := postgres.Open(ctx,
			postgres.Config{URL: s.Store.Reveal(), Conns: s.Postgres.MaxConnections,
				Observe: observe, Log: log})
		if err != nil {
			return nil, storeError(s, err)
		}
		return opened, nil
	}
	opened, err := sqlite.Open(ctx, sqlite.Config{Path: databaseFile(s), Now: p.Now,
		Observe: observe})
	if err != nil {
		return nil, storeError(s, err)
	}
	return opened, nil
}

// checkLocalStore refuses a start on PostgreSQL in a data directory whose SQLite database has jobs:
// no worker would ever claim them. The setting ignore_local_store switches the check off. It
// changes nothing, and a directory without a database passes.
func checkLocalStore(ctx context.Context, s *nodeSettings) error {
	if !s.Store.Postgres() || s.IgnoreLocalStore {
		return nil
	}
	const hint = "start with store=sqlite to go on with them, or with " +
		"--set ignore_local_store=true to leave them there"
	jobs, others, err := sqlite.CountJobs(ctx, databaseFile(s), s.ContractNames()...)
	switch {
	case err != nil:
		return cli.UnableError("data_dir: %q holds a SQLite database that cannot be read (%v); "+
			"start with --set ignore_local_store=true to leave it there", s.DataDir, err)
	case jobs == 1:
		return cli.UnableError("data_dir: %q holds a SQLite database with 1 job, "+
			"which is not in %s: %s", s.DataDir, s.Store, hint)
	case jobs > 1:
		return cli.UnableError("data_dir: %q holds a SQLite database with %d jobs, "+
			"which are not in %s: %s", s.DataDir, jobs, s.Store, hint)
	case others > 0:
		return cli.UnableError("data_dir: %q holds a SQLite database with work "+
			"that is not in %s: %s", s.DataDir, s.Store, hint)
	}
	return nil
}

// schemaVersion reports the schema of the configured store and the newest that this binary knows.
// It makes no database where there is none, which has version 0.
func schemaVersion(ctx context.Context, s *nodeSettings) (have, want int64, err error) {
	if s.Store.Postgres() {
		have, want, err = postgres.SchemaVersion(ctx, s.Store.Reveal())
		return have, want, storeError(s, err)
	}
	path := databaseFile(s)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = sqlite.Memory
	}
	have, want, err = sqlite.SchemaVersion(ctx, path)
	return have, want, storeError(s, err)
}

// storeError says in one sentence that the store cannot be opened, and why; nil stays nil. It shows
// the URL of a PostgreSQL without its password.
func storeError(s *nodeSettings, err error) error {
	if err == nil {
		return nil
	}
	where := "the store in " + s.DataDir
	if s.Store.Postgres() {
		where = "the store " + s.Store.String() + " (setting store)"
	}
	return cli.UnableError("%s cannot be opened: %s", where, plainError(err))
}

// plainError is the text of an error without the operation that failed, and with the cause in
// brackets.
func plainError(err error) string {
	var e *job.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := cmp.Or(e.Msg, e.Kind.String())
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}
