package engine

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Inbox is the inbox as one transaction or view of the store sees it: the requests that producers
// have submitted by SQL, in transactions of their own. Only PostgreSQL has an inbox, so it is not
// part of the port but of Config (decision 0105). Package inbox submits the jobs of the requests
// (decision 0090).
type Inbox interface {
	// IsDue reports whether a transaction of a producer may be claimed by a time.
	IsDue(by time.Time) (bool, error)
	// Claim claims up to n due transactions under a lease that ends at until, and returns them in
	// no particular order. The transactions that were claimed before come first, but have at most
	// half of the n, so that neither they nor new ones hold up the others.
	//
	// Claim passes over transactions that another node is claiming. It also passes over those whose
	// first waiting request is to a contract in except, unless they have been due since a time
	// earlier than before. A transaction that was never claimed is due since its producer began it.
	Claim(n int, until time.Time, except []string, before time.Time) ([]job.InboxTransaction, error)
	// Load returns the selected requests.
	Load(s job.InboxSelector) ([]job.InboxRequest, error)
	// Apply makes changes.
	Apply(c job.InboxChanges) error

	// List returns a page of requests, without their bodies, and the number before which the next
	// page begins, 0 for none. A page may be shorter than its limit while there is a next one.
	List(f job.InboxFilter) (page []job.InboxRequest, next int64, err error)
	// Count counts requests, those of each state up to a limit.
	Count(limit int) (job.InboxCount, error)
	// Prune removes up to n requests that were submitted or refused before a time, the longest ago
	// first, and returns how many.
	Prune(before time.Time, n int) (int, error)
}

// inboxState has what the engine needs for the inbox in memory.
type inboxState struct {
	ready     chan struct{} // has a buffer of one
	retention time.Duration
}

// SetInboxRetention sets how long requests that were submitted or refused are stored; 0 is without
// end. It is called before the engine is used.
func (e *Engine) SetInboxRetention(retention time.Duration) { e.inbox.retention = retention }

// inboxHash stands for the inbox in announcements, of nodes and of the function millrace.submit: no
// job type has the empty name.
var inboxHash = job.QueueHashOf("", "\x00inbox")

// ErrNoRequest says that the inbox has no such request.
var ErrNoRequest = &job.Error{Kind: job.NotFound, Op: "engine.inbox",
	Msg: "there is no such request in the inbox"}

// InboxReady receives when requests may wait in the inbox. It never does where the store has none.
func (e *Engine) InboxReady() <-chan struct{} { return e.inbox.ready }

// signalInbox signals InboxReady if a transaction in the inbox may be claimed, and reports whether
// one may be claimed soon.
func (e *Engine) signalInbox(r reader) (isNear bool, err error) {
	if e.inboxOf == nil {
		return false, nil
	}
	isNear, err = e.inboxOf(r).IsDue(r.Now().Add(quietTime + DueHorizon))
	if err != nil || !isNear {
		return false, err
	}
	due, err := e.inboxOf(r).IsDue(r.Now())
	if due {
		signal(e.inbox.ready)
	}
	return true, err
}

// HasInbox reports whether programs may submit by SQL.
func (e *Engine) HasInbox() bool { return e.inboxOf != nil }

// viewInbox runs fn on the inbox, and does nothing where the store has none.
func (e *Engine) viewInbox(ctx context.Context, fn func(Inbox) error) error {
	if e.inboxOf == nil {
		return nil
	}
	return e.view(ctx, func(r reader) error { return fn(e.inboxOf(r)) })
}

// changeInbox is viewInbox for a transaction.
func (e *Engine) changeInbox(ctx context.Context, fn func(*unit, Inbox) error) error {
	if e.inboxOf == nil {
		return nil
	}
	return e.update(ctx, func(u *unit) error { return fn(u, u.inbox()) })
}

// inbox returns the inbox in the transaction.
func (u *unit) inbox() Inbox { return u.e.inboxOf(u.tx) }

// ClaimInbox claims up to n transactions of producers that are due, for the time of a lease in
// which other nodes do not claim them. It passes over transactions that begin with a request to one
// of the contracts in except, unless they have been due for the time dueFor. At most half of the
// claimed ones were claimed before.
func (e *Engine) ClaimInbox(ctx context.Context, n int, lease time.Duration, except []string,
	dueFor time.Duration) (claimed []job.InboxTransaction, err error) {
	err = e.changeInbox(ctx, func(u *unit, in Inbox) (err error) {
		claimed, err = in.Claim(n, u.now.Add(lease), except, u.now.Add(-dueFor))
		return err
	})
	return claimed, err
}

