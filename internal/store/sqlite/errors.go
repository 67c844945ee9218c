package sqlite

import (
	"context"
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace/millrace/internal/job"
)

// translate gives a SQLite error its kind by its result code. A *job.Error passes as it is, so
// an error may be translated twice.
func translate(op string, err error) error {
	_, known := errors.AsType[*job.Error](err)
	if err != nil && !known {
		return newError(op, err)
	}
	return err
}

func newError(op string, err error) *job.Error {
	e := &job.Error{Kind: job.Internal, Op: op, Err: err}
	var se *sqlite.Error
	switch {
	case errors.Is(err, context.Canceled):
		e.Kind, e.Msg = job.Aborted, "the request was canceled"
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind, e.Msg = job.Unavailable, "the store is slow"
	case errors.As(err, &se):
		e.Kind, e.Msg = kindOfCode(se.Code() & 0xff)
	}
	return e
}

// kindOfCode returns the kind and the message of a primary result code. What may pass by itself
// or with an operator's help is Unavailable; a damaged file is ReadOnly, since no wait repairs
// it; and a code that is not listed is a defect.
func kindOfCode(code int) (job.Kind, string) {
	switch code {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return job.Unavailable, "the store is busy"
	case sqlite3.SQLITE_FULL:
		return job.Unavailable, "the store's disk is full"
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return job.Unavailable, "the store's disk fails"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return job.Unavailable, "the store is read-only"
	case sqlite3.SQLITE_NOMEM:
		return job.Unavailable, "the store is out of memory"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return job.ReadOnly, "the database file is damaged"
	case sqlite3.SQLITE_TOOBIG:
		return job.TooLarge, "larger than the store can hold"
	default:
		return job.Internal, ""
	}
}

// corruptsLog reports whether after err the write-ahead log may not be on the disk. An fsync
// that failed must not be repeated: the operating system may have dropped the pages it was for,
// and a later fsync that succeeds would then confirm a log with a hole.
func corruptsLog(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_IOERR
}
