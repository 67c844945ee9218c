// Package relay is the Relay contract: a queue over HTTP for workers that bring
// their own code. Jobs are put in, handed out under a lease, kept alive by
// heartbeats, and taken out.
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
// A job is known by its queue and id together. It has no end state: what is
// over is not there any more, and its id may be used again (C-04). A job whose
// run_at has not come is queued as well, only not handed out yet.
//
// Version 2 (/v2/queues/) is the documented one. Version 1 (/v1/queues/) serves
// the public Go client: it knows no run id, so its heartbeat and its reschedule
// go to whatever run the job has (G-RL-22).
//
// What this package does not own: time, leases, retries, locks, storage and the
// sweeps. All of that is the engine's; here a request becomes one verb of the
// engine and its outcome an answer. Bodies of jobs pass through as the bytes
// they came as (G-RL-12).
package relay
