package engine

import (
	"context"
	"sync/atomic"

	"github.com/millrace/millrace/internal/job"
)

// TxFunc writes records in the transaction of a change. It gets the job before and after the
// change, without the bodies that the change did not read: before is nil for a new job, and after
// has no state if the job was deleted. Of several new jobs it gets the first. It may run more than
// once and must have no other effects. Its error undoes the change.
type TxFunc func(w RecordWriter, before, after *job.Job) error

// txHook says what the transaction of the next change writes besides: exactly one of fn, finish
// (with its run) and inbox is set. A change that has taken it says so in used.
type txHook struct {
	previous *txHook // what was attached before, which the same change takes; nil for nothing
	fn       TxFunc
	run      Run
	finish   FinishFunc
	inbox    *InboxSubmission // see WithInbox
	used     atomic.Bool
}

// hasRecords reports whether records are written with the change.
func (h *txHook) hasRecords() bool { return h.finish == nil && h.inbox == nil }

// inboxSubmission returns the request of the inbox that one of the hooks attached to a change
// takes, or nil.
func (h *txHook) inboxSubmission() *InboxSubmission {
	for h != nil && h.inbox == nil {
		h = h.previous
	}
	if h == nil {
		return nil
	}
	return h.inbox
}

type txHookKey struct{}

// WithTxFunc returns a context with which the next Submit, Change or other verb that names one job,
// as far as it changes something, also writes the records of fn, in its own transaction. Later
// verbs with the context do not call fn again. A verb that changes nothing does not call it. What
// the context has had attached before is written too, and first.
//
// So facts about a job that it does not hold itself, such as who changed it, are stored with its
// change or not at all, and the verb of a contract need not know of it.
func WithTxFunc(ctx context.Context, fn TxFunc) context.Context {
	return context.WithValue(ctx, txHookKey{}, &txHook{previous: hook(ctx), fn: fn})
}

// hook returns the hook that the next change runs, nil if there is none.
func hook(ctx context.Context) *txHook {
	h, _ := ctx.Value(txHookKey{}).(*txHook)
	if h == nil || h.used.Load() {
		return nil
	}
	return h
}

// changedJob is the job that a change is about, before and after, for its hooks. after is nil while
// the transaction has changed none.
type changedJob struct{ before, after *job.Job }

// setChangedJob notes that the transaction is about a stored job, before it is changed.
func (u *unit) setChangedJob(j *job.Job) {
	if u.changedJob.after == nil {
		before := *j
		u.changedJob = changedJob{&before, j}
	}
}

// runHooks runs the hooks of the context, if the transaction has changed a job.
func (u *unit) runHooks(h *txHook) error {
	if h == nil || u.changedJob.after == nil {
		return nil
	}
	if err := u.runHooks(h.previous); err != nil {
		return err
	}
	switch {
	case h.finish != nil:
		return u.finishByHook(h, u.finishing, u.changedJob.after)
	case h.inbox != nil:
		return u.updateRequest(h.inbox, u.changedJob.after)
	}
	return h.fn(u.records(), u.changedJob.before, u.changedJob.after)
}

// markUsed notes that the change of a unit, which has run its hooks, is committed.
func (h *txHook) markUsed(u *unit) {
	if u.changedJob.after == nil {
		return
	}
	for ; h != nil; h = h.previous {
		h.used.Store(true)
	}
}
