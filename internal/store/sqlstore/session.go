package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Session is one transaction or snapshot of one database. Its methods return errors that are
// translated to *job.Error already. A Session serves one goroutine at a time. Every call is
// reported to the observer under the name of its statement.
type Session interface {
	// Query runs a statement that returns rows. A database may run a statement of its own in the
	// place of one that is exported, with the same result.
	Query(s *Statement, args ...any) (*sql.Rows, error)
	// Exec runs a statement and returns how many rows it changed.
	Exec(s *Statement, args ...any) (affected int64, err error)
	// Bulk runs a bulk statement for a set of rows.
	Bulk(b *Bulk, set *BulkValues) error
	// InsertJobs runs the statement InsertJobs for the definitions of the jobs, to which it may add
	// columns, InsertStates for their states and InsertSearchable for those that a search finds.
	// It sets the Seq of each job that it stored and returns the indexes of those whose identity
	// or alias is taken.
	InsertJobs(jobs []*job.Job, definitions, states *BulkValues) (existing []int, err error)
	// ChangePhase moves the states of the jobs of a set from the table of one phase to that of
	// another, and returns how many it has found.
	ChangePhase(c *PhaseChange, set *BulkValues) (moved int64, err error)
	// DeleteJobs removes jobs from the table jobs and from the others that have them.
	DeleteJobs(others []string, seqs []int64) error
	// Now returns the time of the transaction.
	Now() time.Time
	// LockName is documented at the port.
	LockName(name string) error
	// Slot returns a number for a queue that no other concurrent transaction of this process has,
	// so that transactions do not wait for each other's counters.
	Slot(queueHash int64) int64
	// ListRunEnds, RunEnds and DeleteRunEnds are for recorded ends of runs, of which a database has
	// none unless workers can write to it: those that Load returns for store.Selector.RecordedEnds,
	// those of jobs that are locked, and those of runs that were carried out.
	ListRunEnds(after int64, n int) ([]*job.Job, error)
	RunEnds(seqs []int64) ([]job.RunEnd, error)
	DeleteRunEnds(runs []job.RunID) error
	// Ints, Identities, IdentityHashes and Texts return the parameter for a mark {in},
	// {identities}, {blob in} and {text in}.
	Ints(seqs []int64) any
	Identities(ids []job.ID) any
	IdentityHashes(identities []job.IdentityHash) any
	Texts(texts []string) any
	// Translate gives a database error its kind.
	Translate(op string, err error) error
}

// Observer is called after every statement, with its name, its duration and its error. It is
// called on the goroutine that ran the statement and must not block. err is nil or a *job.Error,
// see WithKinds.
type Observer func(statement string, took time.Duration, err error)

// WithKinds returns an observer that calls o with errors as translate returns them. A nil o is
// not called.
func (o Observer) WithKinds(translate func(op string, err error) error) Observer {
	return func(statement string, took time.Duration, err error) {
		if o != nil {
			o(statement, took, translate(statement, err))
		}
	}
}

// Tx is the storage port's Reader and Tx over a session. Its methods are called by one goroutine at
// a time, as fn of an Update or a View is.
type Tx struct {
	s         Session
	cache     JobCache // nil for none
	isView    bool     // it only reads
	locations locations
	failed    error // of the first statement that failed; nothing is run after it
}

// NewTx returns the methods of the port over a session.
func NewTx(s Session) *Tx { return &Tx{s: s} }

// View returns the methods that a View may use, over the same session. It reads rows alone.
func (t *Tx) View() *Tx {
	t.isView, t.cache = true, nil
	return t
}

// Failed returns the error of the first statement that failed. Databases differ in what they
// keep of a transaction then, so such a transaction is never committed, even if fn ignores the
// error.
func (t *Tx) Failed() error { return t.failed }

// Now is the time of the transaction.
func (t *Tx) Now() time.Time { return t.s.Now() }

// LockName is documented at the port.
func (t *Tx) LockName(name string) error {
	return t.try(func() error { return t.s.LockName(name) })
}

// try runs one statement unless an earlier one failed, and keeps its error. All statements pass
// through it.
func (t *Tx) try(statement func() error) error {
	if t.failed != nil {
		return t.failed
	}
	t.failed = statement()
	return t.failed
}

// exec runs a statement that returns no rows. affected is the number of rows that it changed.
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
	return t.try(func() error { return t.s.Bulk(b, setOfRows(b, rows)) })
}

// collect runs a statement and reads all its rows with scan. A result that breaks off is an
// error, never a shorter result.
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

// Exec runs a statement that one database alone has and that returns no rows. affected is the
// number of rows that it changed.
func (t *Tx) Exec(s *Statement, args ...any) (affected int64, err error) {
	return t.exec(s, args...)
}

// Collect runs a statement that one database alone has and reads all its rows with scan.
func Collect[T any](t *Tx, s *Statement, scan func(*sql.Rows) (T, error), args ...any) ([]T,
	error) {
	return collect(t, s, scan, args...)
}

// scanInt reads a row of one integer.
func scanInt(rows *sql.Rows) (n int64, err error) {
	err = rows.Scan(&n)
	return n, err
}

// Micros returns a time as it is stored: in microseconds since 1970, UTC. The zero time, which
// means "not set", is the first microsecond of the year 1.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// FromMicros is the inverse of Micros.
func FromMicros(us int64) time.Time { return fromMicros(us) }

// fromMicros is the inverse of Micros.
func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// defaultTimeout limits a transaction whose caller has set no deadline.
const defaultTimeout = 30 * time.Second

// WithDeadline returns ctx with a deadline: no call to a database may lack one. One that the
// caller has set stays as it is. The caller must call the function that is returned.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultTimeout)
}
