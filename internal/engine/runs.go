package engine

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Run names the run a worker writes under. ID may be empty; when it is given,
// the run must be that job's.
type Run struct {
	ID  job.ID
	Run job.RunID
}

// Outcome is how a run ended: Succeeded, Failed, FailedForGood, Released or
// Started, with what it leaves. Bodies that are nil leave what is there.
type Outcome struct {
	On       job.Cause
	Result   []byte
	Failure  []byte
	Progress []byte
	Reason   string // for the history
	// Delay is how long a job that Failed or was Released waits until it may be
	// claimed again; 0 leaves that to the contract.
	Delay time.Duration
}

// Judge says how a run ends, from the job as it is then, without bodies. It is
// asked in the transaction, only for a run that is still current, perhaps more
// than once: it may look and do nothing else. With an error the run goes on.
type DecideFunc func(*job.Job) (Outcome, error)

// FinishRequest is a run with how it ended.
type FinishRequest struct {
	Run     Run
	Outcome Outcome
	Decide  DecideFunc // in place of Outcome
	// Next asks for jobs in the same transaction, when the run has ended: who would claim
	// right behind it saves a commit, and the slot under a limit that the run leaves free
	// is there already. Its Wait counts for nothing. It is served also where the run is lost,
	// but not while others wait for the same, and not under a limit of the whole contract:
	// they come first.
	Next *ClaimRequest
}

// FinishResult is what became of an Ending: the job as it is then, without bodies, or
// why nothing changed. Next are the jobs that were asked for.
type FinishResult struct {
	Job  *job.Job
	Err  error
	Next []*job.Job
}

type finishCall struct {
	requests []FinishRequest
	results  []FinishResult
}

// runGroup is the number of runs written in one transaction.
const runGroup = 1000

// Finish ends a run. RunLost means that it is no longer the job's current one;
// nothing has changed.
func (e *Engine) Finish(ctx context.Context, run Run, o Outcome) (*job.Job, error) {
	results := e.FinishAll(ctx, []FinishRequest{{Run: run, Outcome: o}})
	return results[0].Job, results[0].Err
}

// FinishBy is Finish for who has to see the job to say how its run ended. An
// error of the judge comes back as it is.
func (e *Engine) FinishBy(ctx context.Context, run Run, judge DecideFunc) (*job.Job, error) {
	results := e.FinishAll(ctx, []FinishRequest{{Run: run, Decide: judge}})
	return results[0].Job, results[0].Err
}

// FinishAll ends runs, each with an outcome of its own: one that is lost does not hold up the
// others.
//
// The end of ctx does not end it, nor any other verb that finishes: the work is done, so it is
// written although the caller has left, and a caller that stays must not take for failed what may
// have been written. It waits for writeTimeout at most.
func (e *Engine) FinishAll(ctx context.Context, requests []FinishRequest) []FinishResult {
	if len(requests) == 0 {
		return nil
	}
	call, err := e.finishes.do(context.WithoutCancel(ctx), finishCall{
		requests: requests,
		results:  make([]FinishResult, len(requests)),
	}, len(requests))
	if err != nil {
		for i := range call.results {
			call.results[i] = FinishResult{Err: err}
		}
	}
	return call.results
}

// Start tells that the worker begins, where the contract's machine tells
// assigned from running; elsewhere it changes nothing.
func (e *Engine) Start(ctx context.Context, run Run) (*job.Job, error) {
	return e.Finish(ctx, run, Outcome{On: job.Started})
}

// Release gives a job back unharmed.
func (e *Engine) Release(ctx context.Context, run Run) (*job.Job, error) {
	return e.Finish(ctx, run, Outcome{On: job.Released})
}

func (e *Engine) finishGroup(group []*ticket[finishCall]) error {
	return e.updateGroup(func(u *unit) error {
		next := e.chainedClaims(group)
		if err := u.lockLimits(callsOf(next)); err != nil {
			return err
		}
		jobs, err := u.current(group)
		if err != nil {
			return err
		}
		for _, t := range group {
			for i, ending := range t.call.requests {
				j, o, err := decide(jobs, ending)
				if err != nil {
					t.call.results[i] = FinishResult{Err: err}
					continue
				}
				after, err := u.finish(j, o)
				if err != nil && !job.IsKind(err, job.Conflict) {
					return err
				}
				t.call.results[i] = FinishResult{Job: after, Err: err}
			}
		}
		return u.claimChained(next)
	})
}

