// Package worker executes jobs of one type inside the server process.
//
// A Pool has a number of workers, each with a number of slots. Every worker claims as many jobs
// as it has free slots, and every claimed job becomes an execution: one call of the handler, with
// heartbeats while it runs.
//
//	worker ── claim ──▶ execution ── handler returns ──▶ finish ──▶ the slot is free
//	                      │    ▲                            │
//	                      └────┘                            └──▶ or the next job, claimed in the
//	                    heartbeats                               transaction of the finish
//
// While the store is unavailable, a finish is tried again until the lease ends.
//
// An execution ends early when its run is lost: the job was canceled, or no heartbeat reached the
// store within the lease. The context of its handler ends then with ErrLost, and the outcome that
// the handler returns is dropped. This does not depend on the handler: the engine accepts nothing
// from a run that is not the job's current one.
//
// A pool that is stopped claims no more jobs and lets its executions finish within the grace
// period. Then it ends the contexts of the others with ErrStopping and writes the outcomes that
// their handlers return, which is a release for the zero Outcome. The job of a handler that does
// not return even then is released, and its goroutine is left behind.
package worker
