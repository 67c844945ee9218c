package engine

import (
	"context"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// ClaimJob claims one job by its identity, also one whose lease has expired or which is due by
// now. Errors: NotFound if there is no such job, Conflict where it is not claimable now because it
// is leased, waiting, finished, paused or under a limit that is used up.
func (e *Engine) ClaimJob(ctx context.Context, id job.ID, worker string) (*job.Job, error) {
	if _, err := e.jobType(id.JobType); err != nil {
		return nil, err
	}
	var claimed *job.Job
	err := e.updateRetryingRaces(ctx, func(u *unit) error {
		j, err := u.lockUnderLimits(id)
		if err != nil {
			return err
		}
		if err := u.makeReady(j); err != nil {
			return err
		}
		free, err := u.canRun(j)
		if err != nil {
			return err
		}
		if !free {
			return &job.Error{Kind: job.Conflict, Op: "engine.claim", ID: id,
				Msg: "the job cannot be claimed now"}
		}
		if err := u.fillBodies([]*job.Job{j}); err != nil {
			return err
		}
		claimed = j
		return u.leaseJob(j, worker)
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// lockUnderLimits locks a job and, before it, the limits that its run would be under: every
// transaction locks names before rows.
func (u *unit) lockUnderLimits(id job.ID) (*job.Job, error) {
	found, err := getOne(u.tx, id, store.NoBodies)
	if err != nil {
		return nil, err
	}
	key := queueKeyOf(found)
	if err := u.lockNames([]queueKey{{key.jobType, ""}, key}); err != nil {
		return nil, err
	}
	j, err := u.lockOne(id)
	if err != nil {
		return nil, err
	}
	if queueKeyOf(j) != key { // it was moved to another queue, which has limits of its own
		return nil, errConcurrentChange
	}
	return j, nil
}

// canRun reports whether a job may be claimed now. Its limits are locked.
func (u *unit) canRun(j *job.Job) (bool, error) {
	key := queueKeyOf(j)
	if j.Phase != job.Ready || u.settings.of(key).Paused || u.e.hub.isClosed() {
		return false, nil
	}
	free, err := u.availableRuns(key, u.availableStarts(key, 1))
	return free > 0, err
}

// makeReady promotes a job that is due and expires a lease that has ended, as the sweeps would.
func (u *unit) makeReady(j *job.Job) error {
	if j.Phase == job.Leased && u.leaseExpired(j) {
		return u.expireRun(j)
	}
	if j.Phase == job.Waiting && j.OpenDeps == 0 && !j.DueAt.After(u.now) {
		return u.promote(j)
	}
	return nil
}

// leaseExpired reports whether the lease of a job has ended. One that was given or extended before
// the clock jumped ahead lasts for its length from the jump on, see clockGuard.
func (u *unit) leaseExpired(j *job.Job) bool {
	if j.LeaseUntil.After(u.now) {
		return false
	}
	jumped := u.e.guard.lastJump()
	extended := !jumped.IsZero() && j.UpdatedAt.Before(jumped)
	return !extended || !jumped.Add(j.Lease).After(u.now)
}
