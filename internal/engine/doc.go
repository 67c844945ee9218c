// Package engine holds the verbs of Millrace: submit, claim, start, heartbeat, finish, release,
// requeue, cancel, retry, remove, query. It owns every transaction, and it knows no contract by
// name and no database by kind.
//
// A contract hands in its state machine and a few rules, see JobType; from then on the same code
// serves all of its jobs. What the machine does not allow is a Conflict.
//
// # The life of a transaction
//
// A verb is a function of a unit, the unit of work of one transaction (update.go, unit.go):
//
//	verb ─▶ Engine.update ─▶ store.Update begins a transaction
//	                            newUnit, clockGuard.observe, loadSettings
//	                            the verb: locks jobs, moves them in memory (unit.transition)
//	                            flush: parents and dependents, dead letters, messages,
//	                                   then Tx.Apply writes the unit's store.Changes
//	                         COMMIT: all of it is on stable storage
//	     ◀─ notifyCommitted: wakes waiting claims here and announces the queues to the other
//	                         nodes, signals sweep and publisher, calls JobType.OnTransitions
//
// unit.transition is the only place where a stored job changes its state. The machine is asked, the
// job is changed under its row's lock, and history, outbox, dead letters, counters, parents and
// dependents follow in the same transaction, so no reader and no crash sees a part of it. A job
// is in a unit once: two copies would undo each other's changes.
//
// The store may run the function again, for example after a serialization failure. A verb hence
// changes nothing outside of its unit before the commit.
//
// Locks are taken in one order: names (limits, "graph:", "size:"), then rows in the order of
// identity or number, dependencies and children before those that wait for them. A submission that
// ends a run locks the job of that before the relatives of its own.
//
// # Claims
//
// A claim leases ready jobs in claim order; claim.go describes its steps. A claim that waits is
// registered with the hub, by queue, and asks the store again when it wakes. A job whose wake-up
// was lost, or that becomes ready by time alone, is found by a poll: once a second, one view for
// all claims that wait. A wake-up promises nothing: it may come too often, and one that its waiter
// does not use is passed on, so that it is never lost within a node. A notification that is lost
// between nodes costs that second.
//
// A call that finishes a run may claim in the same transaction (FinishRequest.Next): this saves a
// busy worker every second commit. A submission claims in its transaction for claims that wait for
// its jobs (claim_match.go): this saves an idle worker the commit between job and start. A
// submission may end a run in its transaction (WithFinish): that is for runs that make jobs, each
// exactly once.
//
// # Leases, heartbeats, lost work
//
// A claim gives the job a fresh run id and a lease. Every write of a worker names its run; a write
// under an older run id changes nothing and gets RunLost. The run id fences, and not the clock: an
// end that comes after its lease, and before a sweep has ended that, counts. A heartbeat extends
// the lease by its whole length. Expire ends runs whose lease has expired, Promote makes waiting
// jobs ready when they are due; package maintenance calls both on every node when it is time, and a
// claim that finds too little does the same before it gives up. When the clock jumps or the store
// stalls, clockGuard grants every run one more lease: the workers had no chance to send heartbeats.
//
// On PostgreSQL a worker may end its run in a transaction of its own; recorded_ends.go describes
// what that means for everything else that may end it.
//
// # Outbox and leadership
//
// A job type with Publish gets a message for every change of a state, written with the change.
// Publish delivers messages oldest first and deletes them when their delivery has returned: at
// least once, and in order per job. The order needs one publisher at a time, so the nodes elect
// a leader for a term of a few seconds; its term is checked by the store's clock in the very
// transaction that reads the batch. AsLeader offers the same election to other work.
//
// # Limits
//
// MaxRunning of a job type and of a queue bound leased jobs, MaxQueueSize bounds jobs that are
// ready or wait for a retry. All are exact over all nodes: a transaction that may use up a limit
// locks its name and reads the counters afterwards. Counters change with the jobs; nothing is
// counted by scanning. Every claim under a MaxRunning does so, however many runs are left. A
// submission under a MaxQueueSize reads the counters, and locks the name only near the limit. Where
// no limit is set, nothing is locked or read for it.
//
// # Two layers of batching
//
// The combiner puts calls of one verb that come at the same time into one unit: their jobs are
// locked, changed and written by the same few statements. Calls that come while a group of their
// verb is served are the next group; on PostgreSQL several groups are served at a time (depth.go).
// A thousand heartbeats are one LOCK and one UPDATE instead of a thousand. This saves statements,
// on PostgreSQL also round trips, and it works on every store.
//
// The store's group commit puts whole transactions of different verbs into one fsync: PostgreSQL
// does it by itself, package sqlite runs the updates that wait for its writer as savepoints of one
// transaction. This saves fsyncs, also for verbs that the combiner does not take, such as changes
// of records.
//
//	calls of one verb ─ combiner ─▶ one unit ─┐
//	calls of one verb ─ combiner ─▶ one unit ─┼─ group commit ─▶ one fsync
//	a change of records ────────────▶ a unit ─┘
//
// Neither can do the other's work: the combiner cannot join a claim with a submission, as each
// would wait for the other's locks and share its failures, and the store cannot join the
// statements of two functions that it does not know.
package engine
