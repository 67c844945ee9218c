// Package stream keeps messages in NATS JetStream streams, in a server embedded in the process or
// in a cluster that a URL names.
//
// The database is the truth. A stream carries what has happened to those who watch, and proposals
// to those who may act on them. So every operation may take effect twice, and the promise is that
// an acknowledged message is not lost:
//
//   - Publish returns when every message is on stable storage. A message that is published again
//     under its id within the window is stored once.
//   - Consume delivers a message again until it is acknowledged or dropped, and says which delivery
//     is the last one.
//   - Read finds the messages of one subject without reading others.
//
// Who reads a stream, and how:
//
//	publisher ──Publish──> stream ──Consume──> the workers of a durable consumer, one of them
//	                          ├─────Follow───> every watcher, in order and without gaps
//	                          └─────Read─────> a part of the history, by offset
//
// An offset is the sequence number that a stream gives to a message. It grows, and starts again at
// 1 in a new stream. A stream that was removed is created again by the next operation that needs
// it.
//
// The embedded server opens no port unless Config.Listen is set; the process reaches it in memory.
// Its directory belongs to one process.
//
// Errors are *job.Error: Unavailable when the streams cannot be reached (a retry may help),
// NotFound, Invalid for a subject that no stream accepts, TooLarge, Aborted when the caller's
// context ended, Timeout when its deadline passed.
package stream
