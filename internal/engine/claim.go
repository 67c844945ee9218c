package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// A claim goes through these functions, in the order of this file:
//
//	Claim           waits: it repeats claimOnce when the hub wakes it, unless a submission
//	                delivers jobs to it, see claim_match.go
//	claimOnce       joins the callers of the moment, which the combiner serves as one group
//	claimGroup      runs the transaction of a group
//	claimTx         is that transaction: it locks the limits, makes a pass, and if a caller wants
//	                more sweeps and makes a second pass
//	claimPass       serves the queries of the calls, which claimQueriesOf makes of them
//	selectJobs      returns the ready jobs that one query may get; it changes no call. queuesOf
//	                lists its queues, and selectReady reads one
//	lease           gives jobs to calls; leaseJob begins an attempt under a new run id
//	ReleaseClaimed  takes back what a caller who has left did not receive
//
// Fairness: callers that name one and the same queue share one query, in the order they came; a
// caller that names several queues, or none, has a query of its own and comes before those. The
// limits of claims are in claim_limits.go.

// ClaimRequest asks for jobs.
type ClaimRequest struct {
	JobType string
	Queues  []string // none means all
	// Skip leaves queues out where all are meant; nil leaves out none. It must not block.
	Skip   func(queue string) bool
	Max    int
	Worker string
	remote bool // the worker is a remote one
	// Wait is how long to wait for the first job; 0 answers at once.
	Wait time.Duration
}

type claimCall struct {
	ctx     context.Context
	req     ClaimRequest
	jobs    []*job.Job
	limited bool // a limit has left fewer jobs than it asks for
}

// remaining returns how many more jobs the call asks for.
func (c *claimCall) remaining() int { return c.req.Max - len(c.jobs) }

// wantsMore reports whether the call asks for more jobs and its caller still waits.
func (c *claimCall) wantsMore() bool { return c.remaining() > 0 && c.ctx.Err() == nil }

// maxClaimGroup is the most jobs that are claimed in one transaction.
const maxClaimGroup = 1000

// Claim leases up to Max ready jobs in claim order, each under a fresh run id. With Wait it waits
// for the first job, and never for more jobs than are ready. It returns no jobs when the time is
// up, ctx ends or the engine closes.
func (e *Engine) Claim(ctx context.Context, req ClaimRequest) ([]*job.Job, error) {
	if _, err := e.jobType(req.JobType); err != nil || req.Max <= 0 {
		return nil, err
	}
	e.lastPolls.begin(&req)
	defer e.lastPolls.end(&req)
	if req.Wait <= 0 {
		jobs, _, err := e.claimOnce(ctx, req)
		return jobs, err
	}
	w := e.hub.add(claimCall{ctx: ctx, req: req})
	defer e.hub.remove(w)
	e.pollWhileWaiting()
	timeout := time.NewTimer(req.Wait)
	defer timeout.Stop()
	claim := e.claimFirst
	for {
		jobs, limited, err := claim(w)
		if len(jobs) > 0 {
			return jobs, nil
		}
		if err != nil || ctx.Err() != nil {
			signal(w.ch) // the wake-up may be unanswered: remove passes it to another waiter
			return nil, err
		}
		claim = e.claimAgain
		jobs, asksAgain := e.hub.await(w, limited, timeout.C)
		if ctx.Err() != nil {
			e.ReleaseClaimed(jobs)
			return nil, nil
		}
		if len(jobs) > 0 || !asksAgain || e.hub.isClosed() {
			return jobs, nil
		}
	}
}

// claimFirst is claimOnce for a claim that begins to wait. Where only this process writes, another
// claim that waits for the same has shown that there is nothing.
func (e *Engine) claimFirst(w *waiter) (jobs []*job.Job, limited bool, err error) {
	if e.store.Writers() == 1 && e.hub.findsNothing(w) {
		return nil, false, nil
	}
	return e.claimAgain(w)
}

// claimAgain is claimOnce for a claim that waits.
func (e *Engine) claimAgain(w *waiter) (jobs []*job.Job, limited bool, err error) {
	return e.claimOnce(w.call.ctx, w.call.req)
}

// queueHashesOf returns the queues whose commits wake a waiting claim.
func queueHashesOf(req ClaimRequest) []job.QueueHash {
	hashes := []job.QueueHash{slotsHash(req.JobType)}
	if len(req.Queues) == 0 {
		return append(hashes, anyQueueHash(req.JobType))
	}
	for _, q := range req.Queues {
		hashes = append(hashes, job.QueueHashOf(req.JobType, q))
	}
	return hashes
}

