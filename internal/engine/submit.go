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

// Mode says what a submission does about jobs that exist already.
type Mode uint8

// The modes.
const (
	Unique  Mode = iota // Conflict, and nothing of the batch is stored
	Ignore              // the existing job stays as it is
	Replace             // the existing job gets the new definition and leaves its run
)

// Submission is a job to be stored. Of Job the caller gives identity, alias, kind,
// queue, definition, payload and progress, priority, lease, run limit, owner, trace, size;
// OrderTime and DueAt if they are not now. The engine sets the rest, whatever
// stands there.
//
// A job with relatives, which are what it depends on, its parent, or children in
// the same batch, is stored in mode Unique only.
type Submission struct {
	Job       job.Job
	DependsOn []job.ID // of the same contract, in the store or in the same batch
	Parent    job.ID   // in the store or in the same batch; the zero ID is none
}

func (s *Submission) hasRelatives() bool { return len(s.DependsOn) > 0 || s.Parent != (job.ID{}) }

// fresh is the job as it is stored: what a submitter says and nothing else.
func (s *Submission) fresh() job.Job {
	j := s.Job
	return job.Job{ID: j.ID, Alias: j.Alias, Kind: j.Kind, Queue: j.Queue, Owner: j.Owner,
		Priority: j.Priority, OrderTime: j.OrderTime, DueAt: j.DueAt,
		Lease: j.Lease, MaxAttempts: j.MaxAttempts, Size: j.Size, Definition: j.Definition,
		Payload: j.Payload, Progress: j.Progress, Trace: j.Trace}
}

// SubmitResult says what became of a batch.
type SubmitResult struct {
	Stored   int
	Existing []int     // indexes of submissions whose job existed and was ignored
	At       time.Time // when the jobs stored were created

	// Jobs are those of the batch as they were stored, in mode Unique. They are not to be changed.
	Jobs []*job.Job
}

type submitCall struct {
	batch  []Submission
	mode   Mode
	result SubmitResult
}

// submitGroup is the number of jobs written in one transaction for several
// callers.
const submitGroup = 1000

// Submit stores a batch: all of it or, on an error, nothing. When it returns
// without one the jobs are on stable storage.
//
// Errors: Conflict (mode Unique; names the job), NotFound for an unknown
// contract, dependency or parent, Cycle, Full, Invalid for what cannot be kept or
// waited for, and those of the store.
func (e *Engine) Submit(ctx context.Context, mode Mode, batch []Submission) (SubmitResult, error) {
	if len(batch) == 0 {
		return SubmitResult{}, nil
	}
	if err := e.check(mode, batch); err != nil {
		return SubmitResult{}, err
	}
	call := &submitCall{batch: batch, mode: mode}
	var err error
	if e.combinable(*call) {
		call, err = e.submits.do(ctx, *call, len(batch))
	} else {
		err = e.updateRetryingRaces(ctx, func(u *unit) error { return u.submit(call) })
	}
	if err != nil {
		return SubmitResult{}, err
	}
	return call.result, nil
}

// check refuses what is wrong with a batch whatever the store holds.
func (e *Engine) check(mode Mode, batch []Submission) error {
	for i := range batch {
		s := &batch[i]
		c, err := e.contract(s.Job.ID.Contract)
		if err != nil {
			return err
		}
		foreign := func(id job.ID) bool { return id.Contract != c.Name }
		var why string
		switch {
		case s.Job.Queue == "":
			why = "a job needs a queue"
		case !c.acceptsPriority(s.Job.Priority):
			return errPriorityOutOfRange(s.Job.ID)
		case s.hasRelatives() && mode != Unique:
			why = "a job with dependencies or a parent is submitted in mode unique"
		case len(s.DependsOn) > 0 && (!c.Graph || slices.ContainsFunc(s.DependsOn, foreign)):
			why = "a job can only wait for jobs of its own contract, and only where that has a graph"
		default:
			continue
		}
		return &job.Error{Kind: job.Invalid, Op: "engine.submit", ID: s.Job.ID, Msg: why}
	}
	return nil
}

// combinable reports whether a batch needs nothing but its rows: what reads
// other jobs has a transaction of its own.
func (e *Engine) combinable(c submitCall) bool {
	return c.mode != Replace && !slices.ContainsFunc(c.batch, func(s Submission) bool {
		return s.hasRelatives()
	})
}

// errSplitGroup says that calls disturb each other and must be served apart.
var errSplitGroup = errors.New("to be served apart")

// errConcurrentInsert says that a job came into being between a look and the insert; the
// next look finds it.
var errConcurrentInsert = errors.New("another request stores the same job")

const maxRaceTries = 20

// updateRetryingRaces is update for what may meet errConcurrentInsert.
func (e *Engine) updateRetryingRaces(ctx context.Context, fn func(*unit) error) error {
	for range maxRaceTries {
		if err := e.update(ctx, fn); !errors.Is(err, errConcurrentInsert) {
			return err
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: "engine.submit",
		Msg: "other requests keep storing the same jobs"}
}

// writeTimeout bounds a transaction that serves many callers, none of whom may end
// it by leaving.
const writeTimeout = 30 * time.Second

// updateGroup is update for a group of callers.
func (e *Engine) updateGroup(fn func(*unit) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	return e.update(ctx, fn)
}

func (e *Engine) submitGroup(group []*ticket[submitCall]) error {
	return e.updateGroup(func(u *unit) error {
		if len(group) == 1 {
			return u.submit(&group[0].call)
		}
		return u.submitTogether(group)
	})
}

// submitTogether inserts the batches of several callers at once. A caller in
// mode Unique none of whose jobs could be stored is told of its conflict; one of
// whose batch a part could be stored makes everybody be served apart.
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
	return u.checkQueueSize() // where it refuses, everybody is served apart
}

// sortKey is where a caller's jobs stand among others of the same moment: the jobs of
// contracts that list them follow their keys (TF-054), the rest come as they came.
func (e *Engine) sortKey(t *ticket[submitCall]) string {
	if id := t.call.batch[0].Job.ID; e.contracts[id.Contract].Searchable {
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
		if c.mode == Replace { // came into being since replace looked
			return errConcurrentInsert
		}
		return errExists(jobs[existing[0]].ID)
	}
	c.result = u.result(c, jobs, existing)
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
