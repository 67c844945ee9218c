package sqlite

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// Bulk work runs row by row with a prepared statement, or as an insert of several rows: a
// statement costs no round trip here.

// rowsAtOnce is how many rows go into one insert: for small rows, running the statement is a
// third of the cost.
const rowsAtOnce = 32

// Bulk inserts several rows at once where the statement allows it, and runs any other bulk
// statement row by row.
func (s *session) Bulk(b *sqlstore.Bulk, rows [][]any) error {
	return s.observed(b, func() error {
		for !b.Update && len(rows) >= rowsAtOnce {
			p, err := s.manyRowStatement(b)
			if err != nil {
				return err
			}
			if _, err := p.ExecContext(s.ctx, slices.Concat(rows[:rowsAtOnce]...)...); err != nil {
				return err
			}
			rows = rows[rowsAtOnce:]
		}
		return s.eachRow(b, rows, func(int, int64) {})
	})
}

// manyRows is the key of the prepared statement for rowsAtOnce rows.
type manyRows struct{ b *sqlstore.Bulk }

// manyRowStatement returns the prepared insert of rowsAtOnce rows.
func (s *session) manyRowStatement(b *sqlstore.Bulk) (*sql.Stmt, error) {
	if p := s.prepared[manyRows{b}]; p != nil {
		return p, nil
	}
	return s.prepare(manyRows{b}, insertText(b, rowsAtOnce))
}

// oneRowStatement returns the prepared statement for one row.
func (s *session) oneRowStatement(b *sqlstore.Bulk) (*sql.Stmt, error) {
	if p := s.prepared[b]; p != nil {
		return p, nil
	}
	if b.Update {
		return s.prepare(b, updateText(b))
	}
	return s.prepare(b, insertText(b, 1))
}

// insertText returns the SQL of an insert of n rows. Parameters are written ?, because SQLite
// takes $1 for a name and looks it up.
func insertText(b *sqlstore.Bulk, n int) string {
	row := "(" + strings.Repeat("?,", len(b.Columns)-1) + "?)"
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES %s %s", b.Table, b.ColumnList(),
		row+strings.Repeat(","+row, n-1), b.Tail)
}

// updateText returns the SQL of an update of one row.
func updateText(b *sqlstore.Bulk) string {
	var assign []string
	for i, c := range b.Columns {
		if i != b.Key {
			assign = append(assign, c.Name+"=?")
		}
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s=?", b.Table, strings.Join(assign, ","),
		b.Columns[b.Key].Name)
}

// eachRow runs b for every row and calls done with the number of table rows that it changed.
func (s *session) eachRow(b *sqlstore.Bulk, rows [][]any, done func(row int, changed int64)) error {
	p, err := s.oneRowStatement(b)
	if err != nil {
		return err
	}
	for i, row := range rows {
		n, err := exec(s.ctx, p, row)
		if err != nil {
			return err
		}
		done(i, n)
	}
	return nil
}
