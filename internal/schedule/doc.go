// Package schedule submits jobs to any contract at the times of schedules.
//
// A schedule is a job of the engine that never ends. It waits for its next time, and each run of it
// processes the times that have passed and lets it wait for the one after them. So the engine's
// leases and locks make one of all nodes do it, an idle schedule costs nothing, and a node that is
// killed leaves a run that expires and is repeated:
//
//	            ┌──────────── Released, DueAt: the next time ────────────┐
//	            ▼                                                        │
//	create ─▶ waiting ──Due──▶ due ──Claimed──▶ ticking ─────────────────┤
//	            ▲               ▲                  │                     │
//	            │               └──── Expired ─────┘                     │
//	            └────────── Retried: an operator's change ───────────────┘
//
// Its definition, its request and its state are bodies of the job, so a transaction that has locked
// the job has all of it. A change by an operator takes the job from its run, whose outcome is then
// refused.
//
// # Each time once
//
// What is done about a time is a tick. A run processes times up to the first that submits a job,
// and ends in the transaction of that (engine.WithFinish): job, tick, state and next time are
// stored together, and only by the run that is current. So of two runs at once, one whose lease has
// ended unnoticed and the next one, only one stores a job, and a change comes before a submission
// or after it. Beside that, schedule and time make the idempotency key of the submission.
//
//	run ──▶ due times ──▶ overlap ─┬─▶ Submit: job, tick, state, DueAt ─┬─▶ next run
//	                               └─▶ Finish: ticks, state, DueAt ─────┘
//
// Schedules that are due at the same moment are claimed, submitted and finished in sets.
//
// Ticks are records in a ring of maxTicks places for each schedule, so no tick needs to be pruned.
package schedule