// ReadInbox returns the first n requests of transactions that wait, in the order in which they are
// to be submitted; fewer where these have more than the given bytes, but at least one.
func (e *Engine) ReadInbox(ctx context.Context, transactions []int64, n int, bytes int64) (
	requests []job.InboxRequest, err error) {
	err = e.viewInbox(ctx, func(in Inbox) (err error) {
		requests, err = in.Load(job.InboxSelector{Transactions: transactions, Limit: n,
			Bytes: bytes})
		return err
	})
	return requests, err
}

// ChangeInbox makes changes of the inbox, all of them or none. It notifies other nodes of
// transactions that are due at once.
func (e *Engine) ChangeInbox(ctx context.Context, c job.InboxChanges) error {
	err := e.changeInbox(ctx, func(_ *unit, in Inbox) error { return in.Apply(c) })
	isDue := func(t job.InboxTransaction) bool { return t.Delay <= 0 }
	if slices.ContainsFunc(c.Delay, isDue) {
		e.store.Notify([]job.QueueHash{inboxHash})
	}
	return err
}

// ListInbox returns a page of the requests in the inbox, without their bodies, and the number
// before which the next one begins, 0 for none. A page may be shorter than its limit while there is
// a next one.
func (e *Engine) ListInbox(ctx context.Context, f job.InboxFilter) (page []job.InboxRequest,
	next int64, err error) {
	err = e.viewInbox(ctx, func(in Inbox) (err error) {
		page, next, err = in.List(f)
		return err
	})
	return page, next, err
}

// InboxRequest returns a request in the inbox, NotFound if there is none with the id.
func (e *Engine) InboxRequest(ctx context.Context, id string) (found *job.InboxRequest, err error) {
	if e.inboxOf == nil {
		return nil, ErrNoRequest
	}
	err = e.viewInbox(ctx, func(in Inbox) (err error) {
		found, err = requestOf(in, job.InboxSelector{ID: id})
		return err
	})
	return found, err
}

// CountInbox counts the requests that wait and that were refused, each up to a limit.
func (e *Engine) CountInbox(ctx context.Context, limit int) (count job.InboxCount, err error) {
	err = e.viewInbox(ctx, func(in Inbox) (err error) {
		count, err = in.Count(limit)
		return err
	})
	return count, err
}

// RetryInbox lets a request that was refused wait again. record writes records in the transaction
// of that. Conflict for a request that was not refused.
func (e *Engine) RetryInbox(ctx context.Context, id string,
	record func(RecordWriter, *job.InboxRequest) error) error {
	err := e.changeRequest(ctx, id, record, func(r *job.InboxRequest) (c job.InboxChanges,
		err error) {
		if r.State != job.InboxRefused {
			return c, errRequestState(r, "a request that was refused can be retried")
		}
		return job.InboxChanges{Retry: []int64{r.Number}}, nil
	})
	if err != nil {
		return err
	}
	signal(e.inbox.ready)
	e.store.Notify([]job.QueueHash{inboxHash})
	return nil
}

// DiscardInbox removes a request that was refused or still waits, like RetryInbox. Conflict for one
// that was submitted.
func (e *Engine) DiscardInbox(ctx context.Context, id string,
	record func(RecordWriter, *job.InboxRequest) error) error {
	return e.changeRequest(ctx, id, record, func(r *job.InboxRequest) (c job.InboxChanges,
		err error) {
		if r.State == job.InboxSubmitted {
			return c, errRequestState(r, "it has a job")
		}
		return job.InboxChanges{Delete: []int64{r.Number}}, nil
	})
}

// changeRequest locks a request, changes it and records that. NotFound if there is none.
func (e *Engine) changeRequest(ctx context.Context, id string,
	record func(RecordWriter, *job.InboxRequest) error,
	change func(*job.InboxRequest) (job.InboxChanges, error)) error {
	if e.inboxOf == nil {
		return ErrNoRequest
	}
	return e.update(ctx, func(u *unit) error {
		in := u.inbox()
		r, err := requestOf(in, job.InboxSelector{ID: id, Lock: true})
		if err != nil {
			return err
		}
		changes, err := change(r)
		if err != nil {
			return err
		}
		if err := in.Apply(changes); err != nil {
			return err
		}
		return record(u.records(), r)
	})
}

// requestOf returns the request that is selected, NotFound if there is none.
func requestOf(in Inbox, s job.InboxSelector) (*job.InboxRequest, error) {
	found, err := in.Load(s)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, ErrNoRequest
	}
	return &found[0], nil
}

func errRequestState(r *job.InboxRequest, why string) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.inbox",
		Msg: "the request is " + string(r.State) + ": " + why}
}

// pruneInbox deletes a batch of requests that are past their retention.
func (u *unit) pruneInbox() (int, error) {
	if u.e.inboxOf == nil || u.e.inbox.retention <= 0 {
		return 0, nil
	}
	return u.inbox().Prune(u.now.Add(-u.e.inbox.retention), u.e.pruneBatch())
}
