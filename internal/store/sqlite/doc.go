// Package sqlite opens the storage port on SQLite.
//
//	Update ──> requests ──> writer: BEGIN, fn, fn, fn …, COMMIT (one fsync) ──> answers
//	View ────> readers, each with a connection of its own and a snapshot
//
// A single goroutine, the writer, owns the one writing connection. It takes an update and all that
// wait behind it, up to maxGroupSize and maxGroupTime, into one transaction, and answers them after
// its fsync: the fsync is the expensive part, and a group shares it. Each member runs inside a
// savepoint, so its failure undoes its own changes alone. Readers use the write-ahead log (WAL) and
// do not wait for the writer. A database in memory has one connection, where the writer also runs
// the views.
//
// The writer has the jobs that it has written or claimed in memory, so that it need not read them
// again: see jobCache. It runs a set of changes as few statements, see bulk.go.
//
// After a failed fsync the log cannot be trusted. The writer then closes the connection and
// opens the database again, which writes what the log has into the database file and begins a
// new log. Until that succeeds every update fails with Unavailable.
package sqlite
