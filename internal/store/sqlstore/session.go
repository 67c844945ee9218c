package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Session is one transaction or snapshot of one database. Its methods return
// errors already translated to *job.Error.
type Session interface {
	Query(s *Statement, args ...any) (*sql.Rows, error)
	Exec(s *Statement, args ...any) (affected int64, err error)
	Bulk(b *Bulk, rows [][]any) error
	// InsertJobs runs InsertJobs for the rows, gives each stored job its Seq and
	// lists the indexes of those whose identity is taken.
	InsertJobs(jobs []*job.Job) (taken []int, err error)
	Now() time.Time
	// LockName is the port's verb.
	LockName(name string) error
	// Slot is a small number no two concurrent transactions of this process
	// share, so that they do not wait for each other's counters.
	Slot() int64
	Ints(seqs []int64) any
	IdentityHashes(idents []job.IdentityHash) any
	Texts(texts []string) any
	// Translate gives a database error its kind.
	Translate(op string, err error) error
}

// Observer is told of every statement: its name, how long it took and how it
// ended.
type Observer func(statement string, took time.Duration, err error)

// WithKinds tells o of errors as translate gives them their kind; nil is told
// nothing.
func (o Observer) WithKinds(translate func(op string, err error) error) Observer {
	return func(statement string, took time.Duration, err error) {
		if o != nil {
			o(statement, took, translate(statement, err))
		}
	}
}

// Tx is the storage port's Reader and Tx over a session.
type Tx struct {
	s      Session
	failed error // of the first statement that failed; nothing is run after it
}

// NewTx returns the verbs over a session.
func NewTx(s Session) *Tx { return &Tx{s: s} }

// Failed returns the error of the first statement that failed. Databases differ
// in what they leave of a transaction then, so such a transaction is never
// committed, also where fn passes the error over.
func (t *Tx) Failed() error { return t.failed }

// Now is the time of the transaction.
func (t *Tx) Now() time.Time { return t.s.Now() }

// LockName is documented at the port.
func (t *Tx) LockName(name string) error {
	return t.try(func() error { return t.s.LockName(name) })
}

// try runs one statement unless an earlier one failed.
func (t *Tx) try(statement func() error) error {
	if t.failed == nil {
		t.failed = statement()
	}
	return t.failed
}

func (t *Tx) exec(s *Statement, args ...any) (affected int64, err error) {
	err = t.try(func() (err error) {
		affected, err = t.s.Exec(s, args...)
		return err
	})
	return affected, err
}

// bulk runs b unless there is nothing to do.
func (t *Tx) bulk(b *Bulk, rows [][]any) error {
	if len(rows) == 0 {
		return t.failed
	}
	return t.try(func() error { return t.s.Bulk(b, rows) })
}

// collect reads all rows with scan.
func collect[T any](t *Tx, s *Statement, scan func(*sql.Rows) (T, error), args ...any) (all []T,
	err error) {
	err = t.try(func() error {
		rows, err := t.s.Query(s, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			one, err := scan(rows)
			if err != nil {
				return t.s.Translate(s.Name, err)
			}
			all = append(all, one)
		}
		return t.s.Translate(s.Name, rows.Err())
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func scanInt(rows *sql.Rows) (n int64, err error) {
	err = rows.Scan(&n)
	return n, err
}

// Micros is how times are stored: microseconds since 1970, UTC. A time that is
// not set, the zero time, is the first microsecond of the year 1 there.
func Micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// deadline is the longest one statement may take where a caller gave no
// deadline of its own.
const deadline = 30 * time.Second

// WithDeadline bounds ctx: no call to a database is without a deadline.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, deadline)
}
