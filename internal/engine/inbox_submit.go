package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/millrace/millrace/internal/job"
)

// A request in the inbox is taken out by the transaction that submits its job: it locks the row of
// the request, stores the job and updates the row. So the request is submitted once, whoever tries
// it and wherever a node is killed.
//
// Requests of one transaction of a producer are a chain. Their submissions begin one after another
// and gather in a combiner, in which one group is served at a time:
//
//	Next ─▶ WithInbox ─▶ a contract's code ─▶ Submit ─▶ inboxSubmits ─▶ inboxGroup
//	  ▲                                          │ Queued             (lock, insert, update)
//	  └──────────────────────────────────────────┘
//
// All requests of a chain are committed at once, so none appears in it behind those that were read.
// Two nodes may work on one chain, as the lease of a transaction ends while its node is slow. The
// place of a job in its queue is the time at which the transaction began that stores it, so that
// one must begin after the commit of the request before. It does: a node reads a chain from its
// first request that waits, and its transactions begin after that read. When it finds that a
// request does not wait any longer, another node has stored it, perhaps in a transaction that began
// later than this one: the chain is stopped there and read again.

// InboxChain is the requests of one transaction of a producer, in their order. Once one of them
// cannot be submitted yet, or was not waiting any longer, none behind it is.
type InboxChain struct {
	last *InboxSubmission

	mu      sync.Mutex
	stopped *InboxSubmission // the first that was stopped at
}

// InboxSubmission is a request in the inbox that is about to be submitted.
type InboxSubmission struct {
	request  *job.InboxRequest
	chain    *InboxChain
	before   *InboxSubmission // in the chain
	number   int
	queueing sync.Once
	queued   chan struct{} // is closed when the submission has its place
	returned chan struct{} // is closed by Return
	hook     *txHook
}

// Next appends a request to the chain.
func (c *InboxChain) Next(r *job.InboxRequest) *InboxSubmission {
	t := &InboxSubmission{request: r, chain: c, before: c.last, queued: make(chan struct{}),
		returned: make(chan struct{})}
	t.hook = &txHook{inbox: t}
	if c.last != nil {
		t.number = c.last.number + 1
	}
	c.last = t
	return t
}

// IsStopped reports whether the chain was stopped at one of its requests.
func (c *InboxChain) IsStopped() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.stopped != nil }

// Stop lets no request behind this one be submitted.
func (t *InboxSubmission) Stop() {
	c := t.chain
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped == nil || t.number < c.stopped.number {
		c.stopped = t
	}
}

// isBehind reports whether the chain was stopped at a request before this one.
func (t *InboxSubmission) isBehind() bool {
	c := t.chain
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped != nil && c.stopped.number < t.number
}

// WithInbox returns a context with which the next Submit takes a request out of the inbox. Where
// that does not wait there any longer, nothing is stored and the error is RunLost. After an error
// of which it is not known whether anything was stored, the request itself says it. Later verbs
// with the context do not take it, nor does a submission that stores nothing.
func WithInbox(ctx context.Context, t *InboxSubmission) context.Context {
	return context.WithValue(ctx, txHookKey{}, t.hook)
}

// Queued is closed when the request behind this one may be submitted.
func (t *InboxSubmission) Queued() <-chan struct{} { return t.queued }

// Return says that the contract has returned.
func (t *InboxSubmission) Return() {
	t.markQueued()
	close(t.returned)
}

// IsSubmitted reports whether a submission has taken the request.
func (t *InboxSubmission) IsSubmitted() bool { return t.hook.used.Load() }

func (t *InboxSubmission) markQueued() { t.queueing.Do(func() { close(t.queued) }) }

// awaitBefore waits until the contract has returned for all requests before this one.
func (t *InboxSubmission) awaitBefore(ctx context.Context) error {
	for b := t.before; b != nil; b = b.before {
		select {
		case <-b.returned:
		case <-ctx.Done():
			return errWithdrawn(ctx)
		}
	}
	return nil
}

// errNotWaiting says that a request does not wait in the inbox any longer.
var errNotWaiting = &job.Error{Kind: job.RunLost, Op: "engine.inbox",
	Msg: "the request was submitted, or discarded"}

// ErrBehind is the error of a request behind one that cannot be submitted yet.
var ErrBehind = &job.Error{Kind: job.Unavailable, Op: "engine.inbox",
	Msg: "a request before it in its transaction waits"}

// lockRequest locks the request that a change takes, if it takes one.
func (u *unit) lockRequest(t *InboxSubmission) error {
	switch {
	case t == nil:
		return nil
	case t.isBehind():
		return ErrBehind
	}
	found, err := u.inbox().Load(job.InboxSelector{Waiting: []int64{t.request.Number}})
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		t.Stop()
		return errNotWaiting
	}
	return nil
}

// updateRequest updates the request that a change has taken, with the job that was made of it.
func (u *unit) updateRequest(t *InboxSubmission, made *job.Job) error {
	return u.inbox().Apply(job.InboxChanges{Update: []job.InboxRequest{t.submitted(made)}})
}

