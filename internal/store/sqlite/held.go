package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

// IsLocked counts the jobs of some contracts in a database file, dead letters among them, and
// beside them what others have there, whatever schema it has. It changes nothing, and a file that
// is not there holds none.
func IsLocked(ctx context.Context, path string, contracts ...string) (jobs, others int64,
	err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	names, err := json.Marshal(contracts)
	if err != nil {
		return 0, 0, err
	}
	name := readerDSN(Config{Path: path, viewsOnly: true})
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		// nobody has it open: without this SQLite would make the files of a log
		name += "&immutable=1"
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return 0, 0, translate("store.held", err)
	}
	defer db.Close()
	for _, table := range []string{"jobs", "dead_letters"} {
		var is bool
		var n, all int64
		const count = "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name=$1"
		if err := db.QueryRowContext(ctx, count, table).Scan(&is); err != nil {
			return 0, 0, translate("store.held", err)
		}
		if !is {
			continue
		}
		const counted = "SELECT count(*) FILTER (WHERE contract IN (SELECT value FROM " +
			"json_each($1))), count(*) FROM "
		if err := db.QueryRowContext(ctx, counted+table, string(names)).Scan(&n, &all); err != nil {
			return 0, 0, translate("store.held", err)
		}
		jobs, others = jobs+n, others+all-n
	}
	return jobs, others, nil
}
