package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/move"
)

// columnsOfStore selects the columns of all tables but that of the migrations.
const columnsOfStore = `SELECT t.name, c.name FROM sqlite_schema AS t
	JOIN pragma_table_info(t.name) AS c WHERE t.type='table' AND t.name<>'goose_db_version'
	AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\'`

// OpenMove opens a database file as one database of a move, under the lock that servers take, and
// brings its schema up to date. It makes a file that is missing only for the target: a source that
// is missing is NotFound.
func OpenMove(ctx context.Context, path, name string, isTarget bool) (*move.Database, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !isTarget {
		return nil, &job.Error{Kind: job.NotFound, Op: "store.open",
			Msg: "there is no database " + path}
	}
	unlock, err := prepareFile(path)
	if err != nil {
		return nil, err
	}
	db, err := openWritable(ctx, Config{Path: path})
	if err != nil {
		unlock()
		return nil, translate("store.open", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		unlock()
		return nil, translate("store.open", err)
	}
	s := &moveDatabase{conn}
	return &move.Database{Name: name, Conn: conn, Columns: columnsOfStore, Insert: s.insert,
		LastNumber: s.lastNumber, SetLastNumber: s.setLastNumber, Close: func() error {
			defer unlock()
			return errors.Join(conn.Close(), db.Close())
		}}, nil
}

// moveDatabase has the statements of a move that this database alone has.
type moveDatabase struct{ conn *sql.Conn }

// insert stores rows with a statement that is prepared for them.
func (s *moveDatabase) insert(ctx context.Context, table string, columns []string,
	rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	insert, err := s.conn.PrepareContext(ctx, "INSERT INTO "+table+" ("+
		strings.Join(columns, ",")+") VALUES (?"+strings.Repeat(",?", len(columns)-1)+")")
	if err != nil {
		return err
	}
	defer insert.Close()
	for _, row := range rows {
		if _, err := insert.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

// lastNumber reads the numbers of jobs from their own table, and others where SQLite keeps them.
func (s *moveDatabase) lastNumber(ctx context.Context, table string) (n int64, err error) {
	query := "SELECT coalesce(max(seq),0) FROM sqlite_sequence WHERE name=$1"
	if table == "jobs" {
		query = "SELECT next-1 FROM numbers WHERE name=$1"
	}
	err = s.conn.QueryRowContext(ctx, query, table).Scan(&n)
	return n, err
}

func (s *moveDatabase) setLastNumber(ctx context.Context, table string, n int64) error {
	if table == "jobs" {
		_, err := s.conn.ExecContext(ctx, "UPDATE numbers SET next=$1+1 WHERE name=$2", n, table)
		return err
	}
	_, err := s.conn.ExecContext(ctx, "DELETE FROM sqlite_sequence WHERE name=$1", table)
	if err != nil {
		return err
	}
	_, err = s.conn.ExecContext(ctx, "INSERT INTO sqlite_sequence (seq,name) VALUES ($1,$2)", n,
		table)
	return err
}
