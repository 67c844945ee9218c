// Package message is a queue of small messages between processes: a stream of ours, or SQS by URL.
//
// A message is delivered at least once and in no order; whoever takes one finds out in the database
// whether there is something to do. A message that is neither acknowledged nor given back comes
// again after a while.
//
// Errors are *job.Error: Unavailable when the queue cannot be reached, Aborted and Timeout when the
// caller's context ended.
package message
