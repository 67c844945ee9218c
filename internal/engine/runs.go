package engine

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The verbs of a worker name its run. A group of them locks the jobs of all its runs at once, by
// the number in the run id, and each call is checked against its job then:
//
//	Finish, FinishBy, Start, Release ─▶ FinishAll ─▶ finishGroup
//	Heartbeat ─▶ HeartbeatAll ─▶ heartbeatGroup
//	Requeue ─▶ a transaction of its own
//
// The job's run is the fence: once it has changed, by an expiry, a cancel or a new claim, an older
// run is lost, whatever it still sends.

// Run names the run that a worker writes under. ID may be zero; when it is given, the run must be
// that job's.
type Run struct {
	ID  job.ID
	Run job.RunID
}

// Outcome is how a run ended: Succeeded, Failed, FailedForGood or Released, or that it was Started,
// with the bodies to set. A body that is nil stays as it is.
type Outcome struct {
	On       job.Cause
	Result   []byte
	Failure  []byte
	Progress []byte
	Reason   string // for the history
	// Delay is how long a job that Failed or was Released waits until it may be
	// claimed again; 0 leaves that to the contract. DueAt, if it is set, is until when, in place
	// of Delay.
	Delay time.Duration
	DueAt time.Time
	// Records are stored in the transaction that ends the run. Only runs of the job may write
	// them, as no lock but that of the job keeps two transactions apart.
	Records []job.Record
}

// DecideFunc returns the outcome of a run. It is called with the locked job, without bodies, in the
// transaction, only for a run that is still current, and perhaps more than once: it must have no
// side effects. After an error the run goes on.
type DecideFunc func(*job.Job) (Outcome, error)

// FinishRequest is a run with its outcome.
type FinishRequest struct {
	Run     Run
	Outcome Outcome
	Decide  DecideFunc // in place of Outcome
	// Next, if not nil, is a claim in the same transaction, after the run has ended. It saves the
	// worker a commit, and it can use the slot that the run leaves free. Its Wait is ignored. It
	// is served also where the run is lost. It gets nothing while other claims wait for the same
	// queues, or where the contract has a MaxRunning: those who waited longer come first.
	Next *ClaimRequest
}

// FinishResult is the answer to a FinishRequest: the job after it, without bodies, or the error for
// which nothing changed. Next are the jobs that were claimed.
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

// Finish ends a run. RunLost means that it is no longer the job's current one, and that nothing has
// changed.
func (e *Engine) Finish(ctx context.Context, run Run, o Outcome) (*job.Job, error) {
	results := e.FinishAll(ctx, []FinishRequest{{Run: run, Outcome: o}})
	return results[0].Job, results[0].Err
}

// FinishBy is Finish for a caller that needs the job to decide its outcome. An error of decide is
// returned unchanged.
func (e *Engine) FinishBy(ctx context.Context, run Run, decide DecideFunc) (*job.Job, error) {
	results := e.FinishAll(ctx, []FinishRequest{{Run: run, Decide: decide}})
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

// Start records that the work on a claimed job has begun, where the contract has a state for it;
// elsewhere it changes nothing.
func (e *Engine) Start(ctx context.Context, run Run) (*job.Job, error) {
	return e.Finish(ctx, run, Outcome{On: job.Started})
}

// Release gives a claimed job back with no attempt counted.
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
			for i, request := range t.call.requests {
				j, o, err := decide(jobs, request)
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

// chainedClaims returns the claims that come with the requests of a group, but for those that would
// overtake a waiting claim: another caller of this node may wait for the same queues, and where
// the queues of a contract share a limit one of any node.
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
			e.asks.begin(next)
			e.asks.end(next)
			claims = append(claims, chainedClaim{
				call:   &claimCall{ctx: context.Background(), req: *next},
				result: &t.call.results[i],
			})
		}
	}
	return claims
}

// hasWaiters reports whether claims of this node wait for jobs of the queues of a request.
func (e *Engine) hasWaiters(req ClaimRequest) bool {
	hashes := append(queueHashesOf(req)[1:], anyQueueHash(req.Contract))
	return slices.ContainsFunc(hashes, func(h job.QueueHash) bool { return e.hub.waiting(h) > 0 })
}

// claimChained serves the claims that came with the requests of a group.
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
		for _, request := range t.call.requests {
			seqs = append(seqs, request.Run.Run.Seq())
		}
	}
	return u.lockBySeq(seqs)
}

func (u *unit) lockBySeq(seqs []int64) (map[int64]*job.Job, error) {
	locked, err := u.tx.Load(store.Selector{Seqs: seqs, Lock: true})
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

// decide returns the job of a run and the outcome of the run. An error is the caller's own.
func decide(jobs map[int64]*job.Job, r FinishRequest) (*job.Job, Outcome, error) {
	j, err := currentRun(jobs, r.Run)
	if err != nil || r.Decide == nil {
		return j, r.Outcome, err
	}
	o, err := r.Decide(j)
	return j, o, err
}

// finish ends the run of a job. It returns a copy, as the next request may be about the same job.
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
	delay := o.Delay
	if !o.DueAt.IsZero() {
		delay = max(time.Microsecond, o.DueAt.Sub(u.now))
	}
	if err := u.moveWith(j, o.On, o.Reason, delay); err != nil {
		return err
	}
	u.writes.Records = append(u.writes.Records, o.Records...)
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

// HeartbeatRequest is a run with the progress to store. Progress replaces the job's; nil leaves it.
type HeartbeatRequest struct {
	Run      Run
	Progress []byte
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
	return e.updateGroup(func(u *unit) error {
		var seqs []int64
		for _, t := range group {
			for _, request := range t.call.requests {
				seqs = append(seqs, request.Run.Run.Seq())
			}
		}
		jobs, err := u.lockBySeq(seqs)
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
				t.call.results[i] = HeartbeatResult{Until: u.heartbeat(j, request.Progress)}
			}
		}
		return nil
	})
}

func (u *unit) heartbeat(j *job.Job, progress []byte) time.Time {
	j.LeaseUntil = u.leaseEnd(j)
	u.sawWorker(j, j.Worker, 0, 0)
	u.edit(j)
	if progress != nil {
		u.setBody(j, job.Progress, progress)
	}
	return j.LeaseUntil
}

// HeartbeatJob is Heartbeat for the run that the job has now: for protocols whose heartbeats name
// no run. RunLost means that the job has none.
func (e *Engine) HeartbeatJob(ctx context.Context, id job.ID, progress []byte) error {
	return e.onCurrentRun(ctx, id, func(u *unit, j *job.Job) error {
		u.heartbeat(j, progress)
		return nil
	})
}

// Requeue replaces the job of a run by new jobs in one transaction: either the job is gone and the
// batch is stored, or nothing has changed. RunLost means that the run is no longer current. The
// other errors are those of Submit.
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

// RequeueJob is Requeue for the run that the job has now.
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
		switch {
		case job.IsKind(err, job.NotFound):
			return errNotLeased(id)
		case err != nil:
			return err
		case j.Run.IsZero():
			return errNotLeased(id)
		}
		return fn(u, j)
	})
}

func errNotLeased(id job.ID) error {
	return &job.Error{Kind: job.RunLost, Op: "engine.run", ID: id, Msg: "the job is not leased"}
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
