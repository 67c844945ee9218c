// Package sqlstore is the one implementation of the storage port, on
// database/sql. It holds every statement once, by name; the name is also its
// metric label. The packages sqlite and postgres open a database, run its
// schema, and give the few things that differ: see Session.
package sqlstore

import (
	"fmt"
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

	texts sync.Map // *Statement to string: each is turned once
}

// Text returns the statement in the dialect.
func (d *Dialect) Text(s *Statement) string {
	if text, ok := d.texts.Load(s); ok {
		return text.(string)
	}
	text, _ := d.texts.LoadOrStore(s, d.turn(s))
	return text.(string)
}

func (d *Dialect) turn(s *Statement) string {
	text := strings.NewReplacer("{for update}", d.ForUpdate, "{skip locked}", d.SkipLocked).Replace(s.SQL)
	text = replaceMark(text, "{in ", d.In)
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
var Narrow = []*Statement{lockReady, lockDue, lockLapsed, nextDue, nextLease, settled, getEvents, dropHistory,
	getJobs, lockSeqs, lockDependents, getEdges, getMessages, dead, oldDead}

// Column is a column of a bulk statement with the type it has in PostgreSQL.
type Column struct {
	Name string
	Type string // int8, text or bytea
}

// Bulk is a statement that is run for many rows at once: row by row with a
// prepared statement in one database, with one array a column in the other.
type Bulk struct {
	Name    string
	Columns []Column
	Row     string // for one row, parameters in the order of Columns: ?, as SQLite takes $1 for a name and looks it up
	Rows    string // for arrays of the columns
}

// insertInto returns the bulk statement that inserts rows; tail follows the
// values, such as a conflict clause.
func insertInto(name, table string, cols []Column, tail string) *Bulk {
	list := columnNames(cols)
	return &Bulk{Name: name, Columns: cols,
		Row:  fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) %s", table, list, params(len(cols)), tail),
		Rows: fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s ORDER BY ord %s", table, list, list, unnest(cols), tail),
	}
}

// updateOf returns the bulk statement that sets all columns but the last, which
// is the key.
func updateOf(name, table string, cols []Column) *Bulk {
	key := cols[len(cols)-1].Name
	var row, rows []string
	for _, c := range cols[:len(cols)-1] {
		row = append(row, c.Name+"=?")
		rows = append(rows, fmt.Sprintf("%s=u.%s", c.Name, c.Name))
	}
	return &Bulk{Name: name, Columns: cols,
		Row:  fmt.Sprintf("UPDATE %s SET %s WHERE %s=?", table, strings.Join(row, ","), key),
		Rows: fmt.Sprintf("UPDATE %s SET %s FROM %s WHERE %s.%s=u.%s", table, strings.Join(rows, ","), unnest(cols), table, key, key),
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

// unnest turns one array parameter a column into the rows u(columns…, ord), in
// the order of the arrays.
func unnest(cols []Column) string {
	args := make([]string, len(cols))
	for i, c := range cols {
		args[i] = fmt.Sprintf("$%d::%s[]", i+1, c.Type)
	}
	return fmt.Sprintf("unnest(%s) WITH ORDINALITY AS u(%s,ord)", strings.Join(args, ","), columnNames(cols))
}
