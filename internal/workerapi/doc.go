// Package workerapi is the worker API: it lets programs outside the process execute jobs over plain
// HTTP, under /worker/v1. It serves every contract that is configured with an Adapter, which is a
// few functions for what differs between contracts. Everything else is the engine's.
//
//	claims                 claims ready jobs, each under its own run id; waits for the first
//	jobs/{job_id}/claim    claims one job by its id
//	runs/{run_id}/...      start, heartbeat, complete, fail, release
//	outcomes               complete, fail and release of many runs in one transaction
//
// A run id fences: every write names it. A write whose run is not its job's current one is answered
// 409 RUN_LOST and changes nothing; the worker should stop then. Errors are problem documents (RFC
// 9457) with a code.
//
// # How a run is finished
//
// A request becomes a finishPlan, whose decide runs in the transaction of the engine, on the job as
// it is then. It first checks that the run is the current one and has not timed out.
//
//	complete, fail, release ──▶ finishPlan ──▶ engine.FinishBy ──▶ decide ──▶ Outcome
//	outcomes ──▶ many plans ──▶ engine.FinishAll ──────────────────▶ decide of each
//
// A contract with VerifyResult (Images) checks a result in places that a transaction must not wait
// for. Which contract a run belongs to is only known in the transaction. So decide fails with
// errNeedsVerify there; the API then verifies the result outside and finishes with the verified
// outcome in a second transaction. Requests for all other contracts need no such round.
package workerapi