// chainedClaim is a claim that came with the end of a run.
type chainedClaim struct {
	call   *claimCall
	result *FinishResult
}

// chainedClaims are the claims that come with the endings of a group and that nobody else waits
// for. Queues that share a limit have none: there a slot that becomes free is for whoever looks,
// also on another node.
func (e *Engine) chainedClaims(group []*ticket[finishCall]) (claims []chainedClaim) {
	if e.hub.isClosed() {
		return nil
	}
	for _, t := range group {
		for i := range t.call.requests {
			next := t.call.requests[i].Next
			if next == nil || e.contracts[next.Contract].MaxRunning > 0 || e.hasWaiters(*next) {
				continue
			}
			claims = append(claims, chainedClaim{
				call:   &claimCall{ctx: context.Background(), req: *next},
				result: &t.call.results[i],
			})
		}
	}
	return claims
}

// hasWaiters reports whether anybody here waits for jobs of the queues of a request.
func (e *Engine) hasWaiters(req ClaimRequest) bool {
	hashes := append(queueHashesOf(req)[1:], anyQueueHash(req.Contract))
	return slices.ContainsFunc(hashes, func(l job.QueueHash) bool { return e.hub.waiting(l) > 0 })
}

// claimChained serves the claims that came with the endings of a group.
func (u *unit) claimChained(claims []chainedClaim) error {
	if len(claims) == 0 {
		return nil
	}
	if err := u.writeJobsMoved(); err != nil { // so that the claims see what has ended
		return err
	}
	if err := u.claimPass(callsOf(claims)); err != nil {
		return err
	}
	for _, c := range claims {
		c.result.Next = c.call.jobs
	}
	return nil
}

func callsOf(claims []chainedClaim) (calls []*claimCall) {
	for _, c := range claims {
		calls = append(calls, c.call)
	}
	return calls
}

func (u *unit) current(group []*ticket[finishCall]) (map[int64]*job.Job, error) {
	var seqs []int64
	for _, t := range group {
		for _, ending := range t.call.requests {
			seqs = append(seqs, ending.Run.Run.Seq())
		}
	}
	return u.lockBySeq(seqs)
}

func (u *unit) lockBySeq(seqs []int64) (map[int64]*job.Job, error) {
	locked, err := u.tx.LockBySeq(seqs)
	jobs := make(map[int64]*job.Job, len(locked))
	for _, j := range locked {
		jobs[j.Seq] = j
	}
	return jobs, err
}

// currentRun returns the job if the run is its current one.
func currentRun(jobs map[int64]*job.Job, run Run) (*job.Job, error) {
	j := jobs[run.Run.Seq()]
	if j == nil || run.Run.IsZero() || j.Run != run.Run ||
		(run.ID != (job.ID{}) && run.ID != j.ID) {
		return nil, &job.Error{Kind: job.RunLost, Op: "engine.run", ID: run.ID,
			Msg: "the run is no longer the job's current one"}
	}
	return j, nil
}

// decide returns the job of a run with how the run ends. An error is the
// caller's own.
func decide(jobs map[int64]*job.Job, end FinishRequest) (*job.Job, Outcome, error) {
	j, err := currentRun(jobs, end.Run)
	o := end.Outcome
	if err == nil && end.Decide != nil {
		o, err = end.Decide(j)
	}
	return j, o, err
}

// finish ends the run of a job. What it returns is a copy: the next ending may be
// about the same job.
func (u *unit) finish(j *job.Job, o Outcome) (after *job.Job, err error) {
	if o.On == job.Started {
		err = u.start(j)
	} else {
		err = u.end(j, o)
	}
	if err != nil {
		return nil, err
	}
	then := *j
	return &then, nil
}

func (u *unit) end(j *job.Job, o Outcome) error {
	if err := u.moveWith(j, o.On, o.Reason, o.Delay); err != nil {
		return err
	}
	for p, body := range [job.Parts][]byte{job.Result: o.Result, job.Failure: o.Failure,
		job.Progress: o.Progress} {
		if body != nil {
			u.setBody(j, job.Part(p), body)
		}
	}
	if j.Parent != 0 && o.Failure != nil {
		u.parentUpdate(j.Parent).failure = o.Failure
	}
	return nil
}

