package engine

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/clock"
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
// A group does not wait for jobs that another transaction has locked, as that of a worker that
// records the end of its run may take long: FinishAll puts such calls into a later group, and
// heartbeats have a lock that such a worker does not hold up.
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
	// Delay is how long a job that Failed or was Released waits until it may be claimed again; with
	// 0 one that Failed waits as its retry policy says. DueAt, if it is set, is until when, in
	// place of Delay.
	Delay time.Duration
	DueAt time.Time
	// NoAttempt says that nothing was done in the run, so that its claim is no attempt of the job.
	NoAttempt bool
	// Records are stored in the transaction that ends the run. Only runs of the job may write
	// them, as no lock but that of the job keeps two transactions apart.
	Records []job.Record
	// Published are published in that transaction, where a subscription wants them.
	Published []FeedEvent
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
	// queues, or where the job type has a MaxRunning: those who waited longer come first. It does
	// not look for what a sweep would make ready: who got less than it asked for has to claim.
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
	// misses says that another transaction has locked a job of the requests: nothing of the call
	// is done yet.
	misses bool
}

// maxRunGroup is the most runs that are written in one transaction.
const maxRunGroup = 1000

// Finish ends a run. RunLost means that it is no longer the job's current one, and that nothing has
// changed. The end of ctx does not cancel it, see FinishAll.
func (e *Engine) Finish(ctx context.Context, run Run, o Outcome) (*job.Job, error) {
	results := e.FinishAll(ctx, []FinishRequest{{Run: run, Outcome: o}})
	return results[0].Job, results[0].Err
}

// FinishBy is Finish for a caller that needs the job to decide its outcome. An error of decide is
// returned unchanged. The end of ctx does not cancel it, see FinishAll.
func (e *Engine) FinishBy(ctx context.Context, run Run, decide DecideFunc) (*job.Job, error) {
	results := e.FinishAll(ctx, []FinishRequest{{Run: run, Decide: decide}})
	return results[0].Job, results[0].Err
}

// FinishAll ends runs, each with an outcome of its own: one that is lost does not hold up the
// others.
//
// The end of ctx does not cancel it, nor any other verb that finishes (decision 0107): the work is
// done, so its end is written although the caller has left, and a caller that stays must not take
// for failed what may have been written. Of ctx it has the values alone. It waits for writeTimeout
// at most, and for a job that another transaction has locked for lockedTimeout.
func (e *Engine) FinishAll(ctx context.Context, requests []FinishRequest) []FinishResult {
	if len(requests) == 0 {
		return nil
	}
	call := &finishCall{requests: requests, results: make([]FinishResult, len(requests))}
	ctx = context.WithoutCancel(ctx)
	locked, cancel := context.WithTimeout(ctx, lockedTimeout)
	defer cancel()
	backoff := clock.Backoff{Min: minLockedPause, Max: maxLockedPause}
	for {
		var err error
		if call, err = e.finishes.do(ctx, *call, weightOfFinish(requests)); err != nil {
			return call.fail(err)
		}
		if !call.misses {
			return call.results
		}
		if !backoff.Sleep(locked) {
			return call.fail(errLocked)
		}
	}
}

// weightOfFinish is how many runs requests end, or how many jobs they claim if those are more.
func weightOfFinish(requests []FinishRequest) int {
	claims := 0
	for i := range requests {
		if next := requests[i].Next; next != nil {
			claims += next.Max
		}
	}
	return max(len(requests), claims)
}

// FinishAllRemote is FinishAll for a remote worker that claims in the same transaction, see
// FinishRequest.Next. The end of ctx does not cancel it, see FinishAll; jobs that are claimed for a
// caller that has left meanwhile are released at once. draining says that the worker is drained and
// gets nothing more.
func (e *Engine) FinishAllRemote(ctx context.Context, requests []FinishRequest, next ClaimRequest,
	agent string) (results []FinishResult, jobs []*job.Job, draining bool) {
	e.loadDrainsOnce(ctx)
	draining = e.IsDraining(DrainWorker, next.Worker)
	last := len(requests) - 1
	if !draining {
		next.remote = true
		requests[last].Next = &next
	}
	results = e.FinishAll(ctx, requests)
	e.workers.polled(&next, agent)(false) // after the end: the worker goes on
	jobs = results[last].Next
	if ctx.Err() != nil {
		e.ReleaseClaimed(jobs)
		jobs = nil
	}
	return results, jobs, draining
}

