package sqlstore

import (
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Statement is a named SQL text. It may hold these marks, which a Dialect replaces:
//
//	{for update}        lock the selected rows
//	{short timeout}     stands behind the tables: wait for no lock for long in this transaction
//	{skip locked}       lock the selected rows and pass over those that are locked
//	{skip locked jobs}  the same for the rows of j, which is jobs, and then of s
//	{for lease update}  lock the selected rows, but not against a worker that records an end
//	{run end s}         1 where the end of the run of a row s of leases is recorded, else 0
//	{in $1}             is one of the integers in $1, see Session.Ints
//	{identities $1}     the row j of jobs has one of the identities in $1, see Session.Identities
//	{blob in $1}        is one of the byte strings in $1, see Session.IdentityHashes
//	{text in $1}        is one of the texts in $1, see Session.Texts
//	{each text in $1}   selects the texts in $1, as value
//	{among SELECT ...}  is one of what the select returns, which is read once for each row of the
//	                    tables before
//	{limit $1}          at most $1 rows
//	{unindexed column}  that column, which no index is to be looked up by
//	{within queue}      has $5 in that column of an index that ends with seq, and a seq above $1
//	                    and below $2. The order is that of the column and seq.
//	{after contract}    has $1 in that column of an index that ends with id, and an id above $2;
//	                    ordered by id
//	{between contract}  has $1 in that column of an index that goes on with id, and an id above $2
//	                    and not above $3
//	{each priority ...} selects seq, listed and key from the table that meet the condition and
//	                    have a priority from $6 to $7: of each priority, and of those without
//	                    one, at least the first $5 by listed and key. ORDER BY and a limit
//	                    follow the mark.
//
// Values travel as parameters $1, $2 … alone, never as text. Statements are package variables: a
// Dialect and the prepared statements of a session find their texts by the address.
type Statement struct {
	Name string
	SQL  string
}

// Dialect turns the marks of a statement into one database's SQL. A field may be empty where a
// database needs nothing: SQLite, with its one writer, locks no rows. A Dialect is safe for
// concurrent use.
type Dialect struct {
	ForUpdate        string
	ShortLockTimeout string
	SkipLocked       string
	SkipLockedJobs   string
	ForLeaseUpdate   string
	// In, Identities, BlobIn, TextIn, EachText and Limit have $n where the parameter stands,
	// Unindexed, Within, After and Between where the column, RunEnd where the table, Among where
	// the select and EachPriority where the table and the condition stand.
	In           string
	Identities   string
	BlobIn       string
	TextIn       string
	EachText     string
	Among        string
	Limit        string
	Unindexed    string
	Within       string
	After        string
	Between      string
	RunEnd       string
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

// translate replaces every mark of a statement, each kind of mark in one pass.
func (d *Dialect) translate(s *Statement) string {
	text := strings.ReplaceAll(s.SQL, "{for update}", d.ForUpdate)
	text = strings.ReplaceAll(text, "{short timeout}", d.ShortLockTimeout)
	text = strings.ReplaceAll(text, "{skip locked}", d.SkipLocked)
	text = strings.ReplaceAll(text, "{skip locked jobs}", d.SkipLockedJobs)
	text = strings.ReplaceAll(text, "{for lease update}", d.ForLeaseUpdate)
	text = replaceMark(text, "{limit ", d.Limit)
	text = replaceMark(text, "{unindexed ", d.Unindexed)
	text = replaceMark(text, "{among ", d.Among)
	text = replaceMark(text, "{each text in ", d.EachText)
	text = replaceMark(text, "{run end ", d.RunEnd)
	text = replaceMark(text, "{in ", d.In)
	text = replaceMark(text, "{within ", d.Within)
	text = replaceMark(text, "{after ", d.After)
	text = replaceMark(text, "{between ", d.Between)
	text = replaceMark(text, "{each priority ", d.EachPriority)
	text = replaceMark(text, "{identities ", d.Identities)
	text = replaceMark(text, "{blob in ", d.BlobIn)
	return replaceMark(text, "{text in ", d.TextIn)
}

// replaceMark replaces each "mark argument}" by form with the argument for $n. The argument ends at
// the next brace, so it must not contain one.
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

// MustUseIndex lists the statements whose cost must not grow with the table, those of lists with
// what a page passes over. Each database has a test that reads their query plans.
var MustUseIndex = append(append(listings(), indexStatements()...), LockReady, readyNumbers,
	lockDue, LockExpired, NextDue, NextLease, lockSkipLocked, lockForLease, lockForLeaseByID,
	finished, countAhead, readySince, getEvents, deleteEvents,
	loads[load{byID, store.AllBodies, false}], loads[load{byAlias, store.AllBodies, false}],
	lockDefinitions[load{bySeq, store.NoBodies, true}], lockWithoutTimeout,
	getStates[store.NoBodies],
	countOwned, countFinished, countSearchable, countSearchableOfAll, countKind, workersOfFinished,
	earlierWorkers[job.Waiting], earlierWorkers[job.Ready], children, sumSizes, getRecords,
	listRecords, listEachRecords, oldRecords, edgesFrom, edgesTo, allEdgesFrom, dependencies,
	searchAll, searchQueue, searchState, searchQueueState,
	getMessages[0], getDeadLetters.full, getDeadLetters.withoutJobs, deadLettersOfQueue.full,
	deadLettersOfQueue.withoutJobs, deadLettersOfFingerprint.full,
	deadLettersOfFingerprint.withoutJobs, oldDeadLetters, recentDeadLetters, deadLettersByID,
	deadLettersOf, deadLettersWithoutFingerprint, groupDeadLetters, getQueueCount,
	getQueueCountWithDone)

// Type is what a column holds. Each database has its own names of types.
type Type uint8

// The types of columns.
const (
	Integer Type = iota // of 64 bits
	Text
	Bytes
)

// Column is a column of a bulk statement.
type Column struct {
	Name string
	Type Type
}

// Bulk describes a statement that writes many rows, which are values in the order of its
// columns. Each database makes its own SQL of it.
type Bulk struct {
	Name    string
	Table   string
	Columns []Column
	// Key is the index of a column that differs from row to row.
	Key int
	// Update says that the other columns of the rows with the key are set. Without it the rows
	// are inserted in their order.
	Update bool
	// Tail follows the values of an insert, such as a conflict clause.
	Tail string
	// From is set for a change of phase: the rows of that table with the keys are taken from it and
	// inserted into Table with the values of the columns. Those in Carried keep the values they
	// had.
	From    string
	Carried []Column
}

// ColumnList returns the names of the columns as SQL has them.
func (b *Bulk) ColumnList() string { return columnNames(b.Columns) }

// insertInto returns an insert of rows.
func insertInto(name, table string, cols []Column, tail string) *Bulk {
	return &Bulk{Name: name, Table: table, Columns: cols, Tail: tail}
}

// updateOf returns an update that sets all columns but the last, which is the key.
func updateOf(name, table string, cols []Column) *Bulk {
	return &Bulk{Name: name, Table: table, Columns: cols, Key: len(cols) - 1, Update: true}
}

// columnNames returns the names of columns as SQL lists them.
func columnNames(cols []Column) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return strings.Join(names, ",")
}
