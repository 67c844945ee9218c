// Package stream keeps messages in NATS JetStream streams: a server embedded in the process, or a
// cluster by URL.
//
// The database is the truth; a stream carries what happened to those who watch, and proposals of
// those who may make them. So everything here may happen twice, and what matters is that an
// acknowledged message is not lost:
//
//	  the window is stored once.
//
//	- Read finds the messages of one subject without looking at others.
//
// An offset is the sequence number a stream gave to a message: it grows, and begins anew where a
// stream does. A stream that somebody removed is made again by the next verb that needs it.
//
// The embedded server opens no port unless Config.Listen says so; the process reaches it in memory.
// Its directory belongs to one process.
//
// Errors are *job.Error: Unavailable when the streams cannot be reached (trying again may help),
// NotFound, Invalid for a subject that no stream takes, TooLarge, Aborted when the caller's context
// ended, Timeout when it ran out of time.
package stream
