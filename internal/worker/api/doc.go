// Package workerapi lets jobs be run from outside the process over plain HTTP, under /worker/v1. It
// serves every contract that hands in a Contract: what differs between them is a few functions, the
// rest is the engine's.
//
//	claims                 hands out ready jobs, each as a run with an id of its own, and waits for the first
//	jobs/{job_id}/claim    hands out one job by its id
//	runs/{run_id}/...      start, heartbeat, complete, fail, release
//	outcomes               complete, fail, release of many runs in one transaction
//
// A run id fences: every write names it, and one that is not its job's current run is answered 409
// RUN_LOST and changes nothing. Whoever reads that stops. Errors are problem documents (RFC 9457)
// with a code.
package workerapi
