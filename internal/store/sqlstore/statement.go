package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Statement is a named SQL text. It may hold these marks, which a Dialect replaces:
//
//	{for update}        lock the selected rows
//	{skip locked}       lock the selected rows and pass over those that are locked
//	{in $1}             is one of the integers in $1, see Session.Ints
//	{blob in $1}        is one of the byte strings in $1, see Session.IdentityHashes
//	{text in $1}        is one of the texts in $1, see Session.Texts
//	{limit $1}          at most $1 rows
//	{each priority ...} selects seq, listed and key of the jobs that meet the condition and
//	                    have a priority from $6 to $7: of each priority at least the first
//	                    $5 by listed and key. ORDER BY and a limit follow the mark.
type Statement struct {
	Name string
	SQL  string
}

// Dialect turns the marks of a statement into one database's SQL.
type Dialect struct {
	ForUpdate  string
	SkipLocked string
	// In, BlobIn, TextIn and Limit have $n where the parameter stands, EachPriority where the
	// condition stands.
	In           string
	BlobIn       string
	TextIn       string
	Limit        string
	EachPriority string

	texts sync.Map // *Statement to string: each is translated once
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
	text := strings.ReplaceAll(s.SQL, "{for update}", d.ForUpdate)
	text = strings.ReplaceAll(text, "{skip locked}", d.SkipLocked)
	text = replaceMark(text, "{limit ", d.Limit)
	text = replaceMark(text, "{in ", d.In)
	text = replaceMark(text, "{each priority ", d.EachPriority)
	text = replaceMark(text, "{blob in ", d.BlobIn)
	return replaceMark(text, "{text in ", d.TextIn)
}

// replaceMark replaces each "mark argument}" by form with the argument for $n.
func replaceMark(text, mark, form string) string {
	for {
		i := strings.Index(text, mark)
		if i < 0 {
			return text
		}
		end := i + strings.IndexByte(text[i:], '}')
		argument := text[i+len(mark) : end]
		text = text[:i] + strings.ReplaceAll(form, "$n", argument) + text[end+1:]
	}
}

// Narrow lists the statements whose cost must not grow with the table. Each database has a
// test that reads their query plans.
var Narrow = []*Statement{lockReady, lockDue, lockExpired, nextDue, nextLease, finished, getEvents,
	dropHistory,
	getJobs, byAlias, listOwned, listChildren, children, sumSizes, getRecords, listRecords,
	oldRecords, lockSeqs, edgesFrom, edgesTo, ancestry, dependencies,
	searchAll, searchQueue, searchState, searchQueueState, getMessages[0], getDeadLetters,
	oldDeadLetters}

// Column is a column of a bulk statement with the type it has in PostgreSQL.
type Column struct {
	Name string
	Type string // int8, text or bytea
}

// Bulk is a statement that writes many rows. SQLite runs it row by row, or as an insert of
// several rows: a prepared statement costs no round trip there. PostgreSQL runs it once with
// one array for each column.
type Bulk struct {
	Name    string
	Columns []Column
	Key     int // index of a column that differs from row to row
	// Row is the statement for one row, its parameters in the order of Columns. They are
	// written ?, because SQLite takes $1 for a name and looks it up.
	Row string
	// Rows returns Row for n rows; nil where each row needs a statement of its own.
	Rows func(n int) string

	set  func(values []string, from string) string // see Set
	sets sync.Map                                  // uint64 to string
}

// Set returns the statement for a set of rows. A column whose bit of same is set has the same
// value in every row and is one parameter; any other column is one array, unnested into the
// rows of u. Arrays are the expensive part, and in most sets few columns differ. The key
// always differs, so that there is a row of u for each row of the set.
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

// insertInto returns a bulk statement that inserts rows in their order, which arrays keep when
// they are unnested. tail follows the values, such as a conflict clause.
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

// updateOf returns a bulk statement that sets all columns but the last, which is the key.
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
