package engine

import (
	"context"
	"sync/atomic"

	"github.com/millrace/millrace/internal/job"
)

// AttachedFunc writes records in the transaction of a change. It gets the job before and after the
// change, without the bodies that the change did not read: before is nil for a new job, and after
// has no state if the job was deleted. Of several new jobs it gets the first. It may run more than
// once and must have no other effects. Its error undoes the change.
type AttachedFunc func(w RecordWriter, before, after *job.Job) error

// attachment is an AttachedFunc and whether a change has taken it.
type attachment struct {
	fn   AttachedFunc
	used atomic.Bool
}

type attachmentKey struct{}

// Attach returns a context with which the next Submit, Change or other verb that names one job, as
// far as it changes something, also writes the records of fn, in its own transaction. Later verbs
// with the context do not call fn again. A verb that changes nothing does not call it.
//
// So what is known about a job beside the job, such as who changed it, is stored with its change or
// not at all, and the verb of a contract need not know of it.
func Attach(ctx context.Context, fn AttachedFunc) context.Context {
	return context.WithValue(ctx, attachmentKey{}, &attachment{fn: fn})
}

// attached returns the attachment that the next change takes, nil if there is none.
func attached(ctx context.Context) *attachment {
	a, _ := ctx.Value(attachmentKey{}).(*attachment)
	if a == nil || a.used.Load() {
		return nil
	}
	return a
}

// subject is the job that a change is about, for the attachment. after is nil while the transaction
// has changed none.
type subject struct{ before, after *job.Job }

// changing notes that the transaction is about a stored job, before it is changed.
func (u *unit) changing(j *job.Job) {
	if u.about.after == nil {
		then := *j
		u.about = subject{&then, j}
	}
}

// writeAttached calls the attachment of the context, if the transaction has changed a job.
func (u *unit) writeAttached(a *attachment) error {
	if a == nil || u.about.after == nil {
		return nil
	}
	return a.fn(u.records(), u.about.before, u.about.after)
}

// markUsed notes that the change of a unit, which has taken the attachment, is committed.
func (a *attachment) markUsed(u *unit) {
	if a != nil && u.about.after != nil {
		a.used.Store(true)
	}
}
