// Package taskflow is the TaskFlow contract: jobs that depend on each other, with
// priorities and retry policies, to be searched page by page.
//
//	create
//	   │
//	   ▼       all dependencies COMPLETED
//	PENDING ───────────────────────────────► READY ◄──────────┐
//	   │                                       │              │
//	   │ a dependency                          │ claimed      │ failed or lost,
//	   │ FAILED or BLOCKED                     ▼              │ attempts left: waits;
//	   ▼                                    RUNNING ──────────┤
//	BLOCKED                                  │   │            │ released: at once
//	                                         │   └────────────┘
//	                      none left, or not  │   │
//	                      to be retried      ▼   ▼ succeeded
//	                                    FAILED   COMPLETED
//
// A job that waits for nothing, or for what is over, leaves PENDING in the
// transaction that stores it, so nobody sees it there (G-TF-10). Whatever a job's
// end means for its dependents happens in the transaction of that end (TF-049).
// Delete takes a job out of any state as long as no other lists it.
//
// The rules of the document that need no store stand in rules.go, as functions
// with its inputs and outputs. What the engine does by itself is held against
// them by tests.
//
// Where a job is kept: name and dependencies are its definition; queue, priority
// and payload have places of their own; max_attempts is the run limit, and the
// rest of the retry policy is the kind, in words, as that is known of a job
// without loading its bodies. The list of dependencies is kept as it was sent,
// beside the edges the engine goes by; both are written in one transaction.
//
// Ids are UUIDs of version 7 from one sequence per node. So among jobs of equal
// created_at, such as those of one graph, the order of ids is that of insertion,
// which is how the engine breaks ties (TF-054). Only of requests that two nodes
// serve in the same microsecond may the one with the greater id be first.
//
// What this package does not own: time, leases, retries, locks, limits and storage
// are the engine's; workers come through the worker API or are bound to queues in
// the server. Here a request becomes one verb of the engine.
package taskflow
