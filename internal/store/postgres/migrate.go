package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaWait is how long a start waits for another one that has the schema locked.
const schemaWait = 5 * time.Minute

// migrate runs on connections of its own without a statement deadline: building
// an index on a large table takes its time.
func migrate(ctx context.Context, c Config, r *route) error {
	cfg := r.config.Copy()
	if !r.pooled {
		cfg.RuntimeParams["statement_timeout"] = "0"
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	lock := &schemaLock{log: c.Log, wait: c.SchemaWait}
	return sqlstore.Migrate(ctx, goose.DialectPostgres, db, migrationFiles(),
		goose.WithLocker(lock))
}

// schemaLock lets one node at a time migrate a schema. A transaction of its own
// holds it, so that it is given back also where a pooler stands between. It asks
// again and again rather than wait inside the database, where a waiting session
// would hold up CREATE INDEX CONCURRENTLY.
type schemaLock struct {
	log  *slog.Logger
	wait time.Duration
	held *sql.Tx
}

const (
	schemaKey    = "hashtextextended('millrace.migrate.'||coalesce(current_schema(),''), 0)"
	schemaHolder = `SELECT coalesce(min(pid), 0) FROM pg_locks
WHERE locktype='advisory' AND granted AND objsubid=1
AND database=(SELECT oid FROM pg_database WHERE datname=current_database())
AND (classid::int8<<32)|objid::int8=` + schemaKey
)

// Lock implements goose's lock.Locker, as does Unlock.
func (l *schemaLock) Lock(ctx context.Context, db *sql.DB) error {
	patience := time.NewTimer(l.wait)
	defer patience.Stop()
	for told := false; ; told = true {
		locked, holder, err := l.tryLock(ctx, db)
		if err != nil || locked {
			return err
		}
		if !told {
			l.log.Warn("another session has the schema locked, as a node does that brings it "+
				"up to date; the start waits for it",
				"pid", holder, "at_most", l.wait)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-patience.C:
			return &job.Error{Kind: job.Unavailable, Op: "store.migrate",
				Msg: fmt.Sprintf("the session %d keeps the schema locked "+
					"(see pg_locks and pg_stat_activity)", holder)}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryLock locks the schema, or tells which process of the server has it locked.
func (l *schemaLock) tryLock(ctx context.Context, db *sql.DB) (locked bool, holder int64,
	err error) {
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return false, 0, err
	}
	defer func() {
		if !locked {
			_ = tx.Rollback()
		}
	}()
	if _, err := tx.ExecContext(ctx,
		"SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return false, 0, err
	}
	const try = "SELECT pg_try_advisory_xact_lock(" + schemaKey + ")"
	if err := tx.QueryRowContext(ctx, try).Scan(&locked); err != nil {
		return false, 0, err
	}
	if locked {
		l.held = tx
		return true, 0, nil
	}
	return false, holder, tx.QueryRowContext(ctx, schemaHolder).Scan(&holder)
}

// Unlock ends the transaction. Where that fails the server does when the
// connection closes.
func (l *schemaLock) Unlock(context.Context, *sql.DB) error {
	_ = l.held.Rollback()
	return nil
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
	r, err := findRoute(ctx, cfg)
	if err != nil {
		return 0, 0, translate("store.schema", err)
	}
	db := stdlib.OpenDB(*r.config)
	defer db.Close()
	have, want, err = sqlstore.SchemaVersion(ctx, goose.DialectPostgres, db, migrationFiles())
	return have, want, translate("store.schema", err)
}
