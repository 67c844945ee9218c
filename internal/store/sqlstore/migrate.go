package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/millrace/millrace/internal/job"
)

// Migrate brings the schema to the newest of the numbered files. Each file runs in one
// transaction with the record that it ran, so a process that is killed leaves a file done or
// not started. A schema newer than the files is refused.
func Migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fs.FS,
	options ...goose.ProviderOption) error {
	p, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	have, want, err := versions(ctx, p, dialect, db)
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
	return unwrapMigration(err)
}

// unwrapMigration reduces an error of the migration tool to the number of the file and the
// error of the database.
func unwrapMigration(err error) error {
	var one *goose.PartialError
	if errors.As(err, &one) {
		return fmt.Errorf("migration %d: %w", one.Failed.Source.Version, unwrapMigration(one.Err))
	}
	var postgres interface {
		error
		SQLState() string
	}
	var sqlite interface {
		error
		Code() int
	}
	switch {
	case errors.As(err, &postgres):
		return postgres
	case errors.As(err, &sqlite):
		return sqlite
	}
	return err
}

// hasVersions finds out whether a database has the table of versions. goose would create it
// when asked for the version.
var hasVersions = map[goose.Dialect]string{
	goose.DialectPostgres: "SELECT count(*) FROM pg_tables WHERE schemaname=current_schema() " +
		"AND tablename='goose_db_version'",
	goose.DialectSQLite3: "SELECT count(*) FROM sqlite_master WHERE name='goose_db_version'",
}

func versions(ctx context.Context, p *goose.Provider, dialect goose.Dialect, db *sql.DB) (
	have, want int64, err error) {
	var tables int
	if err := db.QueryRowContext(ctx, hasVersions[dialect]).Scan(&tables); err != nil {
		return 0, 0, err
	}
	if tables == 0 {
		sources := p.ListSources()
		return 0, sources[len(sources)-1].Version, nil
	}
	have, want, err = p.GetVersions(ctx)
	return have, want, unwrapMigration(err)
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

// SchemaVersion returns the version of the database's schema and the newest known version. It
// changes nothing.
func SchemaVersion(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fs.FS) (have,
	want int64, err error) {
	p, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		return 0, 0, err
	}
	return versions(ctx, p, dialect, db)
}

// CheckSchema fails with ReadOnly unless the database has the newest schema known. It serves
// callers that must not change the database.
func CheckSchema(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fs.FS) error {
	have, want, err := SchemaVersion(ctx, dialect, db, files)
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
