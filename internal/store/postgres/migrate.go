package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is the schema of this database.
var schema = sqlstore.Schema{
	Dialect: goose.DialectPostgres,
	Files:   sqlstore.MigrationFiles(migrations),
	HasVersions: "SELECT count(*) FROM pg_tables WHERE schemaname=" + storeSchema +
		" AND tablename='" + versionTable + "'",
	Cause: func(err error) error {
		if pg, found := errors.AsType[*pgconn.PgError](err); found {
			return pg
		}
		return nil
	},
}

const (
	public       = "public"
	versionTable = "goose_db_version"
	// storeSchema is the schema of the tables: the first one of the search_path. The schema
	// millrace does not count if it has only the functions for producers of a store in public:
	// for a role named millrace, "$user" puts it first in the search_path.
	storeSchema = `CASE WHEN current_schema()='millrace'
AND to_regclass('millrace.submissions') IS NOT NULL
AND to_regclass('millrace.` + versionTable + `') IS NULL THEN '` + public + `'
ELSE current_schema() END`
)

// schemaOf returns the schema of a database. Migrations of a store in public make their tables
// there, also when one of them has made the schema millrace.
func schemaOf(ctx context.Context, db *sql.DB) (*sqlstore.Schema, error) {
	s, name := schema, ""
	err := db.QueryRowContext(ctx, "SELECT coalesce("+storeSchema+",'')").Scan(&name)
	s.Before = lockTables
	if name == public {
		s.Before = "SET LOCAL search_path = " + public + ";\n" + lockTables
		s.Options = []goose.ProviderOption{goose.WithTableName(public + "." + versionTable)}
	}
	return &s, err
}

// lockTables locks all tables of the store at the beginning of each migration (decision 0123).
// Nodes of the version before may still run, and their transactions lock tables in several orders.
// So a migration that waits for a table while it has others locked may meet a node that waits for
// one of those. It waits for 200 ms at most: then it releases all of its locks, which lets the node
// go on, and starts again with the table that it did not get.
var lockTables = `DO $$ DECLARE
	names TEXT[] := ARRAY['` + strings.Join(requiredTables(), "','") + `'];
	name TEXT; attempts INT := 1; before TEXT := current_setting('lock_timeout');
BEGIN
	PERFORM set_config('lock_timeout', '200ms', true);
	LOOP
		BEGIN
			FOREACH name IN ARRAY names LOOP
				IF to_regclass(format('%I.%I', current_schema(), name)) IS NOT NULL THEN
					EXECUTE format('LOCK TABLE %I.%I IN ACCESS EXCLUSIVE MODE', current_schema(), name);
				END IF;
			END LOOP;
			EXIT;
		EXCEPTION WHEN lock_not_available THEN
			attempts := attempts + 1;
			IF attempts > 1000 THEN
				RAISE;
			END IF;
			names := array_prepend(name, array_remove(names, name));
		END;
	END LOOP;
	PERFORM set_config('lock_timeout', before, true);
END $$;
`

// schemaTimeout is how long a start waits while another session has the schema locked.
const schemaTimeout = 5 * time.Minute

// migrate runs on connections of its own that have no limit for statements: building an index on a
// large table may take long. Behind a pooler, where a connection cannot set it, the role has the
// limit.
func migrate(ctx context.Context, c Config, r *route) error {
	cfg := r.config.Copy()
	if !r.pooled {
		cfg.RuntimeParams["statement_timeout"] = "0"
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	s, err := schemaOf(ctx, db)
	if err != nil {
		return err
	}
	return s.Migrate(ctx, db, goose.WithLocker(&schemaLock{log: c.Log, wait: c.SchemaTimeout}))
}

// schemaLock lets one node at a time migrate a schema. It is an advisory lock of a transaction
// of its own, so that a pooler releases it too. It polls instead of waiting inside the database,
// where a waiting transaction would block CREATE INDEX CONCURRENTLY.
type schemaLock struct {
	log  *slog.Logger
	wait time.Duration
	tx   *sql.Tx // has the lock
}

var _ lock.Locker = (*schemaLock)(nil)

const (
	schemaKey    = "hashtextextended('millrace.migrate.'||coalesce(" + storeSchema + ",''), 0)"
	schemaHolder = `SELECT coalesce(min(pid), 0) FROM pg_locks
WHERE locktype='advisory' AND granted AND objsubid=1
AND database=(SELECT oid FROM pg_database WHERE datname=current_database())
AND (classid::int8<<32)|objid::int8=` + schemaKey
)

// Lock implements lock.Locker, as does Unlock. It tries every 100 ms, logs once that it waits, and
// is Unavailable after wait.
func (l *schemaLock) Lock(ctx context.Context, db *sql.DB) error {
	timeout := time.NewTimer(l.wait)
	defer timeout.Stop()
	for warned := false; ; warned = true {
		locked, holder, err := l.tryLock(ctx, db)
		if err != nil || locked {
			return err
		}
		if !warned {
			l.log.Warn("another session has the schema locked, as a node does that brings it "+
				"up to date; the start waits for it", "pid", holder, "at_most", l.wait)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-timeout.C:
			return &job.Error{Kind: job.Unavailable, Op: "store.migrate",
				Msg: fmt.Sprintf("the session %d keeps the schema locked "+
					"(see pg_locks and pg_stat_activity)", holder)}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryLock locks the schema, or returns the process of the server that has it locked. The
// transaction that holds the lock must not end with ctx, and may be idle for as long as the
// migrations take.
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
		l.tx = tx
		return true, 0, nil
	}
	return false, holder, tx.QueryRowContext(ctx, schemaHolder).Scan(&holder)
}

// Unlock ends the transaction, also after the context has ended. If that fails, the server ends it
// when the connection closes.
func (l *schemaLock) Unlock(_ context.Context, _ *sql.DB) error {
	_ = l.tx.Rollback()
	return nil
}

// SchemaVersion returns the version of a database's schema and the newest known version.
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
	s, err := schemaOf(ctx, db)
	if err != nil {
		return 0, 0, translate("store.schema", err)
	}
	have, want, err = s.Version(ctx, db)
	return have, want, translate("store.schema", err)
}
