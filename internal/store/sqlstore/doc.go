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
// A job is two rows. That of jobs has the facts, which are written once; that of the table of its
// phase has the state: waiting, ready, leases or finished (decision 0043). A move takes the row
// from one of them and puts a row into another, each of which has just the index of its phase:
//
//	            due              claim            finish
//	waiting ─────────▶ ready ───────────▶ leases ─────────▶ finished
//	by due time        in claim order     by end            by age
//
// The row of jobs is the lock of a job: see load.go for how states are read under it, and places.go
// for how a write knows where a job is.
//
// Bodies of more than maxInlineBody bytes are kept out of line, in the table bodies, so that
// the rows that claims scan stay small (C-17).
package sqlstore
