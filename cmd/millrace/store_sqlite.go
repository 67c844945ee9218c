package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store/move"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// sqliteDatabase is a file in the data directory, which one server has open at a time: it holds a
// lock until it has ended. Commands that only read need no lock.
var sqliteDatabase = database{
	kind:  "sqlite",
	named: setting.StoreWord("sqlite"),
	open: func(ctx context.Context, p cli.Process, s *nodeSettings, o observer) (openedStore,
		error) {
		opened, err := sqlite.Open(ctx, sqlite.Config{Path: databaseFile(s), Now: p.Now,
			Observe: o})
		if err != nil {
			return openedStore{}, err
		}
		return openedStore{Store: opened, version: versionOf(opened.Version)}, nil
	},
	openViews: func(ctx context.Context, p cli.Process, s *nodeSettings) (views, error) {
		return sqlite.OpenViews(ctx, sqlite.Config{Path: databaseFile(s), Now: p.Now})
	},
	schemaVersion: func(ctx context.Context, s *nodeSettings) (have, want int64, err error) {
		path := databaseFile(s)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			path = sqlite.Memory
		}
		return sqlite.SchemaVersion(ctx, path)
	},
	location: func(s *nodeSettings) string { return "in " + s.DataDir },
	endpoint: func(s *nodeSettings) outage.Endpoint {
		return outage.Endpoint{Setting: "data_dir", Address: databaseFile(s)}
	},
	place: func(text string) (string, bool) {
		dir, isNamed := strings.CutPrefix(text, "sqlite:")
		return dir, isNamed && dir != ""
	},
	placeForm: "sqlite:DIR",
	placeOf:   func(s *nodeSettings) string { return "sqlite:" + s.DataDir },
	openMove: func(ctx context.Context, at, name string, isTarget bool) (*move.Database, error) {
		return sqlite.OpenMove(ctx, filepath.Join(at, databaseName), name, isTarget)
	},
	backup: func(ctx context.Context, s *nodeSettings, to string) error {
		return sqlite.Backup(ctx, databaseFile(s), filepath.Join(to, databaseName))
	},
	prepareRestored: func(ctx context.Context, dir string) error {
		return sqlite.PrepareRestored(ctx, filepath.Join(dir, databaseName), nodes.RecordKind)
	},
}

// databaseName is the name of the SQLite database in the data directory.
const databaseName = "millrace.db"

// databaseFile is the path of the SQLite database.
func databaseFile(s *nodeSettings) string { return filepath.Join(s.DataDir, databaseName) }

// checkLocalStore refuses a start on a shared database in a data directory whose SQLite database
// has jobs: no worker would ever claim them. The setting ignore_local_store switches the check off.
// It changes nothing, and a directory without a database passes.
func checkLocalStore(ctx context.Context, s *nodeSettings) error {
	if !databaseOf(s).shared || s.IgnoreLocalStore {
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