// claimOnce claims jobs that are ready now, and says whether a limit has left fewer than it asked
// for. Jobs claimed for a caller that has left meanwhile are released at once.
func (e *Engine) claimOnce(ctx context.Context, req ClaimRequest) (jobs []*job.Job, limited bool,
	err error) {
	if e.hub.isClosed() {
		return nil, false, nil
	}
	call, err := e.claims.do(ctx, claimCall{ctx: ctx, req: req}, req.Max)
	left := ctx.Err() != nil
	if err != nil {
		if left {
			return nil, false, nil
		}
		return nil, false, err
	}
	if left {
		e.ReleaseClaimed(call.jobs)
		return nil, false, nil
	}
	return call.jobs, call.limited, nil
}

func (e *Engine) claimGroup(group []*ticket[claimCall]) error {
	calls := make([]*claimCall, len(group))
	for i, t := range group {
		calls[i] = &t.call
	}
	return e.updateGroup(e.claims.depth, func(u *unit) error { return u.claimTx(calls) })
}

// claimTx serves the calls of a group. Where one of them gets less than it asked for, it ends the
// leases that have expired and promotes the jobs that are due, and makes a second pass: neither
// has to wait for the next sweep.
func (u *unit) claimTx(calls []*claimCall) error {
	for _, c := range calls {
		c.jobs, c.limited = nil, false // the transaction may run again
	}
	if err := u.lockLimits(calls); err != nil {
		return err
	}
	if err := u.claimPass(calls); err != nil {
		return err
	}
	if !slices.ContainsFunc(calls, (*claimCall).wantsMore) {
		return nil
	}
	swept, err := u.sweep(sweepBatch)
	if err != nil || swept == 0 {
		return err
	}
	if err := u.flushJobs(); err != nil { // so that the second pass finds them
		return err
	}
	if err := u.claimPass(calls); err != nil {
		return err
	}
	for _, c := range calls {
		slices.SortFunc(c.jobs, job.CompareClaim)
	}
	return nil
}

// claimPass selects and leases jobs for each query of the calls. It is repeated while a call has
// no job at all and a select was cut short because bodies are large, see store.MaxReadyBytes.
func (u *unit) claimPass(calls []*claimCall) error {
	empty := func(c *claimCall) bool { return len(c.jobs) == 0 && c.wantsMore() }
	for {
		u.claims.truncatedBySize = false
		for _, query := range claimQueriesOf(calls) {
			jobs, err := u.selectJobs(query)
			if err != nil {
				return err
			}
			for _, c := range query.calls {
				c.limited = c.limited || query.limited
			}
			if err := u.lease(query.calls, jobs); err != nil {
				return err
			}
		}
		if !u.claims.truncatedBySize || !slices.ContainsFunc(calls, empty) {
			return nil
		}
		if err := u.flushJobs(); err != nil { // so that the next select passes over them
			return err
		}
	}
}

// claimQuery is one query for ready jobs, shared by the calls that name the same queue.
type claimQuery struct {
	jobType string
	queues  []string // none means all but those of skip
	skip    func(queue string) bool
	max     int
	calls   []*claimCall
	limited bool // a limit leaves fewer
}

// claimQueriesOf returns the queries of the calls that want more, in the order they are served.
func claimQueriesOf(calls []*claimCall) []*claimQuery {
	var all, shared []*claimQuery
	byQueue := map[queueKey]*claimQuery{}
	for _, c := range calls {
		if !c.wantsMore() {
			continue
		}
		own := &claimQuery{jobType: c.req.JobType, queues: c.req.Queues, skip: c.req.Skip,
			max: c.remaining(), calls: []*claimCall{c}}
		if len(c.req.Queues) != 1 {
			all = append(all, own)
			continue
		}
		key := queueKey{c.req.JobType, c.req.Queues[0]}
		if query := byQueue[key]; query != nil {
			query.max += own.max
			query.calls = append(query.calls, c)
			continue
		}
		byQueue[key] = own
		shared = append(shared, own)
	}
	return append(all, shared...)
}

// selectJobs returns the first ready jobs over the queues of a query, locked and in claim order,
// as many as it asks for and the limits leave.
func (u *unit) selectJobs(query *claimQuery) ([]*job.Job, error) {
	queues, err := u.queuesOf(query)
	if err != nil {
		return nil, err
	}
	var jobs []*job.Job
	for _, queue := range queues {
		ready, err := u.selectReady(query, queueKey{query.jobType, queue})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, ready...)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	slices.SortFunc(jobs, job.CompareClaim)
	// A request may name a queue twice.
	jobs = slices.CompactFunc(jobs, func(a, b *job.Job) bool { return a.Seq == b.Seq })
	free, err := u.availableSlots(queueKey{query.jobType, ""}, query.max)
	if err != nil {
		return nil, err
	}
	query.limited = query.limited || free < query.max
	n := min(len(jobs), free)
	for _, j := range jobs[n:] { // it is locked and not claimed: wake a claim that has skipped it
		u.becameReady(queueKeyOf(j))
	}
	return jobs[:n], nil
}

