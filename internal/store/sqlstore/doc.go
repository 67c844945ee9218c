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
// It holds every shared statement once, by a name that is also its metric label. Where the
// databases differ (decision 0104)
//
//   - a statement has a mark that a Dialect replaces,
//   - a Session runs a statement of its own in the place of an exported one, or
//   - a Session does the work: each makes its own SQL of a Bulk, which lists columns.
//
// A statement that one database alone needs is in the package of that database. The columns of a
// job are in columns.go.
//
// A transaction passes through these layers in this order:
//
//	sqlite.Store.Update    begins it on a Session, NewTx(session)
//	engine, in fn          Tx.Load, Tx.Lock...: rows become jobs
//	                       Tx.Apply(changes): check, then one statement for each kind of change
//	sqlite.Store.Update    Tx.Failed decides between COMMIT and ROLLBACK
//
// The first statement that fails ends the transaction: Tx keeps its error, runs nothing more and
// returns the error from every later method, so that no caller can go on with half of a change.
//
// A job is two rows. That of jobs has the definitions, which are written once; that of the table of
// its phase has the state: waiting, ready, leases or finished (decision 0043). A change of phase
// takes the row from one of them and puts a row into another, each of which has just the index of
// its phase:
//
//	            due              claim            finish
//	waiting ─────────▶ ready ───────────▶ leases ─────────▶ finished
//	by due time        in claim order     by end            by age
//
// The row of jobs is the lock of a job: see load.go for how states are read under it, and
// locations.go for how a write knows where a job is.
//
// # A new column of a job
//
// The first three places below are all that storage alone needs. A column that jobs are submitted
// with takes the others as well, and those of the contract. Reflecting tests of storetest, and
// fields_test.go of the engine, fail until the column is stored, read back, and carried through
// submit, replace and edit.
//
//   - The field is in job.Job. A body is a job.Body, and a case of Job.Body.
//   - The column is a row of columns.go. What never changes but by the submitter of the job is in
//     definitionColumns, the table jobs, with definitionGroup; the group 0 is for the identity
//     alone. What transitions change is in stateColumns, the tables of the phases, with stateGroup,
//     or with leaseGroup where it changes within a state; applyTransition of the engine sets it. A
//     body is a row of bodyColumns and a bit of definitionBodies or stateBodies; its constant is
//     before Progress if it is of the definition, else between Progress and Failure, and
//     newStateWriters (phase_changes.go) lists those of the state.
//   - A migration in sqlite/migrations and in postgres/migrations has one number for both, above
//     the highest of the two folders (gaps are right). It alters jobs, or each table of a phase.
//     Columns are NULL for 0 and for a time that is not set, times and durations are in
//     microseconds, and texts are NOT NULL with the empty text as their default.
//     docs/scaling.md says what it does to nodes of the version before, which TestOlderNode tries.
//   - storetest lists columns by hand: fullJob and keepDefinition (jobs.go) give a value and say
//     whether a submitter sets it, updateLeasesWrites (jobs.go) and written (apply.go) have those
//     of leaseGroup, and RunLayout (layout.go) clears the field, which rows of an older schema
//     lack. badText (jobs.go) has the texts that a database may refuse.
//   - In the engine, copySubmitted (submit.go) has what a submitter sets, which submit, replace and
//     edit share; engineFields of fields_test.go has what the engine itself sets. Of that, redefine
//     (insert.go) resets what a replaced job begins anew, such as counters. The model of
//     model_test.go does the same.
//   - What a client sends or sees of it is the concern of contracts: see package contract.
//
// # The claim order
//
// job.CompareClaim is the order in which ready jobs are claimed. SQL says it again wherever jobs
// are taken or counted in it. readyOrder of storetest compares the two, with jobs that have to
// differ in a new criterion; claim_order_test.go of each database has what is equal in all others.
// Another criterion behind the order time is a change of all these; one before it also changes what
// a watermark is (postgres/watermarks.go), as that is an order time within one priority.
//
//   - CompareClaim of package job, and its tests.
//   - The claims: LockReady, and readyNumbers in its place where there is a cache, as on SQLite
//     (jobs.go); lockReadyFrom, readyWatermarks and readyHeads of PostgreSQL, for queues that have
//     a watermark (postgres/watermarks.go, queue_watermarks.go).
//   - What else goes by it: countAhead and groupsOfReady (count.go), readySince (queues.go).
//   - The column: it is one of always in columns.go, and orderTimeColumn shows how a row of ready
//     gets a copy of what is written once.
//   - The index ready_order of both databases and ready_late of PostgreSQL: a migration.
//
// # Bodies
//
// Bodies of more than maxInlineBody bytes are kept out of line, in the table bodies, so that the
// rows that claims scan stay small (C-17).
package sqlstore