// submitted returns the request with its job.
func (t *InboxSubmission) submitted(made *job.Job) job.InboxRequest {
	return job.InboxRequest{Number: t.request.Number, Transaction: t.request.Transaction,
		State: job.InboxSubmitted, Job: made.Seq, JobID: made.ID.Key}
}

// submitFromInbox stores the batch of a submission that takes a request. One that cannot be
// combined waits until those before it in its chain have returned.
func (e *Engine) submitFromInbox(ctx context.Context, call *submitCall,
	t *InboxSubmission) (*submitCall, error) {
	if e.combinable(call) {
		ticket := e.inboxSubmits.add(*call, len(call.batch))
		t.markQueued()
		return e.inboxSubmits.await(ctx, ticket, t.Stop)
	}
	if err := t.awaitBefore(ctx); err != nil {
		return call, err
	}
	return call, e.updateRetryingRaces(ctx, func(u *unit) error { return u.submit(call) })
}

// inboxGroup is submitGroup for submissions that take requests. Those with a key under which
// something is stored stop their chains, and the others are stored without them.
func (e *Engine) inboxGroup(group []*ticket[submitCall]) error {
	err := e.storeFromInbox(group)
	if !errors.Is(err, errRepeated) {
		return err
	}
	var others []*ticket[submitCall]
	for _, t := range group {
		if isRepeated(&t.call, t.err) {
			t.call.hook.inbox.Stop()
			continue
		}
		others = append(others, t)
	}
	if len(others) == 0 {
		return nil
	}
	return e.storeFromInbox(others)
}

// errRepeated says that calls of a group have keys under which something is stored.
var errRepeated = errors.New("requests were made before")

// storeFromInbox stores a group in one transaction.
func (e *Engine) storeFromInbox(group []*ticket[submitCall]) error {
	err := e.updateGroup(e.inboxSubmits.depth, func(u *unit) error {
		accepted, err := u.lockRequests(group)
		if err != nil {
			return err
		}
		if err := u.submitAll(accepted); err != nil {
			return err
		}
		if len(group) > 1 && slices.ContainsFunc(accepted, func(t *ticket[submitCall]) bool {
			return isRepeated(&t.call, t.err)
		}) {
			return errRepeated
		}
		return u.updateRequests(accepted)
	})
	if err != nil {
		stopChains(group, err)
		return err
	}
	for _, t := range group {
		if t.err != nil {
			continue
		}
		t.call.hook.used.Store(true)
	}
	return nil
}

// stopChains stops the chains of a group that has failed and is not served again: before the next
// group, which may have more of them.
func stopChains(group []*ticket[submitCall], err error) {
	for _, t := range group {
		if isStoreFailure(err) || (len(group) == 1 && isAnsweredLater(&t.call, err)) {
			t.call.hook.inbox.Stop()
		}
	}
}

// isAnsweredLater reports whether a submission that was served alone may be stored later.
func isAnsweredLater(c *submitCall, err error) bool {
	return job.IsKind(err, job.Full) || isRepeated(c, err)
}

// isRepeated reports whether a submission has a key under which something is stored. SubmitOnce
// looks that up afterwards. By then it may be gone, and the job is stored in another transaction:
// those behind it in its chain wait until that is known.
func isRepeated(c *submitCall, err error) bool {
	return job.IsKind(err, job.Conflict) && c.batch[0].Job.Alias != (job.IdentityHash{})
}

// lockRequests locks the requests of a group, and returns the calls that may go on. The others have
// got their errors.
func (u *unit) lockRequests(group []*ticket[submitCall]) ([]*ticket[submitCall], error) {
	numbers := make([]int64, len(group))
	for i, t := range group {
		numbers[i] = t.call.hook.inbox.request.Number
	}
	found, err := u.inbox().Load(job.InboxSelector{Waiting: numbers})
	if err != nil {
		return nil, err
	}
	isWaiting := make(map[int64]bool, len(found))
	for i := range found {
		isWaiting[found[i].Number] = true
	}
	accepted := make([]*ticket[submitCall], 0, len(group))
	for i, t := range group {
		switch request := t.call.hook.inbox; {
		case request.isBehind():
			t.err = ErrBehind
		case !isWaiting[numbers[i]]:
			request.Stop()
			t.err = errNotWaiting
		default:
			t.err = nil
			accepted = append(accepted, t)
		}
	}
	return accepted, nil
}

// updateRequests updates the requests of the calls that have stored their jobs.
func (u *unit) updateRequests(group []*ticket[submitCall]) error {
	var updated []job.InboxRequest
	for _, t := range group {
		if t.err != nil {
			continue
		}
		updated = append(updated, t.call.hook.inbox.submitted(t.call.result.Jobs[0]))
	}
	return u.inbox().Apply(job.InboxChanges{Update: updated})
}
