package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/move"
)

// A move holds an advisory lock of its session, which the server releases when the process ends,
// however it ends. A node that starts looks whether it is held, and so does a second move.
const (
	moveKey  = "hashtextextended('millrace.move.'||coalesce(" + storeSchema + ",''), 0)"
	lockMove = "SELECT pg_try_advisory_lock(" + moveKey + ")"
	tryMove  = "SELECT pg_try_advisory_xact_lock_shared(" + moveKey + ")"

	// columnsOfStore selects the columns of all tables of the schema, which may have some of
	// others.
	columnsOfStore = `SELECT c.relname, a.attname FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid=c.relnamespace JOIN pg_attribute AS a ON a.attrelid=c.oid
		WHERE c.relkind='r' AND a.attnum>0 AND NOT a.attisdropped AND n.nspname=` + storeSchema

	// runningNodes selects the nodes that have written their record in the last 15 seconds; each
	// writes it every five.
	runningNodes = `SELECT key FROM records WHERE kind=$1
		AND updated_at > (extract(epoch FROM clock_timestamp())*1000000)::int8 - 15000000
		ORDER BY key`
)

// errMoving is the error of a database that a move has locked.
func errMoving(kind job.Kind) error {
	return &job.Error{Kind: kind, Op: "store.open", Msg: "a 'millrace migrate' moves its jobs"}
}

// checkMoves refuses a database from or to which a move runs, or whose jobs were moved.
func checkMoves(ctx context.Context, db *sql.DB) error {
	var isFree bool
	if err := db.QueryRowContext(ctx, tryMove).Scan(&isFree); err != nil {
		return err
	}
	if !isFree {
		return errMoving(job.ReadOnly)
	}
	err := move.CheckOpen(ctx, db)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pg.Code, "42") {
		return nil // Ping says which table or right is missing
	}
	return err
}

// OpenMove connects to a database as one database of a move, and brings its schema up to date. No
// statement has a time limit. A connection pooler is refused, as the session holds a lock.
func OpenMove(ctx context.Context, url, name string) (*move.Database, error) {
	s, err := openMove(ctx, url)
	if err != nil {
		return nil, translate("store.open", err)
	}
	return &move.Database{Name: name, Conn: s.conn, Columns: columnsOfStore,
		Pending: []move.Pending{
			{Count: "SELECT count(*) FROM inbox WHERE state='waiting'",
				Text: "requests in its inbox that wait: let a node take them over, or discard " +
					"them with 'millrace inbox discard'"},
			{Count: "SELECT count(*) FROM run_ends",
				Text: "ends of runs, recorded by workers, that wait: let a node carry them out"},
		},
		Running: s.running, Insert: s.insert, LastNumber: s.lastNumber,
		SetLastNumber: s.setLastNumber, Close: s.close}, nil
}

// moveDatabase is the connection of a move, with the statements that this database alone has.
type moveDatabase struct {
	db   *sql.DB
	conn *sql.Conn
}

// openMove connects, migrates and takes the lock.
func openMove(ctx context.Context, url string) (*moveDatabase, error) {
	cfg, err := parse(url)
	if err != nil {
		return nil, err
	}
	for _, limit := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		cfg.RuntimeParams[limit] = "0"
	}
	r, err := findRoute(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if r.pooled {
		return nil, &job.Error{Kind: job.Invalid, Op: "store.open",
			Msg: "a move needs a connection without a pooler"}
	}
	if err := migrate(ctx, Config{URL: url}.withDefaults(), r); err != nil {
		return nil, err
	}
	s := &moveDatabase{db: stdlib.OpenDB(*r.config)}
	if err := s.lock(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// lock opens the connection and locks moves of this store.
func (s *moveDatabase) lock(ctx context.Context) (err error) {
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return err
	}
	var isFree bool
	if err := s.conn.QueryRowContext(ctx, lockMove).Scan(&isFree); err != nil {
		return err
	}
	if !isFree {
		return errMoving(job.Conflict)
	}
	return nil
}

// close closes the connection, which releases the lock.
func (s *moveDatabase) close() error {
	var err error
	if s.conn != nil {
		err = s.conn.Close()
	}
	return errors.Join(err, s.db.Close())
}

// running returns the names of the nodes that run.
func (s *moveDatabase) running(ctx context.Context, kind string) (names []string, err error) {
	rows, err := s.conn.QueryContext(ctx, runningNodes, kind)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// insert stores rows by COPY, which takes numbers of rows as they are.
func (s *moveDatabase) insert(ctx context.Context, table string, columns []string,
	rows [][]any) error {
	return s.conn.Raw(func(c any) error {
		_, err := c.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{table}, columns,
			pgx.CopyFromRows(rows))
		return err
	})
}

// sequence returns the sequence of the numbers of a table.
func sequence(table string) string {
	if table == "jobs" {
		return "job_numbers"
	}
	return table + "_id_seq"
}

func (s *moveDatabase) lastNumber(ctx context.Context, table string) (n int64, err error) {
	err = s.conn.QueryRowContext(ctx, "SELECT CASE WHEN is_called THEN last_value ELSE "+
		"last_value-1 END FROM "+sequence(table)).Scan(&n)
	return n, err
}

func (s *moveDatabase) setLastNumber(ctx context.Context, table string, n int64) error {
	_, err := s.conn.ExecContext(ctx, "SELECT setval($1::text::regclass, greatest($2::int8,1), "+
		"$2::int8>0)", sequence(table), n)
	return err
}