// queuesOf returns the queues of a query; where it names none, those that have ready jobs.
func (u *unit) queuesOf(query *claimQuery) ([]string, error) {
	if len(query.queues) > 0 {
		return query.queues, nil
	}
	counts, err := u.currentCounts(query.jobType)
	if err != nil {
		return nil, err
	}
	var queues []string
	for _, q := range counts {
		if q.Ready > 0 && (query.skip == nil || !query.skip(q.Queue)) {
			queues = append(queues, q.Queue)
		}
	}
	return queues, nil
}

// selectReady returns the first ready jobs of a queue that this transaction has not leased yet and
// that limits and pauses allow, as many as the query asks for.
func (u *unit) selectReady(query *claimQuery, key queueKey) ([]*job.Job, error) {
	if u.claims.exhausted[key] || u.settings.of(key).Paused {
		return nil, nil
	}
	n, err := u.availableRuns(key, u.availableStarts(key, query.max))
	query.limited = query.limited || n < query.max
	if err != nil || n == 0 {
		return nil, err
	}
	leased := u.claims.leased[key]
	limit := n + len(leased)
	found, err := u.tx.LockReady(key.jobType, key.queue, limit)
	if err != nil {
		return nil, err
	}
	large := func(j *job.Job) bool { return j.OutOfLine != 0 }
	if len(found) < limit && slices.ContainsFunc(found, large) {
		u.claims.truncatedBySize = true
	}
	found = slices.DeleteFunc(found, func(j *job.Job) bool { return leased[j.Seq] })
	put(&u.claims.exhausted, key, len(found) == 0)
	if s := u.rateWindows[key]; s != nil {
		s.noMore = len(found) < n && !u.claims.truncatedBySize
	}
	return found[:min(n, len(found))], nil
}

// lease gives the jobs to the calls of a query, in the order the calls came.
func (u *unit) lease(calls []*claimCall, jobs []*job.Job) error {
	for _, c := range calls {
		n := min(len(jobs), c.remaining())
		for _, j := range jobs[:n] {
			if err := u.leaseJob(j, c.req.Worker); err != nil {
				return err
			}
			c.jobs = append(c.jobs, j)
		}
		jobs = jobs[n:]
	}
	return nil
}

// leaseJob leases a job to a worker, under a new run id.
func (u *unit) leaseJob(j *job.Job, worker string) error {
	j.Run = job.NewRunID(j.Seq, u.e.random())
	j.LeaseUntil, j.Worker = u.leaseEnd(j), worker
	j.Attempts++
	key := queueKeyOf(j)
	if u.claims.leased[key] == nil {
		put(&u.claims.leased, key, map[int64]bool{})
	}
	u.claims.leased[key][j.Seq] = true
	u.countStart(key)
	if j.Parent != 0 && j.Attempts == 1 {
		u.parentUpdate(j.Parent).childStarted = true
	}
	return u.transitionWith(j, job.Claimed, worker, 0)
}

// leaseEnd is when a lease that is given now ends. It counts from now and not from the beginning
// of the transaction, which may have waited long for a lock.
func (u *unit) leaseEnd(j *job.Job) time.Time {
	return u.now.Add((u.e.guard.monotonic() - u.startedAt).Truncate(time.Microsecond) + j.Lease)
}

// ReleaseClaimed releases claimed jobs that their caller did not receive. A job that cannot be
// released stays leased until its lease expires.
func (e *Engine) ReleaseClaimed(jobs []*job.Job) {
	ctx := context.Background() // not the caller's, who has left
	requests := make([]FinishRequest, len(jobs))
	for i, j := range jobs {
		requests[i] = FinishRequest{
			Run:     Run{ID: j.ID, Run: j.Run},
			Outcome: Outcome{On: job.Released, NoAttempt: true},
		}
	}
	for i, released := range e.FinishAll(ctx, requests) {
		if released.Err != nil {
			e.log.Log(ctx, outage.Level(slog.LevelWarn, released.Err),
				"a job claimed for a caller that left could not be released",
				"job_id", jobs[i].ID.Key, "error_message", released.Err)
		}
	}
}
