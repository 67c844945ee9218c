// Package sqlstore is the one implementation of the storage port, on database/sql.
//
//	store.Tx, store.Reader     the port
//	        |
//	        Tx                 methods, statements by name, rows <-> jobs
//	        |
//	     Session               one transaction of one database
//	     /      \
//	sqlite     postgres        marks of statements, bulk work, errors, numbers, clock
//
// It holds every statement once, by a name that is also its metric label. Where the databases
// differ, a statement has a mark that a Dialect replaces, or a Session does the work: each
// makes its own SQL of a Bulk, which lists columns. The columns of a job stand in columns.go.
//
// Bodies of more than maxInlineBody bytes are kept out of line, in the table bodies, so that
// the rows that claims scan stay small.
package sqlstore
