package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
)

// Backup writes a copy of a database file to a new file, with access for its owner alone. The copy
// has all that was committed when Backup began, and is whole whatever a server does meanwhile: it
// is read in one view, for as long as which the log of the database cannot begin again. Backup
// returns when the copy is on the disk.
func Backup(ctx context.Context, path, to string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return &job.Error{Kind: job.NotFound, Op: "store.backup",
			Msg: "there is no database " + path}
	}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// The pragma query_only would refuse to write the new file too.
	db, err := sql.Open("sqlite", dsn(path, "mmap_size(0)")+"&mode=ro")
	if err != nil {
		return translate("store.backup", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "VACUUM INTO $1", to); err != nil {
		return translate("store.backup", err)
	}
	return errors.Join(f.Sync(), disk.Sync(filepath.Dir(to)))
}

// PrepareRestored checks every page of a database file that was a backup, brings its schema up to
// date, and removes rows about processes that ran when it was made: the terms of leaders, and
// the records of a kind, by which nodes say that they run. A file that is damaged or has a newer
// schema is ReadOnly.
func PrepareRestored(ctx context.Context, path, nodeKind string) error {
	db, err := sql.Open("sqlite", dsn(path, "mmap_size(0)", "synchronous(FULL)"))
	if err != nil {
		return translate("store.restore", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&found); err != nil {
		return translate("store.restore", err)
	}
	if found != "ok" {
		return &job.Error{Kind: job.ReadOnly, Op: "store.restore",
			Msg: fmt.Sprintf("the database file is damaged: %s", found)}
	}
	if err := prepareSchema(ctx, db); err != nil {
		return translate("store.restore", err)
	}
	if _, err := db.ExecContext(ctx, "DELETE FROM leaders"); err != nil {
		return translate("store.restore", err)
	}
	_, err = db.ExecContext(ctx, "DELETE FROM records WHERE kind=$1", nodeKind)
	return translate("store.restore", err)
}
