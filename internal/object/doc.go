// Package object stores objects: bytes under a key in a bucket, written as a whole and read as a
// stream. They are kept in a directory or in an S3 store.
//
//   - A Put that returns without an error is on stable storage. One that fails, or whose context
//     ends, leaves what was stored under the key before; so does a crash in the middle.
//   - Memory does not grow with the size of an object.
//   - Keys are the same everywhere: every key that one backend accepts is accepted by the other, so
//     that objects can be moved. One thing differs: in a directory no key can be a folder of
//     another, which is a Conflict.
//
// A Put into a directory writes two files under temporary names, syncs them, and renames them:
//
//	.temp/RANDOM  ──────────────> BUCKET/KEY         the bytes
//	.temp/RANDOM  ──────────────> BUCKET/KEY.attrs   content type and metadata, unless default
//	               rename, sync
//
// Errors are *job.Error: NotFound, Invalid for an invalid name, Conflict, Unavailable when the
// backend does not answer or is full, ReadOnly when it refuses until an operator acts, Aborted and
// Timeout when the caller's context ended. When the body cannot be read, Put returns the error of
// reading it.
package object