// How long FinishAll waits for a job that another transaction has locked, and the pauses between
// its tries.
const (
	lockedTimeout  = 10 * time.Second
	minLockedPause = 5 * time.Millisecond
	maxLockedPause = 320 * time.Millisecond
)

var errLocked = &job.Error{Kind: job.Unavailable, Op: "engine.run",
	Msg: "another transaction has locked the job of the run"}

// fail returns an error for each of the requests.
func (c *finishCall) fail(err error) []FinishResult {
	for i := range c.results {
		c.results[i] = FinishResult{Err: err}
	}
	return c.results
}

// Start records that the work on a claimed job has begun, where the job type has a state for it;
// elsewhere it changes nothing. The end of ctx does not cancel it, see FinishAll.
func (e *Engine) Start(ctx context.Context, run Run) (*job.Job, error) {
	return e.Finish(ctx, run, Outcome{On: job.Started})
}

// Release gives a claimed job back with no attempt counted. The end of ctx does not cancel it, see
// FinishAll.
func (e *Engine) Release(ctx context.Context, run Run) (*job.Job, error) {
	return e.Finish(ctx, run, Outcome{On: job.Released})
}

func (e *Engine) finishGroup(group []*ticket[finishCall]) error {
	return e.updateGroup(e.finishes.depth, func(u *unit) error { return u.finishGroup(group) })
}

// finishGroup ends the runs of a group. It leaves out calls of which it cannot lock a job at once.
func (u *unit) finishGroup(group []*ticket[finishCall]) error {
	next := u.e.nextClaims(group)
	if err := u.lockLimits(callsOf(next)); err != nil {
		return err
	}
	jobs, locked, err := u.current(group)
	if err != nil {
		return err
	}
	for _, t := range group {
		if t.call.misses = t.call.isLocked(locked); t.call.misses {
			continue
		}
		if err := u.finishCall(&t.call, jobs); err != nil {
			return err
		}
	}
	return u.claimNext(slices.DeleteFunc(next, func(c nextClaim) bool {
		return c.finishes.misses
	}))
}

// isLocked reports whether the job of a request that is in its run is among those that are locked.
func (c *finishCall) isLocked(locked map[int64]job.RunID) bool {
	return slices.ContainsFunc(c.requests, func(r FinishRequest) bool {
		run, isLocked := locked[r.Run.Run.Seq()]
		return isLocked && run == r.Run.Run
	})
}

func (u *unit) finishCall(c *finishCall, jobs map[int64]*job.Job) error {
	for i, request := range c.requests {
		j, o, err := decide(jobs, request)
		if err != nil {
			c.results[i] = FinishResult{Err: err}
			continue
		}
		after, err := u.applyOutcome(j, o)
		if err != nil && !job.IsKind(err, job.Conflict) {
			return err
		}
		c.results[i] = FinishResult{Job: after, Err: err}
	}
	return nil
}

// nextClaim is a claim that came with the end of a run.
type nextClaim struct {
	call     *claimCall
	finishes *finishCall // that it came with
	result   *FinishResult
}

// nextClaims returns the claims that come with the requests of a group, but for those that would
// overtake a waiting claim: another caller of this node may wait for the same queues, and where
// the queues of a job type share a limit one of any node.
func (e *Engine) nextClaims(group []*ticket[finishCall]) (claims []nextClaim) {
	if e.hub.isClosed() {
		return nil
	}
	for _, t := range group {
		for i := range t.call.requests {
			next := t.call.requests[i].Next
			if next == nil || e.jobTypes[next.JobType].MaxRunning > 0 || e.hasWaiters(*next) {
				continue
			}
			e.lastPolls.begin(next)
			e.lastPolls.end(next)
			claims = append(claims, nextClaim{
				call:     &claimCall{ctx: context.Background(), req: *next},
				finishes: &t.call,
				result:   &t.call.results[i],
			})
		}
	}
	return claims
}

// hasWaiters reports whether claims of this node wait for jobs of the queues of a request.
func (e *Engine) hasWaiters(req ClaimRequest) bool {
	hashes := append(queueHashesOf(req)[1:], anyQueueHash(req.JobType))
	return slices.ContainsFunc(hashes, func(h job.QueueHash) bool { return e.hub.waiting(h) > 0 })
}

