package postgres

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A set of rows is one statement. A column that has the same value in every row is one
// parameter; any other column is one array, unnested into the rows of u. Arrays are the
// expensive part, and in most sets few columns differ. The key always differs, so that there is
// a row of u for each row of the set. Arrays are unnested in the order of the rows.

// parameters returns the statement for a set of rows and its arguments: one value for each
// column that is the same in all rows, and one array for each other column. There must be at
// least one row, and every value must be of its column's type, or nil for bytea.
func parameters(b *sqlstore.Bulk, rows [][]any) (text string, args []any) {
	args = make([]any, len(b.Columns))
	var same uint64
	for c, col := range b.Columns {
		if c != b.Key && sameInAll(rows, c) {
			same |= 1 << c
			args[c] = rows[0][c]
			continue
		}
		switch col.Type {
		case "int8":
			args[c] = array(rows, c, func(v any) int64 { return v.(int64) })
		case "text":
			args[c] = array(rows, c, func(v any) string { return v.(string) })
		default:
			args[c] = array(rows, c, func(v any) []byte { b, _ := v.([]byte); return b })
		}
	}
	return bulkText(b, same), args
}

// sameInAll reports whether column c has one value in all rows; NULL and an empty body differ.
func sameInAll(rows [][]any, c int) bool {
	first := rows[0][c]
	raw, isBytes := first.([]byte)
	for _, row := range rows[1:] {
		other, otherBytes := row[c].([]byte)
		if isBytes != otherBytes || (isBytes && !bytes.Equal(raw, other)) ||
			(!isBytes && row[c] != first) {
			return false
		}
	}
	return true
}

// array returns the values of a column as a slice that the driver sends as an array.
func array[T any](rows [][]any, col int, cast func(any) T) []T {
	values := make([]T, len(rows))
	for i, row := range rows {
		values[i] = cast(row[col])
	}
	return values
}

// bulkTexts has the text of each bulkKey that was used, a string.
var bulkTexts sync.Map

type bulkKey struct {
	b    *sqlstore.Bulk
	same uint64 // a bit for each column that has the same value in every row
}

// bulkText returns the SQL of a bulk statement. Few patterns of equal columns occur, so few
// texts are made and prepared (decision 0008).
func bulkText(b *sqlstore.Bulk, same uint64) string {
	key := bulkKey{b, same}
	if text, ok := bulkTexts.Load(key); ok {
		return text.(string)
	}
	values := make([]string, len(b.Columns))
	var arrays, names []string
	for i, c := range b.Columns {
		if same&(1<<i) != 0 {
			values[i] = fmt.Sprintf("$%d::%s", i+1, c.Type)
			continue
		}
		values[i] = "u." + c.Name
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.Type))
		names = append(names, c.Name)
	}
	from := fmt.Sprintf("unnest(%s) AS u(%s)", strings.Join(arrays, ","), strings.Join(names, ","))
	text := insertText(b, values, from)
	switch {
	case b.Update:
		text = updateText(b, values, from)
	case b == sqlstore.InsertJobs:
		text = insertJobsText(b, values, from)
	}
	bulkTexts.Store(key, text)
	return text
}

// insertText returns an insert of the rows of from, in their order.
func insertText(b *sqlstore.Bulk, values []string, from string) string {
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s %s", b.Table, b.ColumnList(),
		strings.Join(values, ","), from, b.Tail)
}

// insertJobsText numbers the rows in their order and stores them in that of their identities.
// So two transactions with the same jobs meet in the same order and cannot deadlock. RETURNING
// names the jobs that were stored: those that conflict are not in it.
func insertJobsText(b *sqlstore.Bulk, values []string, from string) string {
	return fmt.Sprintf(`WITH u AS MATERIALIZED (SELECT nextval('job_numbers') AS seq,u.* FROM %s)
		INSERT INTO %s (%s,seq) SELECT %s,seq FROM u ORDER BY u.ident,seq
		%s RETURNING ident,seq`, from, b.Table, b.ColumnList(), strings.Join(values, ","), b.Tail)
}

// updateText returns an update of the rows whose key is in from.
func updateText(b *sqlstore.Bulk, values []string, from string) string {
	var assign []string
	for i, c := range b.Columns {
		if i != b.Key {
			assign = append(assign, c.Name+"="+values[i])
		}
	}
	key := b.Columns[b.Key].Name
	return fmt.Sprintf("UPDATE %s SET %s FROM %s WHERE %s.%s=u.%s", b.Table,
		strings.Join(assign, ","), from, b.Table, key, key)
}
