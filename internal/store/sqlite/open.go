package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/move"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is the schema of this database.
var schema = sqlstore.Schema{
	Dialect:     goose.DialectSQLite3,
	Files:       sqlstore.MigrationFiles(migrations),
	HasVersions: "SELECT count(*) FROM sqlite_master WHERE name='goose_db_version'",
	Cause: func(err error) error {
		if lite, found := errors.AsType[*sqlite.Error](err); found {
			return lite
		}
		return nil
	},
}

// Memory is the path of a database in memory that exists as long as the Store.
const Memory = ":memory:"

// minVersion is the version of SQLite that is needed: older ones may corrupt a database in WAL
// mode when a checkpoint meets a write.
var minVersion = [3]int{3, 51, 3}

// Config says what to open.
type Config struct {
	Path    string           // of the database file, or Memory
	Now     func() time.Time // the clock of leases and due times
	Readers int              // connections for reading; 0 means 4
	Observe sqlstore.Observer

	viewsOnly bool // see OpenViews

	// Tests set another driver of database/sql than SQLite's own, more pragmas, and how much of
	// jobs the writer keeps in memory; 0 means maxCachedBytes.
	driver      string
	pragmas     []string
	cachedBytes int64
}

// Open opens or creates the database and brings its schema up to date. Only one process may have a
// database open; a second one gets an error that says so.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Now == nil {
		return nil, errors.New("sqlite: Now is required")
	}
	if c.Readers == 0 {
		c.Readers = 4
	}
	c.Observe = c.Observe.WithKinds(translate)
	unlock, err := prepareFile(c.Path)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, c)
	if err != nil {
		unlock()
		return nil, translate("store.open", err)
	}
	s.unlock = unlock
	return s, nil
}

// prepareFile makes the directory and the file of a database where they are missing, and takes the
// lock that keeps other processes out. A database in memory needs neither.
func prepareFile(path string) (unlock func(), err error) {
	if path == Memory {
		return func() {}, nil
	}
	if err := createDir(filepath.Dir(path)); err != nil {
		return nil, &job.Error{Kind: job.ReadOnly, Op: "store.open",
			Msg: "the data directory cannot be made", Err: err}
	}
	if unlock, err = disk.Lock(path + ".lock"); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// createFile creates the database file with access for its owner alone. SQLite gives the log the
// same mode.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return &job.Error{Kind: job.ReadOnly, Op: "store.open",
			Msg: "the database file cannot be written", Err: err}
	}
	return f.Close()
}

