package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// setupPostgresCounts counts everything in one run: what was written is read from the WAL
// afterwards.
func setupPostgresCounts(ctx context.Context, env *Env, rounds int) (countFunc, error) {
	pg, err := env.Postgres(ctx, "counts")
	if err != nil {
		return nil, err
	}
	open := func(ctx context.Context, observe sqlstore.Observer) (store.Store, probe, error) {
		if err := pg.Recreate(ctx); err != nil {
			return nil, nil, err
		}
		s, err := postgres.Open(ctx, postgres.Config{URL: pg.DSN(), Observe: observe})
		if err != nil {
			return nil, nil, err
		}
		p, err := newWALProbe(ctx, pg)
		if err != nil {
			return nil, nil, errors.Join(err, s.Close())
		}
		return s, p, nil
	}
	return func(ctx context.Context, kind jobKind, size int) ([]verbCost, error) {
		return countJobs(ctx, open, kind, size, rounds)
	}, nil
}

// walProbe counts the records of the WAL that are about the tables of the bench's database: rows,
// entries of indexes, and their bytes. What others do on the server does not count, nor do images
// of whole pages, which follow a checkpoint and not a job; what a record leaves out because of its
// image is not counted either.
type walProbe struct {
	conn *pgx.Conn
	from string // the position in the WAL at Begin
}

// reserveWAL keeps what is written from now on until the session ends: a checkpoint removes
// segments of the WAL, and one that others cause may come before they are read.
const reserveWAL = `SELECT pg_create_physical_replication_slot(
	'millrace_bench_'||pg_backend_pid(), true, true)`

// newWALProbe turns the automatic vacuum of the tables off: it would write too.
func newWALProbe(ctx context.Context, pg *Postgres) (probe, error) {
	conn, err := pgx.ConnectConfig(ctx, pg.dsn.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	p := &walProbe{conn: conn}
	if _, err := conn.Exec(ctx, "CREATE EXTENSION pg_walinspect"); err != nil {
		return nil, errors.Join(p.Close(),
			skipf("PostgreSQL 15 or newer with pg_walinspect and a superuser: %v", err))
	}
	if _, err := conn.Exec(ctx, reserveWAL); err != nil {
		return nil, errors.Join(p.Close(), skipf("PostgreSQL with a free replication slot: %v", err))
	}
	const manual = `DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT oid FROM pg_class WHERE relkind='r' AND relnamespace='public'::regnamespace
		LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled=off)', t); END LOOP; END $$`
	if _, err := conn.Exec(ctx, manual); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *walProbe) Begin(ctx context.Context) error {
	return p.conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&p.from)
}

// walRecords returns the records since $1 by kind: those about relations of the schema public of
// this database, and the commits of their transactions. A record begins at a multiple of eight
// bytes. pg_walinspect does not read past what was flushed, and the last commit was.
const walRecords = `
WITH records AS MATERIALIZED (
	SELECT resource_manager AS manager, record_type AS type, xid::text AS xid, block_ref,
		description, (record_length-fpi_length+7)/8*8 AS bytes
	FROM pg_get_wal_records_info($1::pg_lsn, pg_current_wal_flush_lsn())),
relations AS (
	SELECT 'rel [0-9]+/'||d.oid||'/'||pg_relation_filenode(c.oid)||' ' AS pattern
	FROM pg_class AS c, pg_database AS d
	WHERE d.datname=current_database() AND c.relnamespace='public'::regnamespace
		AND pg_relation_filenode(c.oid) IS NOT NULL),
own AS (
	SELECT * FROM records
	WHERE block_ref ~ (SELECT string_agg(pattern,'|') FROM relations))
SELECT manager, type, description ~ '^level:? 0,', count(*), sum(bytes)::bigint
FROM (SELECT * FROM own UNION ALL
	SELECT * FROM records WHERE manager='Transaction' AND xid IN (SELECT xid FROM own)) AS r
GROUP BY 1,2,3`

func (p *walProbe) End(ctx context.Context, c *cost) error {
	rows, err := p.conn.Query(ctx, walRecords, p.from)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var manager, kind string
		var onLeaf bool
		var n, bytes float64
		if err := rows.Scan(&manager, &kind, &onLeaf, &n, &bytes); err != nil {
			return err
		}
		c[figLog] += bytes
		switch kind, _, _ = strings.Cut(kind, "+"); manager + " " + kind { // +INIT: of a new page
		case "Heap INSERT":
			c[figInserted] += n
		case "Heap UPDATE":
			c[figUpdated] += n
		case "Heap HOT_UPDATE":
			c[figUpdated] += n
			c[figHot] += n
		case "Heap DELETE":
			c[figDeleted] += n
		case "Heap LOCK":
			c[figLocked] += n
		case "Heap2 MULTI_INSERT":
			return fmt.Errorf("%s: a record of several rows", kind)
		case "Btree INSERT_LEAF", "Btree INSERT_POST":
			c[figEntries] += n
		case "Btree SPLIT_L", "Btree SPLIT_R": // it has the entry that did not fit
			if onLeaf {
				c[figEntries] += n
			}
		}
	}
	return rows.Err()
}

func (p *walProbe) Close() error { return p.conn.Close(context.Background()) }
