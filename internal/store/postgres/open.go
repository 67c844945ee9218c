// Package postgres opens the storage port on PostgreSQL: a pool of connections,
// row locks that pass over each other, arrays for bulk work, a deadline on every
// statement, and wake-ups between nodes by LISTEN and NOTIFY.
package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config says what to open.
type Config struct {
	URL     string
	Now     func() time.Time // only for tests; nil is the database's clock
	Conns   int              // of the pool; 0 means 16
	Observe sqlstore.Observer
}

// limits are set on every connection unless the URL sets them: no statement, no
// wait for a lock and no idle transaction of ours is without an end.
var limits = map[string]string{
	"application_name":                    "millrace",
	"statement_timeout":                   "30s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "10s", // a node that stands still must not hold a limit for longer than a lease
}

// planning is set like limits. Every statement of ours finds its rows by index.
// Statistics of a table that was empty a minute ago, or of a queue that was
// flooded since, must not talk the planner into reading all of it; and as there
// is one good plan for all values, it is made once.
var planning = map[string]string{
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"plan_cache_mode":   "force_generic_plan",
	"jit":               "off",
}

// slotBases bounds the counters of one queue to slotBases × connections.
const slotBases = 8

// Open connects and brings the schema up to date; nodes that start together
// wait for each other there.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Conns == 0 {
		c.Conns = 16
	}
	c.Observe = c.Observe.Translated(translate)
	s, err := open(ctx, c)
	if err != nil {
		return nil, translate("store.open", err)
	}
	return s, nil
}

func open(ctx context.Context, c Config) (*Store, error) {
	cfg, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, cfg); err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(c.Conns)
	db.SetMaxIdleConns(c.Conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	var node [5]byte
	rand.Read(node[:])
	s := &Store{config: c, connect: cfg, db: db, node: hex.EncodeToString(node[:4]), slots: make(chan int64, c.Conns),
		lanes: make(chan []job.Lane, 1024), stop: make(chan struct{}), stopped: make(chan struct{})}
	for i := range c.Conns {
		s.slots <- int64(node[4]%slotBases)*int64(c.Conns) + int64(i)
	}
	go s.announce()
	return s, nil
}

func parse(url string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		// The parser's error repeats the URL without its password.
		return nil, &job.Error{Kind: job.Invalid, Op: "store.open", Msg: "the PostgreSQL URL cannot be read", Err: err}
	}
	for _, params := range []map[string]string{limits, planning} {
		for name, value := range params {
			if _, set := cfg.RuntimeParams[name]; !set {
				cfg.RuntimeParams[name] = value
			}
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	return cfg, nil
}

// migrate runs on connections of its own without a statement deadline: building
// an index on a large table takes its time.
func migrate(ctx context.Context, cfg *pgx.ConnConfig) error {
	cfg = cfg.Copy()
	cfg.RuntimeParams["statement_timeout"] = "0"
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	return sqlstore.Migrate(ctx, goose.DialectPostgres, db, migrationFiles(), goose.WithSessionLocker(schemaLock{}))
}

// schemaLock lets one node at a time migrate a schema. It asks again and again
// rather than wait inside the database, where a waiting session would hold up
// CREATE INDEX CONCURRENTLY.
type schemaLock struct{}

const schemaLockKey = "hashtextextended('millrace.migrate.'||coalesce(current_schema(),''), 0)"

// SessionLock implements goose's lock.SessionLocker, as does SessionUnlock.
func (schemaLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		var locked bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock("+schemaLockKey+")").Scan(&locked); err != nil || locked {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (schemaLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock("+schemaLockKey+")")
	return err
}

func migrationFiles() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	return files
}

// SchemaVersion reports the schema a database has and the newest known.
func SchemaVersion(ctx context.Context, url string) (have, want int64, err error) {
	cfg, err := parse(url)
	if err != nil {
		return 0, 0, err
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	have, want, err = sqlstore.SchemaVersion(ctx, goose.DialectPostgres, db, migrationFiles())
	return have, want, translate("store.schema", err)
}
