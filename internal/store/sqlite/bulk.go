package sqlite

import (
	"database/sql"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// Bulk work runs in statements of several rows: for a small row, running a statement and binding
// its values cost more than the change itself. A column that has the same value in every row of a
// statement is one parameter; the others are the columns of VALUES:
//
//	INSERT INTO jobs (seq,key,state) SELECT column1,column2,? FROM (VALUES (?,?),(?,?)) …
//	UPDATE leases SET worker=v.column1,attempts=? FROM (VALUES (?,?)) AS v WHERE seq=v.column2
//	INSERT INTO leases (run_id,state,seq,result) SELECT v.column1,?,o.seq,o.result
//		FROM (VALUES (?,?)) AS v CROSS JOIN ready AS o WHERE o.seq=v.column2
//
// Parameters are written ?, because SQLite takes $1 for a name and looks it up at each bind. So
// each is used once, in the order of the text: those of equal columns first.

// A statement has 64, 32, 16, 8 or 4 rows, or 1: with fewer than 4 rows it costs more than rows of
// their own. Of very many rows it has largeBatchRows, as far as their parameters are not more than
// SQLite takes: within a savepoint the end of each statement costs what the savepoint has changed
// so far, so a large member of a group would stall all others.
const (
	maxRows        = 64
	minRows        = 4
	largeBatchRows = 1024
	maxParameters  = 32_000
)

// maxBulks limits the prepared bulk statements of a session, which differ in the number of rows
// and in the columns that are equal. Few of them occur.
const maxBulks = 128

// bulkKey is the key of a prepared statement for n rows.
type bulkKey struct {
	b    *sqlstore.Bulk
	same uint64 // a bit for each column that is common to all rows; 0 for one row
	n    int
}

// Bulk is documented at sqlstore.Session.
func (s *session) Bulk(b *sqlstore.Bulk, set *sqlstore.BulkValues) error {
	return s.observed(b, func() error {
		return s.bulk(b, set, func(int, int, int64) error { return nil })
	})
}

// bulk runs b and calls done after each statement, with its rows and the number of table rows that
// it changed.
func (s *session) bulk(b *sqlstore.Bulk, set *sqlstore.BulkValues,
	done func(from, to int, changed int64) error) error {
	var same uint64
	for c := range b.Columns {
		if set.IsCommon(c) {
			same |= 1 << c
		}
	}
	for from := 0; from < set.Len(); {
		key := bulkKey{b: b, same: same, n: nextBatchRows(set.Len()-from, len(b.Columns))}
		if key.n == 1 {
			key.same = 0
		}
		to := from + key.n
		changed, err := s.runBulk(key, set, from)
		if err != nil {
			return err
		}
		if err := done(from, to, changed); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// nextBatchRows returns the number of rows of the next statement where so many are left, of so many
// columns.
func nextBatchRows(left, columns int) int {
	if left >= largeBatchRows && columns*largeBatchRows <= maxParameters {
		return largeBatchRows
	}
	for n := maxRows; n >= minRows; n /= 2 {
		if n <= left {
			return n
		}
	}
	return 1
}

// runBulk runs one statement for the rows from so many on.
func (s *session) runBulk(key bulkKey, set *sqlstore.BulkValues,
	from int) (changed int64, err error) {
	p := s.bulks[key]
	if p == nil {
		if p, err = s.prepareBulk(key); err != nil {
			return 0, err
		}
	}
	return exec(s.ctx, p, key.args(set, from))
}

// prepareBulk prepares the statement of a key. It closes all others first if there are too many.
func (s *session) prepareBulk(key bulkKey) (*sql.Stmt, error) {
	if len(s.bulks) >= maxBulks {
		s.closeBulks()
	}
	p, err := s.conn.PrepareContext(s.ctx, key.text())
	if err != nil {
		return nil, err
	}
	s.bulks[key] = p
	return p, nil
}

func (s *session) closeBulks() {
	for _, p := range s.bulks {
		p.Close()
	}
	clear(s.bulks)
}

// isSame reports whether a column has one value in all rows.
func (k bulkKey) isSame(column int) bool { return k.same&(1<<column) != 0 }

// args returns the arguments of the statement for the rows of a set from so many on.
func (k bulkKey) args(set *sqlstore.BulkValues, from int) []any {
	columns, equal := len(k.b.Columns), bits.OnesCount64(k.same)
	args := make([]any, 0, equal+k.n*(columns-equal))
	for c := range columns {
		if k.isSame(c) {
			args = append(args, set.Value(from, c))
		}
	}
	for row := from; row < from+k.n; row++ {
		for c := range columns {
			if !k.isSame(c) {
				args = append(args, set.Value(row, c))
			}
		}
	}
	return args
}

// text returns the SQL of the statement.
func (k bulkKey) text() string {
	switch {
	case k.n == 1 && k.b.Update:
		return updateText(k.b)
	case k.n == 1 && k.b.From != "":
		return phaseChangeText(k.b, slices.Repeat([]string{"?"}, len(k.b.Columns)), k.b.From+" AS o", "?")
	case k.n == 1:
		return insertText(k.b)
	}
	values := make([]string, len(k.b.Columns))
	differingColumns := 0
	for c := range values {
		if values[c] = "?"; !k.isSame(c) {
			differingColumns++
			values[c] = fmt.Sprintf("v.column%d", differingColumns)
		}
	}
	row := "(" + placeholders(differingColumns) + ")"
	from := "(VALUES " + row + strings.Repeat(","+row, k.n-1) + ") AS v"
	switch {
	case k.b.Update:
		return updateFromText(k.b, values, from)
	case k.b.From != "":
		return phaseChangeText(k.b, values, from+" CROSS JOIN "+k.b.From+" AS o", values[k.b.Key])
	}
	// Without the WHERE, ON CONFLICT would be read as the condition of a join.
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s WHERE true %s", k.b.Table,
		k.b.ColumnList(), strings.Join(values, ","), from, k.b.Tail)
}

// insertText returns the SQL of an insert of one row.
func insertText(b *sqlstore.Bulk) string {
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) %s", b.Table, b.ColumnList(),
		placeholders(len(b.Columns)), b.Tail)
}

