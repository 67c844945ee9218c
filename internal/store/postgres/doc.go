// Package postgres opens the storage port on PostgreSQL.
//
//	Update, View ──> slot ──> connection of the pool: BEGIN, fn, COMMIT
//	Notify ──────> one goroutine ──> NOTIFY ~~> LISTEN of the other nodes
//
// Several nodes share a database. Row locks that skip locked rows keep their claims apart,
// advisory locks order what must happen one at a time, and LISTEN and NOTIFY wake the workers of
// other nodes. All nodes use the clock of the database. A set of rows goes to the server as
// arrays, one statement for all of it.
//
// Every statement has a time limit, also while a lock is awaited or a transaction is idle. Update
// runs a transaction again after a serialization failure, a deadlock or an insert that met a taken
// identity (see conflictPeriod), and nothing else is retried here. Two breakers keep a node from
// asking again and again a database that refuses connections or writes, see breaker.
//
// While any session holds a snapshot, the server keeps what was removed since. Claims and sweeps
// then begin behind it, see watermarks, and counters are spread, see abandonedSlots.
//
// A connection pooler in transaction mode may be between node and server, see route.
package postgres
