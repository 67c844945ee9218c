// Package message is a queue of small messages between processes: a subject of the streams, or a
// queue of SQS.
//
// A message is delivered at least once and in no particular order. It says only where to look: the
// receiver finds out from the database whether there is work to do. A message that is neither
// acknowledged nor given back is delivered again after visibilityTimeout.
//
// Errors are *job.Error: Unavailable when the queue cannot be reached, Aborted and Timeout when the
// caller's context ended.
package message