// updateText returns the SQL of an update of one row.
func updateText(b *sqlstore.Bulk) string {
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s=?", b.Table,
		assignments(b, slices.Repeat([]string{"?"}, len(b.Columns))), b.Columns[b.Key].Name)
}

// updateFromText returns the SQL of an update of the rows whose key is in from.
func updateFromText(b *sqlstore.Bulk, values []string, from string) string {
	return fmt.Sprintf("UPDATE %s SET %s FROM %s WHERE %s.%s=%s", b.Table,
		assignments(b, values), from, b.Table, b.Columns[b.Key].Name, values[b.Key])
}

// phaseChangeText returns the SQL of the first half of a change of phase, which inserts rows with
// what they carry of the old ones. The number is read from the old row, as each parameter is in the
// text once.
func phaseChangeText(b *sqlstore.Bulk, values []string, from, key string) string {
	values = slices.Clone(values)
	values[b.Key] = "o." + b.Columns[b.Key].Name
	names := b.ColumnList()
	for _, c := range b.Carried {
		names += "," + c.Name
		values = append(values, "o."+c.Name)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s=%s", b.Table, names,
		strings.Join(values, ","), from, values[b.Key], key)
}

// assignments returns the SET list of all columns but the key.
func assignments(b *sqlstore.Bulk, values []string) string {
	var all []string
	for c, col := range b.Columns {
		if c != b.Key {
			all = append(all, col.Name+"="+values[c])
		}
	}
	return strings.Join(all, ",")
}

// placeholders returns n parameters.
func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }
