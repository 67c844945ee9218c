package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// databaseFile is where SQLite keeps the jobs.
func databaseFile(s *config.Settings) string { return filepath.Join(s.DataDir, "millrace.db") }

// openStore opens what the settings name and brings its schema up to date.
func openStore(ctx context.Context, p process, s *config.Settings, observe func(string, time.Duration, error)) (store.Store, error) {
	if s.Store.Postgres() {
		opened, err := postgres.Open(ctx, postgres.Config{URL: s.Store.Reveal(), Observe: observe})
		if err != nil {
			return nil, storeError(s, err)
		}
		return opened, nil
	}
	opened, err := sqlite.Open(ctx, sqlite.Config{Path: databaseFile(s), Now: p.now, Observe: observe})
	if err != nil {
		return nil, storeError(s, err)
	}
	return opened, nil
}

// schemaVersion reports the schema of the configured store and the newest that this binary knows. It makes no database
// where there is none.
func schemaVersion(ctx context.Context, s *config.Settings) (have, want int64, err error) {
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

// storeError is one sentence about a store that cannot be opened.
func storeError(s *config.Settings, err error) error {
	if err == nil {
		return nil
	}
	where := "the store in " + s.DataDir
	if s.Store.Postgres() {
		where = "the store " + s.Store.String()
	}
	var e *job.Error
	if !errors.As(err, &e) {
		return unable("%s cannot be opened: %v", where, err)
	}
	text := e.Msg
	if text == "" {
		text = e.Kind.String()
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return unable("%s cannot be opened: %s", where, text)
}
