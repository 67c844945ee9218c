package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest"
)

const (
	endless = "INSERT INTO half WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) " +
		"SELECT i FROM n;\n"
	failing = "INSERT INTO nowhere VALUES (1);\n"
	good    = "CREATE TABLE other (n INTEGER);\n"
)

// migrateNext brings a database to the schema after the newest, whose last statement is given.
func migrateNext(ctx context.Context, db *sql.DB, last string) error {
	files := fstest.MapFS{"09999_next.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE half (n INTEGER);\nINSERT INTO half VALUES (1);\n" + last)}}
	known, err := fs.Glob(sqlite.Schema.Files, "*.sql")
	for _, name := range known {
		var data []byte
		data, err = fs.ReadFile(sqlite.Schema.Files, name)
		files[name] = &fstest.MapFile{Data: data}
	}
	if err != nil {
		return err
	}
	next := sqlite.Schema
	next.Files = files
	return next.Migrate(ctx, db)
}

// mustBeWhole opens the database with the schema of this binary and looks for what a migration that
// did not end left behind.
func mustBeWhole(t *testing.T, path string) {
	t.Helper()
	s := mustOpen(t, sqlite.Config{Path: path})
	mustInsert(t, s, time.Now().String())
	if err := s.View(t.Context(), func(r store.Reader) error {
		_, err := r.Exists(job.ID{})
		return err
	}); err != nil {
		t.Error(err)
	}
	s.Close()
	check(t, path)
	var half int
	if err := rawDB(t,
		path).QueryRow("SELECT count(*) FROM sqlite_schema WHERE name='half'").Scan(
		&half); err != nil || half != 0 {
		t.Errorf("half: %d, %v", half, err)
	}
}

// integrity has SQLite look at every page.
func integrity(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	var found string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&found); err != nil || found != "ok" {
		return fmt.Errorf("integrity: %s, %v", found, err)
	}
	return nil
}

// check fails a test whose database is damaged.
func check(tb testing.TB, path string) {
	tb.Helper()
	if err := integrity(path); err != nil {
		tb.Error(err)
	}
}

func TestMigrationThatFailsMidway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	s := mustOpen(t, sqlite.Config{Path: path})
	mustInsert(t, s, "kept")
	s.Close()
	db := rawDB(t, path)
	if err := migrateNext(t.Context(), db, failing); err == nil {
		t.Error("no error")
	}
	mustBeWhole(t, path)
	if err := migrateNext(t.Context(), db, good); err != nil {
		t.Error(err)
	}
	if _, err := sqlite.Open(t.Context(),
		sqlite.Config{Path: path, Now: time.Now}); !job.IsKind(err, job.ReadOnly) {
		t.Errorf("the old binary after the new: %v", err)
	}
}

func childMigrate(path string) error {
	return migrateNext(context.Background(), rawDB(nil, path), endless)
}

func TestMigrationKilledMidway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	s := mustOpen(t, sqlite.Config{Path: path})
	mustInsert(t, s, "kept")
	s.Close()
	c := child("migrate", path)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// The migration writes for ever: once its log has grown it is in the middle.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if st, err := os.Stat(path + "-wal"); err == nil && st.Size() > 1<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Error("the migration does not begin")
			break
		}
	}
	c.Process.Kill()
	c.Wait()
	mustBeWhole(t, path)
}

// The first start is killed at some moment of its making the database.
func TestFirstStartKilled(t *testing.T) {
	t.Parallel()
	started := time.Now()
	if out, err := child("open", filepath.Join(t.TempDir(),
		"millrace.db")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	whole := time.Since(started)
	const kills = 6
	for i := range kills {
		path := filepath.Join(t.TempDir(), "data", "millrace.db")
		c := child("hang on", path)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(whole/4 + time.Duration(i)*whole/kills + rand.N(whole/kills))
		c.Process.Kill()
		c.Wait()
		mustBeWhole(t, path)
	}
}

func TestMigrationsKeepJobs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	storetest.RunMigrations(t, storetest.OldSchema{
		Schema: sqlite.Schema,
		DB:     rawDB(t, path),
		Open:   func() store.Store { return mustOpen(t, sqlite.Config{Path: path}) },
	})
}

func TestLayoutKeepsJobs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	storetest.RunLayout(t, storetest.OldSchema{
		Schema: sqlite.Schema,
		DB:     rawDB(t, path),
		Open:   func() store.Store { return mustOpen(t, sqlite.Config{Path: path}) },
	})
}
