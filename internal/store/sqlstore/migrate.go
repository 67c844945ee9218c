package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/millrace/millrace/internal/job"
)

// Schema is the schema of one kind of database.
type Schema struct {
	Dialect goose.Dialect
	Files   fs.FS // the numbered migrations
	// HasVersions counts the tables of versions that a database has, 0 or 1: goose would create
	// the table when asked for the version.
	HasVersions string
	// Options are for the migration tool.
	Options []goose.ProviderOption
	// Before is a statement that each migration begins with; empty is none.
	Before string
	// Cause finds the database's own error in one that the migration tool has wrapped; nil when
	// there is none.
	Cause func(error) error
}

// Migrate brings the schema to the newest of the numbered files. Each file runs in one transaction
// with the record that it ran, so a process that is killed leaves a file done or not started. A
// schema newer than the files is refused.
func (s *Schema) Migrate(ctx context.Context, db *sql.DB, options ...goose.ProviderOption) error {
	p, err := s.provider(db, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	have, want, err := s.versions(ctx, p, db)
	if err != nil {
		return err
	}
	if have > want {
		return &job.Error{Kind: job.ReadOnly, Op: "store.migrate",
			Msg: fmt.Sprintf("the database has schema %d, this version of Millrace knows up to "+
				"%d: run the newer version", have, want)}
	}
	if have == want {
		return nil
	}
	_, err = p.Up(ctx)
	return s.unwrap(err)
}

// provider makes the migration tool of a database. It is given functions that send a file whole, as
// both drivers take several statements at a time: the tool's own reader of SQL has buffers of 4 MiB
// for the statements of a file.
func (s *Schema) provider(db *sql.DB, options ...goose.ProviderOption) (*goose.Provider, error) {
	names, err := fs.Glob(s.Files, "*.sql")
	if err != nil {
		return nil, err
	}
	var migrations []*goose.Migration
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(s.Files, name)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		migrations = append(migrations, goose.NewGoMigration(version, &goose.GoFunc{
			RunTx: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, s.Before+up)
				return err
			}}, nil))
	}
	return goose.NewProvider(s.Dialect, db, nil, slices.Concat(s.Options, options,
		[]goose.ProviderOption{goose.WithDisableGlobalRegistry(true),
			goose.WithGoMigrations(migrations...)})...)
}

// unwrap reduces an error of the migration tool to the number of the file and the error of the
// database.
func (s *Schema) unwrap(err error) error {
	var one *goose.PartialError
	if errors.As(err, &one) {
		return fmt.Errorf("migration %d: %w", one.Failed.Source.Version, s.unwrap(one.Err))
	}
	if cause := s.Cause(err); cause != nil {
		return cause
	}
	return err
}

func (s *Schema) versions(ctx context.Context, p *goose.Provider, db *sql.DB) (have, want int64,
	err error) {
	var tables int
	if err := db.QueryRowContext(ctx, s.HasVersions).Scan(&tables); err != nil {
		return 0, 0, err
	}
	if tables == 0 {
		sources := p.ListSources()
		return 0, sources[len(sources)-1].Version, nil
	}
	have, want, err = p.GetVersions(ctx)
	return have, want, s.unwrap(err)
}

// MigrationFiles returns the numbered migrations that a database has embedded in its directory
// "migrations".
func MigrationFiles(embedded embed.FS) fs.FS {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // the directory is embedded in the binary
	}
	return files
}

// Version returns the version of the database's schema and the newest known version. It changes
// nothing.
func (s *Schema) Version(ctx context.Context, db *sql.DB) (have, want int64, err error) {
	p, err := s.provider(db)
	if err != nil {
		return 0, 0, err
	}
	return s.versions(ctx, p, db)
}

// Check fails with ReadOnly unless the database has the newest schema known. It serves callers that
// must not change the database.
func (s *Schema) Check(ctx context.Context, db *sql.DB) error {
	have, want, err := s.Version(ctx, db)
	if err != nil {
		return err
	}
	if have != want {
		return &job.Error{Kind: job.ReadOnly, Op: "store.open",
			Msg: fmt.Sprintf("the database has schema %d and this version of Millrace reads %d",
				have, want)}
	}
	return nil
}
