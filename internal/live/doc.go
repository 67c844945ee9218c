// Package live reports to watchers what changes, about once a second: the counts of queues, the
// jobs that they name, and bulk operations (AD-061).
//
//	store ◀── one reading a second ── Monitor ──▶ Watch ──▶ GET /admin/v1/events
//	          while somebody watches   │
//	                                   └────▶ Watch ──▶ another one
//
// A Monitor keeps what it has read last, and for each queue, job and operation the number of the
// reading in which it has changed last. A Watch keeps only the number up to which it has reported
// to its caller, so it costs the same whether it is read or not: who comes late gets what holds
// then, and no list of what happened meanwhile is kept for anybody.
//
// An id is the node's name and such a number. With it another Watch goes on behind the first one.
// Another node, or the same one after a restart, begins with a reset.
package live