func (u *unit) start(j *job.Job) error {
	if _, ok := u.e.contracts[j.ID.Contract].Machine.Next(j.State, job.Started); !ok {
		return nil
	}
	j.LeaseUntil = u.leaseEnd(j)
	return u.move(j, job.Started)
}

type heartbeatCall struct {
	run      Run
	progress []byte
	until    time.Time
}

// Heartbeat tells that a run is alive: its lease begins anew, also when it was over
// and nobody has noticed yet. progress replaces the job's; nil leaves it.
// RunLost means that the worker should stop.
func (e *Engine) Heartbeat(ctx context.Context, run Run, progress []byte) (until time.Time,
	err error) {
	call, err := e.heartbeats.do(ctx, heartbeatCall{run: run, progress: progress}, 1)
	if err != nil {
		return time.Time{}, err
	}
	return call.until, nil
}

func (e *Engine) heartbeatGroup(group []*ticket[heartbeatCall]) error {
	return e.updateGroup(func(u *unit) error {
		seqs := make([]int64, len(group))
		for i, t := range group {
			seqs[i] = t.call.run.Run.Seq()
		}
		jobs, err := u.lockBySeq(seqs)
		if err != nil {
			return err
		}
		for _, t := range group {
			var j *job.Job
			if j, t.err = currentRun(jobs, t.call.run); t.err == nil {
				t.call.until = u.heartbeat(j, t.call.progress)
			}
		}
		return nil
	})
}

func (u *unit) heartbeat(j *job.Job, progress []byte) time.Time {
	j.LeaseUntil = u.leaseEnd(j)
	u.edit(j)
	if progress != nil {
		u.setBody(j, job.Progress, progress)
	}
	return j.LeaseUntil
}

// HeartbeatJob is Beat for whatever run the job has now: for protocols whose
// heartbeat names no run. RunLost means that it has none.
func (e *Engine) HeartbeatJob(ctx context.Context, id job.ID, progress []byte) error {
	return e.onCurrentRun(ctx, id, func(u *unit, j *job.Job) error {
		u.heartbeat(j, progress)
		return nil
	})
}

// Requeue swaps the job of a run for new ones in one transaction: either the job
// is gone and the batch stored, or nothing has changed. RunLost means that the
// run is no longer current; nothing is stored then. The other errors are those
// of Submit.
func (e *Engine) Requeue(ctx context.Context, run Run, mode Mode, batch []Submission) error {
	if err := e.check(mode, batch); err != nil {
		return err
	}
	return e.updateRetryingRaces(ctx, func(u *unit) error {
		jobs, err := u.lockBySeq([]int64{run.Run.Seq()})
		if err != nil {
			return err
		}
		j, err := currentRun(jobs, run)
		if err != nil {
			return err
		}
		return u.requeue(j, mode, batch)
	})
}

// RequeueJob is Requeue for whatever run the job has now.
func (e *Engine) RequeueJob(ctx context.Context, id job.ID, mode Mode, batch []Submission) error {
	if err := e.check(mode, batch); err != nil {
		return err
	}
	return e.onCurrentRun(ctx, id, func(u *unit, j *job.Job) error {
		return u.requeue(j, mode, batch)
	})
}

func (e *Engine) onCurrentRun(ctx context.Context, id job.ID,
	fn func(*unit, *job.Job) error) error {
	if _, err := e.contract(id.Contract); err != nil {
		return err
	}
	return e.updateRetryingRaces(ctx, func(u *unit) error {
		j, err := u.lockOne(id)
		if job.IsKind(err, job.NotFound) || (err == nil && j.Run.IsZero()) {
			return &job.Error{Kind: job.RunLost, Op: "engine.run", ID: id,
				Msg: "the job is not in flight"}
		}
		if err != nil {
			return err
		}
		return fn(u, j)
	})
}

func (u *unit) requeue(j *job.Job, mode Mode, batch []Submission) error {
	if err := u.move(j, job.Requeued); err != nil {
		return err
	}
	if err := u.writeJobsMoved(); err != nil { // the identity is free from here on
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	return u.submit(&submitCall{batch: batch, mode: mode})
}
