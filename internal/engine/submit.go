package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// A submission takes one of two ways to insert:
//
//	Submit ─┬─ combinable: combiner ─▶ submitGroup ─▶ submitTogether: one insert for all callers
//	        └─ otherwise (Replace, relatives): a transaction of its own ─▶ unit.submit
//
// In a group each caller keeps its outcome: where one of them would make the others fail, by a
// conflict within its batch or a limit, the group's transaction is rolled back and its members are
// served one by one.
//
// Submissions that end runs are in groups of their own: they lock the jobs of these runs, and a
// node that stalls with one of them locked must not hold up, or fail, what clients submit.

// Mode is what a submission does about jobs that exist already.
type Mode uint8

// The modes.
const (
	Unique  Mode = iota // Conflict, and nothing of the batch is stored
	Ignore              // the existing job stays as it is
	Replace             // the existing job gets the new definition and leaves its run
)

// Submission is a job to be stored. Of Job the caller sets identity, alias, kind, queue,
// definition, payload and progress, priority, lease, MaxAttempts, retry policy, owner, trace,
// callback and size, and OrderTime and DueAt where they are not now. The engine ignores and sets
// the rest.
//
// A job with relatives (dependencies, a parent, or children in the same batch) is stored in mode
// Unique only.
type Submission struct {
	Job       job.Job
	DependsOn []job.ID // of the same job type, in the store or in the same batch
	Parent    job.ID   // in the store or in the same batch; the zero ID is none
}

func (s *Submission) hasRelatives() bool { return len(s.DependsOn) > 0 || s.Parent != (job.ID{}) }

// fresh returns the new job: what a submitter sets and nothing else.
func (s *Submission) fresh() job.Job {
	j := job.Job{ID: s.Job.ID, Queue: s.Job.Queue, Size: s.Job.Size, Definition: s.Job.Definition,
		Payload: s.Job.Payload, Progress: s.Job.Progress}
	copySubmitted(&j, &s.Job)
	return j
}

// copySubmitted copies what a submitter sets and a later submission or an edit may change. It is
// the one list of these columns, which submit, replace and edit share; TestFieldsAreKept fails for
// a column that is missing. The identity, the queue, whose counts change with it, the size and the
// bodies, which are written apart, are copied by the callers.
func copySubmitted(to, from *job.Job) {
	to.Alias, to.Kind, to.Owner = from.Alias, from.Kind, from.Owner
	to.Priority, to.OrderTime, to.DueAt = from.Priority, from.OrderTime, from.DueAt
	to.Lease, to.MaxAttempts, to.Retry = from.Lease, from.MaxAttempts, from.Retry
	to.Trace, to.Callback = from.Trace, from.Callback
}

// SubmitResult is the answer to a batch.
type SubmitResult struct {
	Stored   int
	Existing []int     // indexes of submissions whose job existed and was ignored
	At       time.Time // when the jobs stored were created

	// Jobs are the stored jobs of the batch, in mode Unique. They must not be changed.
	Jobs []*job.Job
}

type submitCall struct {
	batch     []Submission
	mode      Mode
	result    SubmitResult
	hook      *txHook  // nil for none
	finishing *job.Job // whose run the call ends, see WithFinish
}

// maxSubmitGroup is the most jobs that are stored in one transaction for several callers.
const maxSubmitGroup = 1000

// Submit stores a batch: all of it or, on an error, nothing. When it returns without one the jobs
// are on stable storage.
//
// Errors: Conflict with the ID of the job (mode Unique), NotFound for an unknown job type,
// dependency or parent, Cycle, Full, Invalid for what cannot be stored or waited for, and those of
// the store. Where ctx ends before the batch is served, nothing is stored.
func (e *Engine) Submit(ctx context.Context, mode Mode, batch []Submission) (SubmitResult, error) {
	if len(batch) == 0 {
		return SubmitResult{}, nil
	}
	if err := e.check(mode, batch); err != nil {
		return SubmitResult{}, err
	}
	call := &submitCall{batch: batch, mode: mode, hook: hook(ctx)}
	var err error
	switch inbox := call.hook.inboxSubmission(); {
	case inbox != nil:
		call, err = e.submitFromInbox(ctx, call, inbox)
	case !e.combinable(call):
		err = e.updateRetryingRaces(ctx, func(u *unit) error { return u.submit(call) })
	case call.hook.finishesRun():
		call, err = e.finishingSubmits.do(ctx, *call, len(batch))
	default:
		call, err = e.submits.do(ctx, *call, len(batch))
	}
	if err != nil {
		return SubmitResult{}, err
	}
	return call.result, nil
}

// check refuses a batch that is invalid by itself, without asking the store.
func (e *Engine) check(mode Mode, batch []Submission) error {
	for i := range batch {
		s := &batch[i]
		t, err := e.jobType(s.Job.ID.JobType)
		if err != nil {
			return err
		}
		foreign := func(id job.ID) bool { return id.JobType != t.Name }
		var why string
		switch {
		case s.Job.Queue == "":
			why = "a job needs a queue"
		case !t.acceptsPriority(s.Job.Priority):
			return errPriorityOutOfRange(s.Job.ID)
		case s.hasRelatives() && mode != Unique:
			why = "a job with dependencies or a parent is submitted in mode unique"
		case len(s.DependsOn) > 0 && (!t.Graph || slices.ContainsFunc(s.DependsOn, foreign)):
			why = msgForeignDependency
		default:
			continue
		}
		return &job.Error{Kind: job.Invalid, Op: "engine.submit", ID: s.Job.ID, Msg: why}
	}
	return nil
}

