package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// floorBatch is the number of jobs per statement and per transaction of a floor.
const floorBatch = 100

// floorSQLite is bare SQL on a queue table: what a store on SQLite cannot beat with batches of this
// size. One connection, as SQLite has one writer.
type floorSQLite struct {
	db                    *sql.DB
	conn                  *sql.Conn
	insert, claim, finish *sql.Stmt
}

const sqliteSchema = `
CREATE TABLE job (
	id           INTEGER PRIMARY KEY,
	queue        TEXT    NOT NULL,
	state        TEXT    NOT NULL,
	priority     INTEGER NOT NULL,
	run_at       INTEGER NOT NULL,
	attempt      INTEGER NOT NULL,
	max_attempts INTEGER NOT NULL,
	lease_until  INTEGER,
	worker       TEXT,
	payload      BLOB    NOT NULL,
	created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX job_ready ON job (queue, priority, run_at, id) WHERE state = 'ready';`

const (
	// sqliteInsertRow is repeated once per job of a batch.
	sqliteInsertHead = `INSERT INTO job
		(queue, state, priority, run_at, attempt, max_attempts, payload, created_at) VALUES `
	sqliteInsertRow = `('default', 'ready', 1, ?, 0, 25, ?, ?)`

	// sqliteClaim leases the first ready jobs of the queue; each is answered once.
	sqliteClaim = `UPDATE job SET state = 'leased', attempt = attempt + 1, lease_until = ?, worker = 'w'
		WHERE id IN (SELECT id FROM job WHERE queue = 'default' AND state = 'ready' AND run_at <= ?
			ORDER BY priority, run_at, id LIMIT 100)
		RETURNING id, attempt, payload`

	sqliteDeleteHead = `DELETE FROM job WHERE id IN (`
)

func setupFloorSQLite(ctx context.Context, env *Env) (Runner, error) {
	dir, err := env.Folder("sqlite")
	if err != nil {
		return nil, err
	}
	pragmas := url.Values{"_pragma": {"journal_mode(wal)", "synchronous(full)",
		"busy_timeout(5000)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "floor.db")+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	f := &floorSQLite{db: db}
	if err := f.prepare(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return f, nil
}

func (f *floorSQLite) prepare(ctx context.Context) (err error) {
	if f.conn, err = f.db.Conn(ctx); err != nil {
		return err
	}
	if _, err = f.conn.ExecContext(ctx, sqliteSchema); err != nil {
		return err
	}
	rows := strings.TrimSuffix(strings.Repeat(sqliteInsertRow+",", floorBatch), ",")
	if f.insert, err = f.conn.PrepareContext(ctx, sqliteInsertHead+rows); err != nil {
		return err
	}
	if f.claim, err = f.conn.PrepareContext(ctx, sqliteClaim); err != nil {
		return err
	}
	keys := strings.TrimSuffix(strings.Repeat("?,", floorBatch), ",")
	f.finish, err = f.conn.PrepareContext(ctx, sqliteDeleteHead+keys+")")
	return err
}

func (f *floorSQLite) Durability() string {
	var mode string
	var level int
	ctx := context.Background()
	if err := f.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return "unknown: " + err.Error()
	}
	if err := f.conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return "unknown: " + err.Error()
	}
	if mode != "wal" || level < 2 {
		return fmt.Sprintf("NOT durable: journal_mode=%s synchronous=%d", mode, level)
	}
	return "durable: fsync before each commit returns (WAL, synchronous=FULL)"
}

// Run rounds n up to whole batches, so that each statement has one shape.
func (f *floorSQLite) Run(ctx context.Context, n int) ([]Phase, error) {
	n = (n + floorBatch - 1) / floorBatch * floorBatch
	if _, err := f.conn.ExecContext(ctx, "DELETE FROM job"); err != nil {
		return nil, err
	}
	// The log of the round before is folded in outside the clock.
	if _, err := f.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return nil, err
	}
	insert, err := f.insertAll(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	ids, claim, err := f.claimAll(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	finish, err := f.deleteAll(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return []Phase{insert, claim, finish, totalPhase(n, insert, claim, finish)}, nil
}

func (f *floorSQLite) insertAll(ctx context.Context, n int) (Phase, error) {
	args := make([]any, 0, 3*floorBatch)
	started := time.Now()
	for _, b := range batches(n, floorBatch) {
		args = args[:0]
		for num := b[0]; num < b[1]; num++ {
			now := time.Now().UnixMicro()
			args = append(args, now, appendPayload(nil, num), now)
		}
		if _, err := f.insert.ExecContext(ctx, args...); err != nil {
			return Phase{}, err
		}
	}
	return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started)}, nil
}

func (f *floorSQLite) claimAll(ctx context.Context, n int) ([]int64, Phase, error) {
	ids := make([]int64, 0, n)
	started := time.Now()
	for len(ids) < n {
		before := len(ids)
		now := time.Now().UnixMicro()
		rows, err := f.claim.QueryContext(ctx, now+int64(time.Minute/time.Microsecond), now)
		if err != nil {
			return nil, Phase{}, err
		}
		for rows.Next() {
			var id, attempt int64
			var payload []byte
			if err := rows.Scan(&id, &attempt, &payload); err != nil {
				return nil, Phase{}, err
			}
			ids = append(ids, id)
		}
		if err := rows.Err(); err != nil {
			return nil, Phase{}, err
		}
		if len(ids) == before {
			return nil, Phase{}, fmt.Errorf("only %d of %d jobs were ready", before, n)
		}
	}
	return ids, Phase{Name: phaseClaim, Jobs: n, Took: time.Since(started)}, nil
}

func (f *floorSQLite) deleteAll(ctx context.Context, ids []int64) (Phase, error) {
	keys := make([]any, floorBatch)
	started := time.Now()
	for _, b := range batches(len(ids), floorBatch) {
		for i, id := range ids[b[0]:b[1]] {
			keys[i] = id
		}
		res, err := f.finish.ExecContext(ctx, keys...)
		if err != nil {
			return Phase{}, err
		}
		if deleted, err := res.RowsAffected(); err != nil || deleted != floorBatch {
			return Phase{}, fmt.Errorf("deleted %d of %d: %v", deleted, floorBatch, err)
		}
	}
	return Phase{Name: phaseDelete, Jobs: len(ids), Took: time.Since(started)}, nil
}

func (f *floorSQLite) Close() error { return f.db.Close() }
