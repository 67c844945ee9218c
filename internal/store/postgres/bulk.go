package postgres

import (
	"fmt"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A set of rows is one statement. A column that has the same value in every row is one
// parameter; any other column is one array, unnested into the rows of u. Arrays are the
// expensive part, and in most sets few columns differ. The key always differs, so that there is
// a row of u for each row of the set. Arrays are unnested in the order of the rows.

// parameters returns the statement for a set of rows and its arguments.
func parameters(b *sqlstore.Bulk, set *sqlstore.BulkValues) (text string, args []any) {
	args, same := arguments(nil, b.Columns, set)
	return bulkText(b, same), args
}

// arguments appends those of columns: one value for each column that is common to all rows, and
// one array for each other column. Every value must be of its column's type, or nil. It returns
// the columns that are common as bits.
func arguments(args []any, cols []sqlstore.Column,
	set *sqlstore.BulkValues) (all []any, same uint64) {
	for c, col := range cols {
		if set.IsCommon(c) {
			same |= 1 << c
			args = append(args, set.Value(0, c))
			continue
		}
		switch col.Type {
		case sqlstore.Integer:
			args = append(args, array[int64](set, c))
		case sqlstore.Text:
			args = append(args, array[string](set, c))
		default:
			args = append(args, array[[]byte](set, c))
		}
	}
	return args, same
}

// array returns the values of a column as a slice that the driver sends as an array: of pointers
// where some are NULL.
func array[T any](set *sqlstore.BulkValues, col int) any {
	values := make([]T, set.Len())
	for i := range values {
		value, ok := set.Value(i, col).(T)
		if !ok {
			return nullableArray[T](set, col)
		}
		values[i] = value
	}
	return values
}

func nullableArray[T any](set *sqlstore.BulkValues, col int) []*T {
	values := make([]*T, set.Len())
	for i := range values {
		if value, ok := set.Value(i, col).(T); ok {
			values[i] = &value
		}
	}
	return values
}

// texts has the text of each textKey that was used, a string. Few patterns of equal columns occur,
// so few texts are made and prepared (decision 0008).
var texts sync.Map

// textKey is what a statement for a set depends on.
type textKey struct {
	of   any    // a *sqlstore.Bulk or a *sqlstore.PhaseChange
	same uint64 // a bit for each column that has the same value in every row
	// sameStates, phases and searchable are for an insert of jobs.
	sameStates uint64
	phases     uint8
	searchable bool
}

// textOf returns the text of a key, which newText makes for its first use.
func textOf(key textKey, newText func() string) string {
	if text, ok := texts.Load(key); ok {
		return text.(string)
	}
	text := newText()
	texts.Store(key, text)
	return text
}

// unnestedRows are the expressions of the values of columns, and the arrays that they are unnested
// from.
type unnestedRows struct {
	values        []string
	arrays, names []string
}

// typeNames are the names of the types of columns.
var typeNames = [...]string{sqlstore.Integer: "int8", sqlstore.Text: "text",
	sqlstore.Bytes: "bytea"}

// add adds columns. The number of their first parameter is first, and prefix comes before their
// names in u.
func (r *unnestedRows) add(cols []sqlstore.Column, same uint64, first int, prefix string) {
	for i, c := range cols {
		if same&(1<<i) != 0 {
			r.values = append(r.values, fmt.Sprintf("$%d::%s", first+i, typeNames[c.Type]))
			continue
		}
		r.values = append(r.values, "u."+prefix+c.Name)
		r.arrays = append(r.arrays, fmt.Sprintf("$%d::%s[]", first+i, typeNames[c.Type]))
		r.names = append(r.names, prefix+c.Name)
	}
}

// from returns the arrays as the table u.
func (r *unnestedRows) from() string {
	return fmt.Sprintf("unnest(%s) AS u(%s)", strings.Join(r.arrays, ","),
		strings.Join(r.names, ","))
}

// bulkText returns the SQL of a bulk statement.
func bulkText(b *sqlstore.Bulk, same uint64) string {
	return textOf(textKey{of: b, same: same}, func() string {
		var r unnestedRows
		r.add(b.Columns, same, 1, "")
		if b.Update {
			return updateText(b, r.values, r.from())
		}
		return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s %s", b.Table, b.ColumnList(),
			strings.Join(r.values, ","), r.from(), b.Tail)
	})
}

// updateText returns an update of the rows whose key is in from.
func updateText(b *sqlstore.Bulk, values []string, from string) string {
	var assignments []string
	for i, c := range b.Columns {
		if i != b.Key {
			assignments = append(assignments, c.Name+"="+values[i])
		}
	}
	key := b.Columns[b.Key].Name
	return fmt.Sprintf("UPDATE %s SET %s FROM %s WHERE %s", b.Table, strings.Join(assignments, ","),
		from, indexLookup(b.Table+"."+key, "u."+key))
}

// indexLookup returns the condition that a column of a table has the value of another one, in a
// form that the planner can only meet by looking up each value in the index of the column. With =
// it reads the whole index once instead where its statistics say that the table is nearly empty, as
// they do of a table that vacuum found at a moment without jobs.
func indexLookup(column, value string) string {
	return fmt.Sprintf("%s=ANY(ARRAY[%s])", column, value)
}

// phaseChangeText returns a change of phase: rows that are deleted from one table are inserted into
// the other, with the values of the set and those that are carried.
func phaseChangeText(m *sqlstore.PhaseChange, same uint64) string {
	return textOf(textKey{of: m, same: same}, func() string {
		var r unnestedRows
		r.add(m.Columns, same, 1, "")
		inserted := make([]string, 0, len(m.Columns)+len(m.Carried))
		state := ""
		for i, value := range r.values {
			if value = strings.Replace(value, "u.", "deleted.", 1); m.Columns[i].Name == "state" {
				state = value
			}
			inserted = append(inserted, value)
		}
		returned := ""
		for _, c := range m.Carried {
			returned += ",o." + c.Name
			inserted = append(inserted, "deleted."+c.Name)
		}
		updateSearchable := ""
		if m.Searchable {
			updateSearchable = ", searched AS (UPDATE searchable AS s SET state=" + state +
				" FROM deleted WHERE " + indexLookup("s.seq", "deleted.seq") + ")"
		}
		return fmt.Sprintf("WITH deleted AS (DELETE FROM %s AS o USING %s WHERE %s "+
			"RETURNING u.*%s)%s INSERT INTO %s (%s%s) SELECT %s FROM deleted", m.From, r.from(),
			indexLookup("o.seq", "u.seq"), returned, updateSearchable, m.Table, m.ColumnList(),
			strings.ReplaceAll(returned, "o.", ""), strings.Join(inserted, ","))
	})
}

// deleteText returns a statement that deletes jobs from the table jobs and from others.
func deleteText(others []string) string {
	parts := make([]string, len(others))
	for i, table := range others {
		parts[i] = fmt.Sprintf("in_%s AS (DELETE FROM %[1]s WHERE seq=ANY($1::int8[]))", table)
	}
	return "WITH " + strings.Join(parts, ", ") + " DELETE FROM jobs WHERE seq=ANY($1::int8[])"
}
