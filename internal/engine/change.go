package engine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Change applies a cause to a job from outside a run. edit, if not nil, gets the locked job with
// its bodies first. It may refuse, or change what a submitter sets of a job, but neither its
// identity nor its relatives; a body is replaced as a whole. It may run more than once. Change
// returns the changed job.
//
// Errors: NotFound, Conflict where the machine does not allow the cause, that of edit, and those
// of the store.
func (e *Engine) Change(ctx context.Context, id job.ID, on job.Cause,
	edit func(j *job.Job, now time.Time) error) (*job.Job, error) {
	if _, err := e.jobType(id.JobType); err != nil {
		return nil, err
	}
	var after *job.Job
	err := e.update(ctx, func(u *unit) error {
		j, err := u.lockOne(id)
		if err != nil {
			return err
		}
		u.setChangedJob(j)
		if edit != nil {
			if err := u.applyEdit(j, edit); err != nil {
				return err
			}
		}
		if on == job.Removed && e.jobTypes[id.JobType].Graph {
			if err := u.ensureNoDependents(j); err != nil {
				return err
			}
		}
		after = j
		return u.transition(j, on)
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

// applyEdit lets a caller change a job and marks what it changed.
func (u *unit) applyEdit(j *job.Job, edit func(*job.Job, time.Time) error) error {
	if err := u.fillBodies([]*job.Job{j}); err != nil {
		return err
	}
	return u.applyDraft(j, edit)
}

// applyDraft is applyEdit with the bodies that the job has.
func (u *unit) applyDraft(j *job.Job, edit func(*job.Job, time.Time) error) error {
	draft := *j
	if err := edit(&draft, u.now); err != nil {
		return err
	}
	if draft.Queue != j.Queue {
		u.setQueue(j, draft.Queue)
	}
	if !u.e.jobTypes[j.ID.JobType].acceptsPriority(draft.Priority) {
		return errPriorityOutOfRange(j.ID)
	}
	copySubmitted(j, &draft)
	for p := range job.Bodies {
		was, is := *j.Body(p), *draft.Body(p)
		if !bytes.Equal(was, is) || (was == nil) != (is == nil) {
			u.setBody(j, p, is)
		}
	}
	u.updateAll(j)
	return nil
}

// ensureNoDependents refuses to remove a job that another has as its dependency (TF-083).
func (u *unit) ensureNoDependents(j *job.Job) error {
	edges, err := u.tx.Edges(store.EdgeSelector{To: []int64{j.Seq}, Limit: 1})
	if err != nil {
		return err
	}
	if len(edges) > 0 {
		return &job.Error{Kind: job.Conflict, Op: "engine.removed", ID: j.ID,
			Msg: "another job depends on it"}
	}
	return nil
}

// Cancel ends a job that is not finished. Its worker learns of it with its next heartbeat, and the
// result of its run is refused.
func (e *Engine) Cancel(ctx context.Context, id job.ID) (*job.Job, error) {
	return e.Change(ctx, id, job.Canceled, nil)
}

// Retry makes a failed job ready once more, after delay. A job that has used up its attempts is
// given up again with the next failure; Change can raise MaxAttempts instead.
func (e *Engine) Retry(ctx context.Context, id job.ID, delay time.Duration) (*job.Job, error) {
	return e.Change(ctx, id, job.Retried, func(j *job.Job, now time.Time) error {
		j.DueAt = now.Add(max(0, delay))
		return nil
	})
}

// Remove deletes a job, leased or not. NotFound if there is none; Conflict while another job
// depends on it.
func (e *Engine) Remove(ctx context.Context, id job.ID) error {
	_, err := e.Change(ctx, id, job.Removed, nil)
	return err
}

// RunNow makes a job that waits for nothing but its time due now. Conflict for any other job, Full
// where its job type has its MaxQueueSize.
func (e *Engine) RunNow(ctx context.Context, id job.ID) (after *job.Job, err error) {
	if _, err := e.jobType(id.JobType); err != nil {
		return nil, err
	}
	err = e.update(ctx, func(u *unit) error {
		j, err := u.lockOne(id)
		if err != nil {
			return err
		}
		if j.Phase != job.Waiting || j.OpenDeps > 0 {
			return &job.Error{Kind: job.Conflict, Op: "engine.run_now", ID: id,
				Msg: fmt.Sprintf("the job is %s and does not wait for its time",
					stateName(j.State)), Err: &StateError{*j}}
		}
		u.setChangedJob(j)
		after, j.DueAt = j, u.now
		if err := u.promote(j); err != nil {
			return err
		}
		return u.checkQueueSize()
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

// lockOne locks a job. It returns a recordedEndsError where the end of the job's run is recorded.
func (u *unit) lockOne(id job.ID) (*job.Job, error) {
	locked, err := u.tx.Load(store.Selector{IDs: []job.ID{id}, Lock: true})
	if err != nil {
		return nil, err
	}
	if len(locked) == 0 {
		return nil, errJobNotFound(id)
	}
	return locked[0], ensureNoRecordedEnds(locked)
}

func errJobNotFound(id job.ID) error {
	return &job.Error{Kind: job.NotFound, Op: "engine", ID: id,
		Msg: fmt.Sprintf("there is no job %q", id.Key)}
}
