// Package relay is the Relay contract: a queue over HTTP for workers in any language. Jobs are
// enqueued, claimed under a lease, extended by heartbeats, and completed.
//
//	            enqueue
//	               │                        ┌──── replace (run lost)
//	               ▼            next        ▼
//	┌─────────► queued ─────────────────► running ◄─┐
//	│   replace │  ▲                      │ │ │ │   │ heartbeat
//	└───────────┘  │   timeout, −1 retry  │ │ │ └───┘
//	               └──────────────────────┘ │ │
//	                                        │ └── complete, requeue, delete ──► gone
//	      delete of a queued job ──► gone   └── timeout, no retry left ──► gone, dead letter
//
// A job is identified by its queue and id together. There is no final state: a job that has
// finished is deleted, and its id may be used again (C-04). A job whose run_at lies in the future
// is queued as well and cannot be claimed before.
//
// Version 2 (/v2/queues/) is the documented one. Version 1 (/v1/queues/) serves the public Go
// client. It has no run ids, so its heartbeat and its reschedule apply to the job's current
// attempt, whichever that is (G-RL-22).
//
// Time, leases, retries, locks and storage are the engine's. This package turns a request into one
// call of the engine and its outcome into an answer. The bodies of jobs are stored and sent byte
// for byte as they came (G-RL-12).
package relay
