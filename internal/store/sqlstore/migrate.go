package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/millrace/millrace/internal/job"
)

// Migrate brings the schema to the newest of the numbered files in dir. Each
// file runs in a transaction together with the note that it ran, so a process
// killed half-way leaves either. A schema newer than the files is refused.
func Migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fs.FS, options ...goose.ProviderOption) error {
	p, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if have > want {
		return &job.Error{Kind: job.ReadOnly, Op: "store.migrate",
			Msg: fmt.Sprintf("the database has schema %d, this version of Millrace knows up to %d: run the newer version", have, want)}
	}
	if have == want {
		return nil
	}
	if _, err = p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// SchemaVersion reports the schema the database has and the newest known.
func SchemaVersion(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fs.FS) (have, want int64, err error) {
	p, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		return 0, 0, err
	}
	return p.GetVersions(ctx)
}

// CheckSchema fails with ReadOnly unless the database has the newest schema known, for who must not change it.
func CheckSchema(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fs.FS) error {
	have, want, err := SchemaVersion(ctx, dialect, db, files)
	if err == nil && have != want {
		err = &job.Error{Kind: job.ReadOnly, Op: "store.open",
			Msg: fmt.Sprintf("the database has schema %d and this version of Millrace reads %d", have, want)}
	}
	return err
}
