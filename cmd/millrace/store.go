package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
)

// database is a kind of database that a node can store its jobs in. A further kind is a package
// beside those of internal/store, a value like sqliteDatabase and postgresDatabase, and a line in
// databaseOf; nothing else asks which kind it is. Errors of its functions do not say where the
// database is.
type database struct {
	kind string // as operators see it
	// shared is true for a database that several nodes may share. Another one lies in the data
	// directory and belongs to the node that runs there.
	shared    bool
	open      func(context.Context, cli.Process, *nodeSettings, observer) (store.Store, error)
	openViews func(context.Context, cli.Process, *nodeSettings) (views, error)
	// schemaVersion returns version 0 where there is no database yet.
	schemaVersion func(context.Context, *nodeSettings) (have, want int64, err error)
	place         func(*nodeSettings) string // where it is, for people, without a password
	endpoint      func(*nodeSettings) outage.Endpoint
}

// observer is called with the name, the duration and the error of each statement, concurrently.
type observer = func(string, time.Duration, error)

// views is a store that was opened for reading alone.
type views interface {
	View(context.Context, func(store.Reader) error) error
	Close() error
}

// databaseOf returns the kind of database that the settings name.
func databaseOf(s *nodeSettings) *database {
	if s.Store.Postgres() {
		return &postgresDatabase
	}
	return &sqliteDatabase
}

// openStore opens what the settings name and brings its schema up to date. The caller closes the
// store. An error has the code ExitUnable, but for a wrong log setting.
func openStore(ctx context.Context, p cli.Process, s *nodeSettings, o observer) (store.Store,
	error) {
	opened, err := databaseOf(s).open(ctx, p, s, o)
	if err != nil {
		return nil, storeError(s, err)
	}
	return opened, nil
}

// openViews opens the store that the settings name for reading alone; the caller closes it. A store
// with another version of the schema is an error: it is not migrated.
func openViews(ctx context.Context, p cli.Process, s *nodeSettings) (views, error) {
	opened, err := databaseOf(s).openViews(ctx, p, s)
	if err != nil {
		return nil, storeError(s, err)
	}
	return opened, nil
}

// schemaVersion reports the schema of the configured store and the newest that this binary knows.
// It makes no database where there is none, which has version 0.
func schemaVersion(ctx context.Context, s *nodeSettings) (have, want int64, err error) {
	have, want, err = databaseOf(s).schemaVersion(ctx, s)
	return have, want, storeError(s, err)
}

// storeError says in one sentence that the store cannot be opened, and why; nil stays nil. It shows
// the URL of a PostgreSQL without its password.
func storeError(s *nodeSettings, err error) error {
	var coded *cli.ExitError
	if (err == nil) || errors.As(err, &coded) {
		return err
	}
	return cli.UnableError("the store %s cannot be opened: %s", databaseOf(s).place(s),
		plainError(err))
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
