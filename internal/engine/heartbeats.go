package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Heartbeats are the most frequent writes of a busy node, so they are made cheap: those of many
// workers share a transaction (combiner), each writes the row of its lease, its progress if it has
// some, and no event; and the row is locked so that a worker which is about to record the end of
// its run is not waited for (LeaseOnly). A lease is extended from now on and not from its old end,
// so a late heartbeat gives as much time as any other.

// HeartbeatRequest is a run with the progress to store. Progress replaces the job's; nil leaves it.
type HeartbeatRequest struct {
	Run      Run
	Progress []byte
	// Failure, unless nil, says that the run has failed. It is stored as the failure of the job,
	// with the number of the attempt, and the lease is not extended: the run ends with it.
	Failure *job.AttemptFailure
}

// HeartbeatResult is the answer to a HeartbeatRequest: until when the lease lasts, or the error for
// which nothing changed.
type HeartbeatResult struct {
	Until time.Time
	Err   error
}

type heartbeatCall struct {
	requests []HeartbeatRequest
	results  []HeartbeatResult
}

// Heartbeat extends the lease of a run by its whole length, also one that has expired but that no
// sweep has ended yet. progress replaces the job's; nil leaves it. RunLost means that the worker
// should stop.
func (e *Engine) Heartbeat(ctx context.Context, run Run, progress []byte) (until time.Time,
	err error) {
	results := e.HeartbeatAll(ctx, []HeartbeatRequest{{Run: run, Progress: progress}})
	return results[0].Until, results[0].Err
}

// HeartbeatAll is Heartbeat for several runs in one transaction: one that is lost does not hold up
// the others. Of a run that is named twice the last progress counts.
func (e *Engine) HeartbeatAll(ctx context.Context, requests []HeartbeatRequest) []HeartbeatResult {
	if len(requests) == 0 {
		return nil
	}
	call, err := e.heartbeats.do(ctx, heartbeatCall{
		requests: requests,
		results:  make([]HeartbeatResult, len(requests)),
	}, len(requests))
	if err != nil {
		for i := range call.results {
			call.results[i] = HeartbeatResult{Err: err}
		}
	}
	return call.results
}

func (e *Engine) heartbeatGroup(group []*ticket[heartbeatCall]) error {
	return e.updateGroup(e.heartbeats.depth, func(u *unit) error {
		var seqs []int64
		for _, t := range group {
			for _, request := range t.call.requests {
				seqs = append(seqs, request.Run.Run.Seq())
			}
		}
		jobs, err := u.lockSelected(store.Selector{Seqs: seqs, Lock: true, LeaseOnly: true})
		if err != nil {
			return err
		}
		for _, t := range group {
			for i, request := range t.call.requests {
				j, err := currentRun(jobs, request.Run)
				if err != nil {
					t.call.results[i] = HeartbeatResult{Err: err}
					continue
				}
				t.call.results[i] = HeartbeatResult{Until: u.heartbeat(j, request)}
			}
		}
		return nil
	})
}

func (u *unit) heartbeat(j *job.Job, r HeartbeatRequest) time.Time {
	if r.Failure == nil {
		j.LeaseUntil = u.leaseEnd(j)
	} else {
		failure := *r.Failure
		failure.Attempt = j.Attempts
		u.setBody(j, job.Failure, failure.Encode())
	}
	u.noteWorker(j, j.Worker, 0, 0)
	u.edit(j)
	if r.Progress != nil {
		u.setBody(j, job.Progress, r.Progress)
	}
	return j.LeaseUntil
}

// HeartbeatJob is Heartbeat for the run that the job has now: for protocols whose heartbeats name
// no run. RunLost means that the job has none.
func (e *Engine) HeartbeatJob(ctx context.Context, id job.ID, progress []byte) error {
	if _, err := e.jobType(id.JobType); err != nil {
		return err
	}
	return e.update(ctx, func(u *unit) error {
		locked, err := u.tx.Load(store.Selector{IDs: []job.ID{id}, Lock: true, LeaseOnly: true})
		switch {
		case err != nil:
			return err
		case len(locked) == 0:
			return errNotLeased(id)
		}
		if err := ensureNoRecordedEnds(locked); err != nil {
			return err
		}
		if locked[0].Run.IsZero() {
			return errNotLeased(id)
		}
		u.heartbeat(locked[0], HeartbeatRequest{Progress: progress})
		return nil
	})
}
