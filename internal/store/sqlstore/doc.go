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
// A transaction passes through these layers in this order:
//
//	sqlite.Store.Update    begins it on a Session, NewTx(session)
//	engine, in fn          Tx.Load, Tx.Lock...: rows become jobs
//	                       Tx.Apply(changes): check, then one statement for each kind of change
//	sqlite.Store.Update    Tx.Failed decides between COMMIT and ROLLBACK
//
// The first statement that fails ends the transaction: Tx keeps its error, runs nothing more
// and returns the error from every later method, so that no caller can go on with half of a
// change.
//
// Bodies of more than maxInlineBody bytes are kept out of line, in the table bodies, so that
// the rows that claims scan stay small (C-17).
package sqlstore
