// Package object keeps objects: bytes under a key in a bucket, written whole and read as a stream.
// They live in a directory, or in an S3 store.
//
//	  what was there before; so does a crash in the middle.
//	- Memory does not grow with the size of an object.
//
//	  differs: in a directory no key can be a folder of another, which is a Conflict.
//
// Errors are *job.Error: NotFound, Invalid for a name that is none, Conflict, Unavailable when the
// place cannot be reached or has no room, Aborted and Timeout when the caller's context ended. A
// body that cannot be read is no error of ours: Put returns what reading it returned.
package object