const msgForeignDependency = "a job can only wait for jobs of its own job type, " +
	"and only where that has a graph"

// combinable reports whether a batch is stored without reading other jobs than one whose run ends
// with it; any other has a transaction of its own, as one to which records are attached.
func (e *Engine) combinable(c *submitCall) bool {
	alone := c.hook != nil && (c.hook.hasRecords() || c.mode != Unique)
	return !alone && c.mode != Replace && !slices.ContainsFunc(c.batch, func(s Submission) bool {
		return s.hasRelatives()
	})
}

// errSplitGroup says that the calls of a group affect each other and must be served one by one.
var errSplitGroup = errors.New("to be served one by one")

// errConcurrentChange says that another transaction stored or changed a job after this one had
// looked for it; the next try finds it.
var errConcurrentChange = errors.New("another request changes the same job")

const maxRaceAttempts = 20

// updateRetryingRaces is update for a function that may return errConcurrentChange.
func (e *Engine) updateRetryingRaces(ctx context.Context, fn func(*unit) error) error {
	for range maxRaceAttempts {
		if err := e.update(ctx, fn); !errors.Is(err, errConcurrentChange) {
			return err
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: "engine.submit",
		Msg: "other requests keep changing the same jobs"}
}

func (e *Engine) submitGroup(group []*ticket[submitCall]) error {
	matched, committed := e.matchClaims(group), false
	defer func() { e.hub.deliver(matched, committed) }()
	err := e.updateGroup(e.submits.depth, func(u *unit) error {
		served, err := u.lockMatched(matched)
		if err != nil {
			return err
		}
		accepted, err := u.lockFinishingAll(group)
		if err != nil {
			return err
		}
		if err := u.submitAll(accepted); err != nil {
			return err
		}
		if err := u.finishRuns(accepted); err != nil {
			return err
		}
		return u.claimMatched(served)
	})
	if err != nil {
		return err
	}
	committed = true
	markFinished(group)
	return nil
}

// submitAll stores the batches of the callers in one transaction.
func (u *unit) submitAll(group []*ticket[submitCall]) error {
	switch len(group) {
	case 0:
		return nil
	case 1:
		return u.submit(&group[0].call)
	}
	return u.submitTogether(group)
}

// submitTogether inserts the batches of several callers at once. A batch in mode Unique of which
// all jobs exist gets its Conflict; one of which a part was stored makes all callers be served one
// by one.
func (u *unit) submitTogether(group []*ticket[submitCall]) error {
	slices.SortStableFunc(group, func(a, b *ticket[submitCall]) int {
		return strings.Compare(u.e.sortKey(a), u.e.sortKey(b))
	})
	var all []Submission
	for _, t := range group {
		all = append(all, t.call.batch...)
	}
	jobs, existing, err := u.insert(all)
	if err != nil {
		return err
	}
	from := 0
	for _, t := range group {
		to := from + len(t.call.batch)
		var own []int
		for len(existing) > 0 && existing[0] < to {
			own = append(own, existing[0]-from)
			existing = existing[1:]
		}
		t.err = nil
		t.call.result = u.result(&t.call, jobs[from:to], own)
		if len(own) > 0 && t.call.mode == Unique {
			if t.call.result.Stored > 0 {
				return errSplitGroup
			}
			t.err = errExists(jobs[from].ID)
		}
		from = to
	}
	return u.checkQueueSize() // where it refuses, the callers are served one by one
}

// sortKey orders the batches of one transaction: jobs of a Searchable job type that are created at
// the same time are listed by their keys (TF-054), all others keep the order in which they came.
func (e *Engine) sortKey(t *ticket[submitCall]) string {
	if id := t.call.batch[0].Job.ID; e.jobTypes[id.JobType].Searchable {
		return id.Key
	}
	return ""
}

// submit stores one batch.
func (u *unit) submit(c *submitCall) error {
	c.result = SubmitResult{}
	batch := c.batch
	if c.mode == Replace {
		var err error
		if batch, err = u.replace(c.batch); err != nil {
			return err
		}
	}
	jobs, existing, err := u.insert(batch)
	if err != nil {
		return err
	}
	if len(existing) > 0 && c.mode != Ignore {
		if c.mode == Replace { // stored since replace locked those that exist
			return errConcurrentChange
		}
		return errExists(jobs[existing[0]].ID)
	}
	c.result = u.result(c, jobs, existing)
	if c.result.Stored > 0 && u.changedJob.after == nil && c.mode == Unique {
		u.changedJob.after = jobs[0]
	}
	return u.checkQueueSize()
}

func (u *unit) result(c *submitCall, jobs []*job.Job, existing []int) SubmitResult {
	r := SubmitResult{Stored: len(c.batch) - len(existing), Existing: existing, At: u.now}
	if c.mode == Unique {
		r.Jobs = jobs
	}
	return r
}

func errExists(id job.ID) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.submit", ID: id,
		Msg: fmt.Sprintf("job %q exists already", id.Key)}
}