// claimNext serves the claims that came with the requests of a group.
func (u *unit) claimNext(claims []nextClaim) error {
	if len(claims) == 0 {
		return nil
	}
	if err := u.flushJobs(); err != nil { // so that the claims see what has ended
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

func callsOf(claims []nextClaim) (calls []*claimCall) {
	for _, c := range claims {
		calls = append(calls, c.call)
	}
	return calls
}

// current locks the jobs of a group that are free, and returns them and the runs of those that are
// not. A job in neither is gone.
func (u *unit) current(group []*ticket[finishCall]) (jobs map[int64]*job.Job,
	locked map[int64]job.RunID, err error) {
	var seqs []int64
	for _, t := range group {
		for _, request := range t.call.requests {
			seqs = append(seqs, request.Run.Run.Seq())
		}
	}
	jobs, err = u.lockSelected(store.Selector{Seqs: seqs, Lock: true, SkipLocked: true})
	missing := slices.DeleteFunc(seqs, func(seq int64) bool { return jobs[seq] != nil })
	if err != nil || len(missing) == 0 {
		return jobs, nil, err
	}
	left, err := u.tx.Load(store.Selector{Seqs: missing})
	locked = make(map[int64]job.RunID, len(left))
	for _, j := range left {
		locked[j.Seq] = j.Run
	}
	return jobs, locked, err
}

func (u *unit) lockBySeq(seqs []int64) (map[int64]*job.Job, error) {
	return u.lockSelected(store.Selector{Seqs: seqs, Lock: true})
}

func (u *unit) lockSelected(s store.Selector) (map[int64]*job.Job, error) {
	locked, err := u.tx.Load(s)
	jobs := make(map[int64]*job.Job, len(locked))
	for _, j := range locked {
		jobs[j.Seq] = j
	}
	return jobs, err
}

// currentRun returns the job if the run is its current one, and if no end of it is recorded.
func currentRun(jobs map[int64]*job.Job, run Run) (*job.Job, error) {
	j := jobs[run.Run.Seq()]
	if j == nil || run.Run.IsZero() || j.Run != run.Run || j.End != nil ||
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

// applyOutcome starts the run of a job or finishes it. It returns a copy of the job, as the next
// request may be about the same one.
func (u *unit) applyOutcome(j *job.Job, o Outcome) (after *job.Job, err error) {
	if o.On == job.Started {
		err = u.start(j)
	} else {
		err = u.finishRun(j, o)
	}
	if err != nil {
		return nil, err
	}
	snapshot := *j
	return &snapshot, nil
}

// finishRun moves a job as its run has ended, and writes what the outcome brings with it.
func (u *unit) finishRun(j *job.Job, o Outcome) error {
	delay := o.Delay
	if !o.DueAt.IsZero() {
		delay = max(time.Microsecond, o.DueAt.Sub(u.now))
	}
	attempts := j.Attempts
	if o.NoAttempt {
		j.Attempts--
	}
	if err := u.transitionWith(j, o.On, o.Reason, delay); err != nil {
		j.Attempts = attempts
		return err
	}
	u.writes.Records = append(u.writes.Records, o.Records...)
	for _, n := range o.Published {
		u.publishEvent(n)
	}
	for p, body := range [job.Bodies][]byte{job.Result: o.Result, job.Failure: o.Failure,
		job.Progress: o.Progress} {
		if body != nil {
			u.setBody(j, job.Body(p), body)
		}
	}
	if j.Parent != 0 && o.Failure != nil {
		u.parentUpdate(j.Parent).failure = o.Failure
	}
	return nil
}

func (u *unit) start(j *job.Job) error {
	if _, ok := u.e.jobTypes[j.ID.JobType].Machine.Next(j.State, job.Started); !ok {
		return nil
	}
	j.LeaseUntil = u.leaseEnd(j)
	return u.transition(j, job.Started)
}

// Requeue replaces the job of a run by new jobs in one transaction: either the job is gone and the
// batch is stored, or nothing has changed. RunLost means that the run is no longer current;
// otherwise it fails as Submit does.
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
	if _, err := e.jobType(id.JobType); err != nil {
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
	if err := u.transition(j, job.Requeued); err != nil {
		return err
	}
	if err := u.flushJobs(); err != nil { // the identity is free from here on
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	return u.submit(&submitCall{batch: batch, mode: mode})
}