// open opens the writer, which migrates the schema, and starts its goroutine. Readers are opened
// when they are needed.
func open(ctx context.Context, c Config) (*Store, error) {
	writer, err := openWriter(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Store{config: c, requests: make(chan *request, 1024), stop: make(chan struct{}),
		stopped: make(chan struct{})}
	if c.Path != Memory {
		s.readers = make(chan *session, c.Readers)
		for range c.Readers {
			s.readers <- nil // opened when it is first needed
		}
	}
	go s.write(writer)
	return s, nil
}

// openWriter opens the one writing connection, unless the jobs of the database were moved.
func openWriter(ctx context.Context, c Config) (*session, error) {
	db, err := openWritable(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := move.CheckOpen(ctx, db); err != nil {
		db.Close()
		return nil, err
	}
	s, err := newSession(ctx, db, c)
	if err != nil {
		return nil, err
	}
	s.cache = newJobCache(cmp.Or(c.cachedBytes, maxCachedBytes))
	return s, nil
}

// openWritable opens the file for one writing connection, and brings its schema up to date. Its
// pragmas: every commit is synced (FULL), as success is answered after it; the page cache has 8
// MiB, and a transaction writes pages into the log before its commit only when it has changed 32
// MiB (decision 0125); the log is written into the database file every 8000 pages, and its file is
// cut to 64 MiB when it begins again. Files are not mapped into memory, where a read error would be
// a signal instead of an error. A new file has pages of 2 KiB: a commit writes whole pages, and a
// job changes few bytes of each (decision 0048). The driver runs pragmas by name, so the mode of
// the journal, which fixes the size, is an option of its own, which comes last.
func openWritable(ctx context.Context, c Config) (*sql.DB, error) {
	db, err := c.db(dsn(c.Path, "page_size(2048)", "synchronous(FULL)", "cache_size(-8192)",
		"cache_spill(16384)", "wal_autocheckpoint(8000)", "journal_size_limit(67108864)",
		"mmap_size(0)", "temp_store(MEMORY)") + "&_journal_mode=WAL")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	db.SetConnMaxLifetime(0)
	if err := prepareSchema(ctx, db); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// maxCachedBytes limits the jobs that the writer keeps in memory.
const maxCachedBytes = 16 << 20

// prepareSchema refuses a version of SQLite that is too old and brings the schema up to date.
func prepareSchema(ctx context.Context, db *sql.DB) error {
	if err := checkVersion(ctx, db); err != nil {
		return err
	}
	return schema.Migrate(ctx, db)
}

// reopenWriter opens a writing connection after the log was lost or damaged. It succeeds only if
// all that the log has was written into the database file and synced, so that new commits begin a
// new log. It has no ctx: it serves all callers, not the one whose request has caused it.
func reopenWriter(c Config) (*session, error) {
	w, err := openWriter(context.Background(), c)
	if err != nil {
		return nil, err
	}
	if err := w.truncateLog(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// truncateLog writes all that the log has into the database file. A view that still needs the
// log makes it busy, which is Unavailable.
func (s *session) truncateLog() error {
	const checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
	var busy, logged, written int
	err := s.conn.QueryRowContext(s.ctx, checkpoint).Scan(&busy, &logged, &written)
	if err != nil {
		return err
	}
	if busy != 0 {
		return &job.Error{Kind: job.Unavailable, Op: "store.reopen",
			Msg: "the store is busy after a disk error"}
	}
	return nil
}

// openReader opens one reading connection. It can write nothing (query_only), and sees each
// group once it is committed.
func openReader(ctx context.Context, c Config) (*session, error) {
	db, err := c.db(readerDSN(c))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return newSession(ctx, db, c)
}

// db opens a database by its data source name.
func (c *Config) db(name string) (*sql.DB, error) {
	for _, p := range c.pragmas {
		name += "&_pragma=" + url.QueryEscape(p)
	}
	return sql.Open(cmp.Or(c.driver, "sqlite"), name)
}

// readerDSN returns the data source name of a reading connection. For views alone the file is
// opened read-only too: the last connection to close would otherwise write what the log has into
// it.
func readerDSN(c Config) string {
	name := dsn(c.Path, "query_only(1)", "cache_size(-4096)", "mmap_size(0)", "temp_store(MEMORY)")
	if c.viewsOnly {
		name += "&mode=ro"
	}
	return name
}

// createDir creates a directory and its parents so that they survive a loss of power: SQLite
// syncs the files and the directory that has them, but not the directories above.
func createDir(dir string) error {
	_, err := os.Stat(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := createDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return disk.Sync(parent)
}

// SchemaVersion returns the version of a database file's schema and the newest known version.
func SchemaVersion(ctx context.Context, path string) (have, want int64, err error) {
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	have, want, err = schema.Version(ctx, db)
	return have, want, translate("store.schema", err)
}

// dsn returns the data source name of a file, or of a database in memory, with pragmas that each
// connection sets. Every connection waits up to five seconds for the lock of another process.
func dsn(path string, pragmas ...string) string {
	q := url.Values{}
	for _, p := range append([]string{"busy_timeout(5000)"}, pragmas...) {
		q.Add("_pragma", p)
	}
	if path == Memory {
		return "file::memory:?" + q.Encode()
	}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	return u.String()
}

// checkVersion fails with ReadOnly if SQLite is older than minVersion.
func checkVersion(ctx context.Context, db *sql.DB) error {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&text); err != nil {
		return err
	}
	have := [3]int{}
	for i, part := range strings.SplitN(text, ".", 3) {
		have[i], _ = strconv.Atoi(part)
	}
	if slices.Compare(have[:], minVersion[:]) >= 0 {
		return nil
	}
	return &job.Error{Kind: job.ReadOnly, Op: "store.open",
		Msg: fmt.Sprintf("SQLite %s can corrupt a database in WAL mode; %d.%d.%d or newer is "+
			"needed", text, minVersion[0], minVersion[1], minVersion[2])}
}
