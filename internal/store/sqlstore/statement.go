// Package sqlstore is the one implementation of the storage port, on
// database/sql. It holds every statement once, by name; the name is also its
// metric label. The packages sqlite and postgres open a database, run its
// schema, and give the few things that differ: see Session.
package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Statement is a named SQL text. It may hold these marks, which a Dialect
// replaces:
//
//	{for update}        lock the selected rows
//	{skip locked}       the same, passing over rows that are locked
//	{in $1}             "is one of the integers in $1" (see Session.Ints)
//	{blob in $1}        "is one of the byte strings in $1" (see Session.Idents)
//	{text in $1}        "is one of the texts in $1" (see Session.Texts)
//	{limit $1}          no more than so many rows
//	{each priority ...} selects seq, listed and key of the jobs of which the condition
//	                    holds and whose priority is from $6 to $7, of each priority
//	                    the first $5 at least by listed and key, for an order and a
//	                    limit to follow
type Statement struct {
	Name string
	SQL  string
}

// Dialect turns the marks of a statement into one database's SQL.
type Dialect struct {
	ForUpdate  string
	SkipLocked string
	In         string // with $n for the parameter
	BlobIn     string
	TextIn     string
	Limit      string
	// EachPriority has $n for the condition.
	EachPriority string

	texts sync.Map // *Statement to string: each is turned once
}

// Text returns the statement in the dialect.
func (d *Dialect) Text(s *Statement) string {
	if text, ok := d.texts.Load(s); ok {
		return text.(string)
	}
	text, _ := d.texts.LoadOrStore(s, d.translate(s))
	return text.(string)
}

func (d *Dialect) translate(s *Statement) string {
	text := strings.NewReplacer("{for update}", d.ForUpdate, "{skip locked}",
		d.SkipLocked).Replace(s.SQL)
	text = replaceMark(text, "{limit ", d.Limit)
	text = replaceMark(text, "{in ", d.In)
	text = replaceMark(text, "{each priority ", d.EachPriority)
	text = replaceMark(text, "{blob in ", d.BlobIn)
	return replaceMark(text, "{text in ", d.TextIn)
}

func replaceMark(text, mark, form string) string {
	for {
		i := strings.Index(text, mark)
		if i < 0 {
			return text
		}
		end := i + strings.IndexByte(text[i:], '}')
		param := text[i+len(mark) : end]
		text = text[:i] + strings.ReplaceAll(form, "$n", param) + text[end+1:]
	}
}

// Narrow are the statements whose cost must not grow with the table. The tests of
// each database look at their plans.
var Narrow = []*Statement{lockReady, lockDue, lockLapsed, nextDue, nextLease, settled, getEvents,
	dropHistory,
	getJobs, byAlias, listOwned, listChildren, children, sumSizes, getRecords, listRecords,
	oldRecords, lockSeqs, edgesFrom, edgesTo, ancestry, dependencies,
	searchAll, searchQueue, searchState, searchQueueState, getMessages[0], deadLetterColumns,
	oldDead}

// Column is a column of a bulk statement with the type it has in PostgreSQL.
type Column struct {
	Name string
	Type string // int8, text or bytea
}

// Bulk is a statement that is run for many rows at once: row by row with a
// prepared statement in one database, as a set in the other.
type Bulk struct {
	Name    string
	Columns []Column
	Key     int // a column that differs from row to row
	// for one row, parameters in the order of Columns: ?, as SQLite takes $1 for a name and looks
	// it up
	Row string
	// Rows is Row for so many rows, nil where each needs a statement of its own.
	Rows func(n int) string

	set  func(values []string, from string) string
	sets sync.Map // uint64 to string
}

// Set returns the statement for a set of rows. A column that has the same value
// in every row (its bit of same is set) is one parameter, any other one array:
// arrays are what costs, and in most sets few columns differ. The key differs.
func (b *Bulk) Set(same uint64) string {
	if text, ok := b.sets.Load(same); ok {
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
	text, _ := b.sets.LoadOrStore(same, b.set(values, from))
	return text.(string)
}

// insertInto returns the bulk statement that inserts rows in their order, which is also
// that in which arrays are unnested; tail follows the values, such as a conflict clause.
func insertInto(name, table string, cols []Column, tail string) *Bulk {
	list := columnNames(cols)
	rows := func(n int) string {
		values := strings.Repeat(",("+params(len(cols))+")", n)[1:]
		return fmt.Sprintf("INSERT INTO %s (%s) VALUES %s %s", table, list, values, tail)
	}
	return &Bulk{Name: name, Columns: cols, Row: rows(1), Rows: rows,
		set: func(values []string, from string) string {
			return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s %s", table, list,
				strings.Join(values, ","), from, tail)
		},
	}
}

// updateOf returns the bulk statement that sets all columns but the last, which
// is the key.
func updateOf(name, table string, cols []Column) *Bulk {
	last := len(cols) - 1
	assign := func(values []string) string {
		list := make([]string, last)
		for i, c := range cols[:last] {
			list[i] = c.Name + "=" + values[i]
		}
		return strings.Join(list, ",")
	}
	key := cols[last].Name
	return &Bulk{Name: name, Columns: cols, Key: last,
		Row: fmt.Sprintf("UPDATE %s SET %s WHERE %s=?", table,
			assign(slices.Repeat([]string{"?"}, last)), key),
		set: func(values []string, from string) string {
			return fmt.Sprintf("UPDATE %s SET %s FROM %s WHERE %s.%s=u.%s", table, assign(values),
				from, table, key, key)
		},
	}
}

func columnNames(cols []Column) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return strings.Join(names, ",")
}

func params(n int) string { return strings.Repeat("?,", n-1) + "?" }
