// Package worker runs jobs of a contract inside the process.
//
//	claim   each worker polls for as many jobs as it has free slots
//	run     one handler call per job; heartbeats meanwhile
//	finish  the outcome is written, again and again while the store is away
//
// A run ends early when it is no longer the job's: the job was canceled, or no
// heartbeat got through within the lease. The context of its handler ends then
// with ErrLost, and whatever the handler answers changes nothing. What the engine
// promises of run ids holds whether or not a handler listens: a lost run cannot
// write.
//
// A pool that is stopped claims nothing more, lets runs end within the grace,
// ends the others with ErrStopping and gives back what they leave.
package worker
