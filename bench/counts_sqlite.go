package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// setupSQLiteCounts counts twice, each time in a file of its own: a hook that counts rows
// allocates, and what reads the indexes fills caches, so the log and the allocations are counted
// without them.
func setupSQLiteCounts(_ context.Context, env *Env, rounds int) (countFunc, error) {
	dir, err := env.Folder("counts-sqlite")
	if err != nil {
		return nil, err
	}
	files := 0
	with := func(newProbe func(path string) (probe, error)) opener {
		return func(ctx context.Context, observe sqlstore.Observer) (store.Store, probe, error) {
			files++
			path := filepath.Join(dir, "counts-"+strconv.Itoa(files)+".db")
			p, err := newProbe(path)
			if err != nil {
				return nil, nil, err
			}
			s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Now: time.Now,
				Observe: observe})
			return s, p, err
		}
	}
	return func(ctx context.Context, kind jobKind, size int) ([]verbCost, error) {
		costs, err := countJobs(ctx, with(newRowProbe), kind, size, rounds)
		if err != nil {
			return nil, err
		}
		undisturbed, err := countJobs(ctx, with(newLogProbe), kind, size, rounds)
		for i, c := range undisturbed {
			for _, f := range []figure{figLog, figAllocations, figHeap} {
				costs[i].cost[f] = c.cost[f]
			}
		}
		return costs, err
	}, nil
}

// rowProbe counts rows with a hook that SQLite calls for each row that a statement changes, and
// index entries by comparing the indexes before and after: an entry that an update has written
// again without a change is not counted.
type rowProbe struct {
	db                         *sql.DB
	conn                       *sql.Conn // with the temporary tables
	indexes                    []sqliteIndex
	inserted, updated, deleted atomic.Int64
}

// sqliteIndex is an index as a select of its entries.
type sqliteIndex struct{ name, entries string }

func newRowProbe(path string) (probe, error) {
	p := &rowProbe{}
	var err error
	if p.db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: path}).String()); err != nil {
		return nil, err
	}
	driver.RegisterConnectionHook(func(conn driver.ExecQuerierContext, dsn string) error {
		hooks, ok := conn.(driver.HookRegisterer)
		if !ok {
			return errors.New("the driver has no hook for changed rows")
		}
		if strings.Contains(dsn, path) {
			hooks.RegisterPreUpdateHook(p.changed)
		}
		return nil
	})
	return p, nil
}

// changed is SQLite's hook.
func (p *rowProbe) changed(row driver.SQLitePreUpdateData) {
	if row.DatabaseName != "main" { // it is in a temporary table of the probe
		return
	}
	switch row.Op {
	case sqlite3.SQLITE_INSERT:
		p.inserted.Add(1)
	case sqlite3.SQLITE_UPDATE:
		p.updated.Add(1)
	case sqlite3.SQLITE_DELETE:
		p.deleted.Add(1)
	}
}

func (p *rowProbe) Begin(ctx context.Context) (err error) {
	if p.conn == nil {
		if p.conn, err = p.db.Conn(ctx); err != nil {
			return err
		}
		if p.indexes, err = readSQLiteIndexes(ctx, p.conn); err != nil {
			return err
		}
	}
	for _, i := range p.indexes {
		for _, q := range []string{"DROP TABLE IF EXISTS temp." + i.name,
			"CREATE TEMP TABLE " + i.name + " AS " + i.entries} {
			if _, err := p.conn.ExecContext(ctx, q); err != nil {
				return err
			}
		}
	}
	for _, n := range []*atomic.Int64{&p.inserted, &p.updated, &p.deleted} {
		n.Store(0)
	}
	return nil
}

func (p *rowProbe) End(ctx context.Context, c *cost) error {
	c[figInserted] = float64(p.inserted.Load())
	c[figUpdated] = float64(p.updated.Load())
	c[figDeleted] = float64(p.deleted.Load())
	for _, i := range p.indexes {
		before := "SELECT * FROM temp." + i.name
		for _, of := range []struct {
			figure  figure
			entries string
		}{{figEntries, i.entries + " EXCEPT " + before},
			{figEntriesRemoved, before + " EXCEPT " + i.entries}} {
			var n float64
			q := "SELECT count(*) FROM (" + of.entries + ")"
			if err := p.conn.QueryRowContext(ctx, q).Scan(&n); err != nil {
				return err
			}
			c[of.figure] += n
		}
	}
	return nil
}

func (p *rowProbe) Close() error {
	if p.conn == nil {
		return p.db.Close()
	}
	return errors.Join(p.conn.Close(), p.db.Close())
}

// readSQLiteIndexes returns all indexes beside the tables' own trees, each with the condition of
// those entries that it has.
func readSQLiteIndexes(ctx context.Context, conn *sql.Conn) ([]sqliteIndex, error) {
	const q = `SELECT i.name, i.tbl_name, coalesce(i.sql,''),
			group_concat(coalesce(c.name,'rowid'), ',')
		FROM sqlite_schema AS i, pragma_index_xinfo(i.name) AS c
		WHERE i.type='index' GROUP BY i.name`
	rows, err := conn.QueryContext(ctx, q)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []sqliteIndex
	for rows.Next() {
		var name, table, text, columns string
		if err := rows.Scan(&name, &table, &text, &columns); err != nil {
			return nil, err
		}
		i := sqliteIndex{name: "before_" + name, entries: "SELECT " + columns + " FROM " + table}
		if _, condition, partial := strings.Cut(text, " WHERE "); partial {
			i.entries += " WHERE " + condition
		}
		all = append(all, i)
	}
	return all, rows.Err()
}

// logProbe counts the bytes of the log's frames. Its file is only read.
type logProbe struct {
	path   string
	before logState
}

func newLogProbe(path string) (probe, error) { return &logProbe{path: path + "-wal"}, nil }

func (p *logProbe) Begin(context.Context) (err error) {
	p.before, err = readLog(p.path)
	return err
}

// End returns NaN if SQLite has restarted the log meanwhile: how long it had become is not known
// then. That is rare, as a log is longer than what a verb writes in a round.
func (p *logProbe) End(_ context.Context, c *cost) error {
	after, err := readLog(p.path)
	if err != nil {
		return err
	}
	c[figLog] = math.NaN()
	if after.salts == p.before.salts {
		c[figLog] = float64((after.frames - p.before.frames) * after.frameSize)
	}
	return nil
}

func (p *logProbe) Close() error { return nil }

// logState says how much of a log is in use. The salts change when SQLite restarts it.
type logState struct {
	salts     [8]byte
	frames    int64
	frameSize int64
}

// readLog reads the headers of a log (https://www.sqlite.org/fileformat2.html#walformat). Its
// frames are those with the salts of the log; behind them may be older ones.
func readLog(path string) (s logState, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	const headerSize, frameHeaderSize = 32, 24
	var header [headerSize]byte
	switch _, err := f.ReadAt(header[:], 0); {
	case errors.Is(err, io.EOF): // nothing was written since it was emptied
		return s, nil
	case err != nil:
		return s, err
	}
	s.salts = [8]byte(header[16:24])
	s.frameSize = frameHeaderSize + int64(binary.BigEndian.Uint32(header[8:12]))
	for ; ; s.frames++ {
		var frame [frameHeaderSize]byte
		_, err := f.ReadAt(frame[:], headerSize+s.frames*s.frameSize)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil || [8]byte(frame[8:16]) != s.salts {
			return s, err
		}
	}
}
