package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
)

// Held counts the jobs in a database file, dead letters among them, whatever schema it has. It changes nothing, and a file
// that is not there holds none.
func Held(ctx context.Context, path string) (jobs int64, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	name := readerDSN(Config{Path: path, viewsOnly: true})
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		name += "&immutable=1" // nobody has it open: without this SQLite would make the files of a log
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return 0, translate("store.held", err)
	}
	defer db.Close()
	for _, table := range []string{"jobs", "dead_letters"} {
		var is bool
		var n int64
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name=$1", table).Scan(&is); err != nil {
			return 0, translate("store.held", err)
		}
		if !is {
			continue
		}
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			return 0, translate("store.held", err)
		}
		jobs += n
	}
	return jobs, nil
}
