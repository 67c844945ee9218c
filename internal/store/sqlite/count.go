package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/millrace/millrace/internal/store/move"
)

// CountJobs returns how many jobs and dead letters a database file has of the given job types and
// of all others. It works with every version of the schema and changes nothing. A file that does
// not exist has none, nor has one whose jobs were moved. A start on PostgreSQL calls it, to refuse
// a data directory whose jobs no worker would claim.
func CountJobs(ctx context.Context, path string, jobTypes ...string) (jobs, others int64,
	err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	names, err := json.Marshal(jobTypes)
	if err != nil {
		return 0, 0, err
	}
	name := readerDSN(Config{Path: path, viewsOnly: true})
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		// No process has the file open. Without this, SQLite would create the files of a log.
		name += "&immutable=1"
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return 0, 0, translate("store.count", err)
	}
	defer db.Close()
	if moved, err := hasMoved(ctx, db); err != nil || moved {
		return 0, 0, translate("store.count", err)
	}
	for _, table := range []string{"jobs", "dead_letters"} {
		own, all, err := countRows(ctx, db, table, string(names))
		if err != nil {
			return 0, 0, translate("store.count", err)
		}
		jobs, others = jobs+own, others+all-own
	}
	return jobs, others, nil
}

// hasMoved reports whether the jobs of a database, of any version of the schema, were moved.
func hasMoved(ctx context.Context, db *sql.DB) (bool, error) {
	const hasRecords = "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name='records'"
	var exists bool
	if err := db.QueryRowContext(ctx, hasRecords).Scan(&exists); err != nil || !exists {
		return false, err
	}
	return move.HasMoved(ctx, db)
}

// countRows counts the rows of a table, 0 if the table does not exist, and among them those of
// the job types in a JSON array.
func countRows(ctx context.Context, db *sql.DB, table, jobTypes string) (own, all int64,
	err error) {
	const tables = "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name=$1"
	var exists bool
	if err := db.QueryRowContext(ctx, tables, table).Scan(&exists); err != nil || !exists {
		return 0, 0, err
	}
	const rows = "SELECT count(*) FILTER (WHERE contract IN (SELECT value FROM " +
		"json_each($1))), count(*) FROM "
	err = db.QueryRowContext(ctx, rows+table, jobTypes).Scan(&own, &all)
	return own, all, err
}
