// Package fetchbox is the FetchBox contract: it accepts a manifest of URLs and downloads each of
// them to object storage. Operators see the progress of every job.
//
// A job is one manifest, and its row is the ledger's entry; a task is one resource of it. A job has
// one of four statuses:
//
//	POST /jobs
//	    │            the first task                all tasks have finished and the handler
//	    ▼            starts                        of the job type was notified
//	 queued ───────────────────► in_progress ──────────────────────┐
//	    │                            ▲                             ├─► completed   none failed
//	    └─ all finished, or none     │                             └─► failed
//	                                 └── a dead letter is replayed ─────┘
//
//	a task:  queued ─► downloading ─► done
//	           ▲            │
//	           ├────────────┤ failed, or its worker lost, and attempts are left
//	           │            ▼
//	           └────────── dead       replayed by an operator; queued ones are canceled there too
//
// Between the last task and the end a job passes through states that have no status of their own.
// In ended it waits for the finalizer. In listing its dead letters are on their way to their
// stream, so that a client who sees the job failed finds them there. In finalizing the Finalize of
// its handler runs, as an attempt like any other (finalizer.go). A job that a replay opened again
// goes through replaying, replayed and closing instead, without a second Finalize (G-FB-37).
//
// The database is the truth (G-FB-22). A submit stores the manifest as an object first, then the
// job, its idempotency key and all its tasks in one transaction; a failure on the way leaves
// neither (ingest.go). The streams are fed by the outbox: jobMessages and taskMessages write its
// messages, Deliver publishes them (deliver.go). A task that a direct producer publishes on
// jobs.tasks gets a row once, however often its message is delivered (producers.go).
//
//	manifest ─► ingest ─► rows ─► claim ─► fetcher ─► object, outcome
//	 (submit)               │ ▲                            │
//	                outbox  │ │ producers                  ▼
//	                        ▼ │                      rows ─► outbox ─► jobs.logs, jobs.status,
//	                     jobs.tasks                                    jobs.dlq
//
// The columns of a row hold this: the queue of a job or a task is the job type, the definition
// holds the details that have no column (jobDetails, taskLabel), and the failure is the latest
// error of the tasks. The payload of a task is its message. The alias of a task consists of job and
// resource, so that each resource of a job exists once.
//
// Time, leases, retries and storage of rows belong to the engine, the streams to package stream,
// the objects to package object and the guard of downloads to package egress.
package fetchbox
