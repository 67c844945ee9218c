// Package fetchbox is the FetchBox contract: a manifest of URLs is accepted, and each of them is
// downloaded to object storage. Operators see what became of it.
//
// A job is one manifest, its row the ledger's entry; a task is one resource. What is shown of a job
// is one of four words:
//
//	POST /jobs
//	    │            first task                    all tasks settled, the handler is told
//	    ▼            taken up                                      │
//	 queued ───────────────────► in_progress ──────────────────────┤
//	    │                            ▲                             ├─► completed   none failed
//	    └─ all settled, or none      │                             └─► failed
//	                                 └── a dead letter is replayed ─────┘
//
//	a task:  queued ─► downloading ─► done
//	           ▲            │
//	           ├────────────┤ failed, or its worker lost, and tries are left
//	           │            ▼
//	           └────────── dead       replayed by an operator
//
// Between the last task and the end stand states nobody is shown: in ended the handler waits to be
// told, in listing the dead letters of the job are on their way to their stream, in finalizing the
// handler is being told, by one run like any other job (finalizer.go). A job that is opened again
// takes the way of replaying, replayed, closing, on which the handler is not told again (G-FB-37).
//
// The database is the truth (G-FB-22). A manifest is stored as an object first, then the job, its
// idempotency key and all its tasks in one transaction; what fails on the way leaves neither
// (ingest.go). Streams hear of it through the outbox: jobMessages and taskMessages say what,
// deliver.go sends it. A task that somebody else publishes on jobs.tasks becomes a row here, once,
// whatever is delivered how often (producers.go).
//
// Where a job is kept: its type is the queue, definition holds what has no place of its own,
// failure is the last error of its tasks. A task's payload is its message; its alias are job and
// resource, so that a resource of a job is there once.
//
// What this package does not own: time, leases, retries and storage are the engine's; the streams
// are in stream, the objects in object, the guard of downloads in egress.
package fetchbox
