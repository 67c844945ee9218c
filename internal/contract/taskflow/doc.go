// Package taskflow is the TaskFlow contract: jobs that depend on each other, with priorities and
// retry policies, and a search.
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
//	                   none left, not to be  │   │
//	                   retried, or canceled  ▼   ▼ succeeded
//	                                    FAILED   COMPLETED
//
// A job without dependencies, or whose dependencies have all finished, leaves PENDING in the
// transaction that stores it, so no client sees it there (G-TF-10). The dependents of a job change
// in the transaction in which the job finishes (TF-049). Delete removes a job in any state, unless
// another job lists it as a dependency and is not deleted with it. What failed or was blocked can
// be rerun: new jobs are made of it (rerun.go).
//
// The rules of the document that need no store are in oracle_test.go as functions with its
// inputs and outputs; tests compare the engine with them.
//
// How a job is stored: its name and dependencies are the definition; queue, priority and payload
// are columns, and so is the retry policy, whose max_attempts is the job's limit of failed
// attempts. The list of dependencies as it was sent is stored beside the edges that the engine
// evaluates; one transaction writes both.
//
// Ids are UUIDs of version 7 from one sequence per node. So jobs with equal created_at, such as
// those of one graph, have ids in the order of insertion, by which the engine breaks ties (TF-054).
// Only when two nodes serve requests in the same microsecond may the job with the greater id come
// first.
//
// Time, leases, retries, locks, limits and storage are the engine's. This package turns a request
// into one call of the engine and the engine's answer into the document's words.
package taskflow
