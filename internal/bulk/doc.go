// Package bulk does one thing to many jobs or dead letters: a bulk operation of operators (AD-020
// to AD-022).
//
// An operation is a job of the engine, under a job type of its own, so it goes on when its node is
// lost. What it is to do and how far it has come is a record, with the same id.
//
//	queued ──claim──► running ──► done
//	   ▲                 │
//	   │ rate, canary:   ├──► paused ──resume──► queued
//	   └── released for a while   │
//	                     └────────┴──► canceled
//
// A claim goes through what matches in batches, by number. Of each batch:
//
//  1. the actions of the contracts, several at a time. Each writes a mark of the operation in the
//     transaction of its change, which is rolled back where there is a mark already, or the cursor
//     has passed the job
//  2. one transaction counts and deletes the marks, and moves the cursor behind the batch
//
// So what a node that was killed has done is marked, and the node that goes on neither does it
// again nor forgets to count it.
//
// The filter means what matched when the operation began: what was created later does not match,
// and what has changed since is skipped.
package bulk
