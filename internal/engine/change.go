package engine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Change lets a cause happen to a job from outside a run. edit, if not nil, sees
// the locked job with its bodies first and may refuse, or change whatever a
// submitter says of a job but its identity and its relatives; bodies it replaces
// as a whole. It may run again. Change returns the job as it is then.
//
// Errors: NotFound, Conflict where the machine does not hold it, that of edit,
// and those of the store.
func (e *Engine) Change(ctx context.Context, id job.ID, on job.Cause,
	edit func(j *job.Job, now time.Time) error) (*job.Job, error) {
	if _, err := e.contract(id.Contract); err != nil {
		return nil, err
	}
	var after *job.Job
	err := e.update(ctx, func(u *unit) error {
		j, err := u.lockOne(id)
		if err != nil {
			return err
		}
		if edit != nil {
			if err := u.edited(j, edit); err != nil {
				return err
			}
		}
		if on == job.Removed && e.contracts[id.Contract].Graph {
			if err := u.ensureNoDependents(j); err != nil {
				return err
			}
		}
		after = j
		return u.move(j, on)
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

// edited lets a caller change a job and marks what it changed.
func (u *unit) edited(j *job.Job, edit func(*job.Job, time.Time) error) error {
	if err := u.tx.LoadBodies([]*job.Job{j}); err != nil {
		return err
	}
	draft := *j
	if err := edit(&draft, u.now); err != nil {
		return err
	}
	if draft.Queue != j.Queue {
		u.setQueue(j, draft.Queue)
	}
	if !u.e.contracts[j.ID.Contract].acceptsPriority(draft.Priority) {
		return errPriorityOutOfRange(j.ID)
	}
	j.Owner, j.Priority, j.OrderTime, j.DueAt = draft.Owner, draft.Priority, draft.OrderTime,
		draft.DueAt
	j.Lease, j.MaxAttempts, j.Trace = draft.Lease, draft.MaxAttempts, draft.Trace
	j.Kind, j.Alias = draft.Kind, draft.Alias
	for p := range job.Parts {
		if was, is := *j.Body(p), *draft.Body(p); !bytes.Equal(was, is) ||
			(was == nil) != (is == nil) {
			u.setBody(j, p, is)
		}
	}
	u.writes.rewrites.add(j)
	return nil
}

// ensureNoDependents refuses to take a job away that another lists as its dependency
// (TF-083).
func (u *unit) ensureNoDependents(j *job.Job) error {
	edges, err := u.tx.EdgesTo([]int64{j.Seq}, 1)
	if err != nil {
		return err
	}
	if len(edges) > 0 {
		return &job.Error{Kind: job.Conflict, Op: "engine.removed", ID: j.ID,
			Msg: "another job depends on it"}
	}
	return nil
}

// Cancel ends a job that is not over; a run it has learns of it at its next
// beat, and its result is refused.
func (e *Engine) Cancel(ctx context.Context, id job.ID) (*job.Job, error) {
	return e.Change(ctx, id, job.Canceled, nil)
}

// Retry lets a job that failed run once more, after delay. One whose failures
// are used up is over again with the next; Change can raise its limit instead.
func (e *Engine) Retry(ctx context.Context, id job.ID, delay time.Duration) (*job.Job, error) {
	return e.Change(ctx, id, job.Retried, func(j *job.Job, now time.Time) error {
		j.DueAt = now.Add(max(0, delay))
		return nil
	})
}

// Remove takes a job out of the store, in flight or not. NotFound if there is
// none; Conflict while another job depends on it.
func (e *Engine) Remove(ctx context.Context, id job.ID) error {
	_, err := e.Change(ctx, id, job.Removed, nil)
	return err
}

func (u *unit) lockOne(id job.ID) (*job.Job, error) {
	locked, err := u.tx.Lock([]job.ID{id})
	if err != nil {
		return nil, err
	}
	if len(locked) == 0 {
		return nil, errNotFound(id)
	}
	return locked[0], nil
}

func errNotFound(id job.ID) error {
	return &job.Error{Kind: job.NotFound, Op: "engine", ID: id,
		Msg: fmt.Sprintf("there is no job %q", id.Key)}
}
