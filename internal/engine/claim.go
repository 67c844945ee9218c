package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// ClaimRequest asks for jobs.
type ClaimRequest struct {
	Contract string
	Queues   []string // none means all
	// Skip leaves queues out where all are meant; nil leaves out none. It must not block.
	Skip   func(queue string) bool
	Max    int
	Worker string
	// Wait is how long to wait for the first job; 0 answers at once.
	Wait time.Duration
}

type claimCall struct {
	ctx  context.Context
	req  ClaimRequest
	jobs []*job.Job
}

// claimGroup is the number of jobs handed out in one transaction.
const claimGroup = 1000

// pollInterval is how often a waiting claim looks without being woken: what other
// nodes announce may be lost.
const pollInterval = time.Second

// Claim hands out up to Max ready jobs in claim order, each under a fresh run
// id. With Wait it waits for the first; it never waits for more than are there.
// It answers with none when the time is up, ctx ends or the engine closes.
func (e *Engine) Claim(ctx context.Context, req ClaimRequest) ([]*job.Job, error) {
	if _, err := e.contract(req.Contract); err != nil || req.Max <= 0 {
		return nil, err
	}
	if req.Wait <= 0 {
		return e.claimOnce(ctx, req)
	}
	w := e.hub.add(queueHashesOf(req))
	defer e.hub.remove(w)
	timeout := time.NewTimer(req.Wait)
	defer timeout.Stop()
	for {
		jobs, err := e.claimOnce(ctx, req)
		if len(jobs) > 0 {
			return jobs, nil
		}
		if err != nil || ctx.Err() != nil {
			signal(w.ch) // what it was woken for it has not looked at: leave hands that on
			return nil, err
		}
		poll := time.NewTimer(e.pollInterval)
		select {
		case <-w.ch:
		case <-poll.C:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
		poll.Stop()
		if e.hub.isClosed() {
			return nil, nil
		}
	}
}

func queueHashesOf(req ClaimRequest) []job.QueueHash {
	hashes := []job.QueueHash{slotsHash(req.Contract)}
	if len(req.Queues) == 0 {
		return append(hashes, anyQueueHash(req.Contract))
	}
	for _, q := range req.Queues {
		hashes = append(hashes, job.QueueHashOf(req.Contract, q))
	}
	return hashes
}

// claimOnce hands out what there is. Jobs handed to a caller that left meanwhile go
// back at once.
func (e *Engine) claimOnce(ctx context.Context, req ClaimRequest) ([]*job.Job, error) {
	if e.hub.isClosed() {
		return nil, nil
	}
	call, err := e.claims.do(claimCall{ctx: ctx, req: req}, req.Max)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		e.ReleaseClaimed(call.jobs)
		return nil, nil
	}
	return call.jobs, nil
}

// ReleaseClaimed releases claimed jobs that their caller did not receive; where it
// fails the lease ends them.
func (e *Engine) ReleaseClaimed(jobs []*job.Job) {
	requests := make([]FinishRequest, len(jobs))
	for i, j := range jobs {
		requests[i] = FinishRequest{Run: Run{ID: j.ID, Run: j.Run},
			Outcome: Outcome{On: job.Released}}
	}
	for i, results := range e.FinishAll(context.Background(), requests) {
		if results.Err != nil {
			e.log.Log(context.Background(), outage.Level(slog.LevelWarn, results.Err),
				"a job claimed for a caller that left could not be given back",
				"job_id", jobs[i].ID.Key, "error_message", results.Err)
		}
	}
}

func (e *Engine) claimGroup(group []*ticket[claimCall]) error {
	return e.updateGroup(func(u *unit) error { return u.claimTx(group) })
}

// claimTx serves all calls of a group. When somebody gets less than asked for,
// it lets what is due or lapsed right now become ready and looks once more, so
// that neither has to wait for a sweep.
func (u *unit) claimTx(group []*ticket[claimCall]) error {
	for _, t := range group {
		t.call.jobs = nil
	}
	if err := u.lockLimits(group); err != nil {
		return err
	}
	if err := u.claimPasses(group); err != nil {
		return err
	}
	short := slices.ContainsFunc(group, func(t *ticket[claimCall]) bool {
		return t.call.wantsMore()
	})
	if !short {
		return nil
	}
	freed, err := u.sweep(sweepBatch)
	if err != nil || freed == 0 {
		return err
	}
	if err := u.writeJobsMoved(); err != nil { // so that the next look sees it
		return err
	}
	if err := u.claimPasses(group); err != nil {
		return err
	}
	for _, t := range group {
		slices.SortFunc(t.call.jobs, job.CompareClaim)
	}
	return nil
}

// lockLimits makes transactions that hand out jobs under the same limits run one
// after another, so that these are exact over all nodes. All names are locked
// first and in one order, so that two such transactions cannot wait for each
// other.
func (u *unit) lockLimits(group []*ticket[claimCall]) error {
	var keys []queueKey
	for _, t := range group {
		req := &t.call.req
		keys = append(keys, queueKey{req.Contract, ""})
		for _, q := range req.Queues {
			keys = append(keys, queueKey{req.Contract, q})
		}
		if len(req.Queues) > 0 {
			continue
		}
		for key := range *u.settings {
			if key.contract == req.Contract {
				keys = append(keys, key)
			}
		}
	}
	return u.lockRuns(keys)
}

func (u *unit) lockRuns(keys []queueKey) error {
	var names []string
	for _, key := range keys {
		if u.maxRunning(key) > 0 {
			names = append(names, "runs:"+key.contract+":"+key.queue)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := u.tx.LockName(name); err != nil {
			return err
		}
	}
	return nil
}

// maxRunning returns how many runs a queue, or with no name the whole contract, may
// have at a time; 0 is no limit.
func (u *unit) maxRunning(key queueKey) int {
	if key.queue == "" {
		return u.e.contracts[key.contract].MaxRunning
	}
	return u.settings.of(key).MaxRunning
}

// wantsMore reports whether a caller that is still there could take more.
func (c *claimCall) wantsMore() bool { return len(c.jobs) < c.req.Max && c.ctx.Err() == nil }

// claimPasses serves a group, and goes on while somebody has nothing although a look
// brought less than there is, because bodies are large: see store.MaxReadyBytes.
func (u *unit) claimPasses(group []*ticket[claimCall]) error {
	for {
		u.truncatedBySize = false
		if err := u.claimPass(group); err != nil {
			return err
		}
		empty := func(t *ticket[claimCall]) bool {
			return len(t.call.jobs) == 0 && t.call.wantsMore()
		}
		if !u.truncatedBySize || !slices.ContainsFunc(group, empty) {
			return nil
		}
		if err := u.writeJobsMoved(); err != nil { // so that the next look passes over them
			return err
		}
	}
}

// claimPass hands ready jobs to the calls in the order they came; calls for the same
// single queue share one look.
func (u *unit) claimPass(group []*ticket[claimCall]) error {
	shared := map[queueKey][]*claimCall{}
	var order []queueKey
	for _, t := range group {
		c := &t.call
		if !c.wantsMore() {
			continue
		}
		if len(c.req.Queues) == 1 {
			key := queueKey{c.req.Contract, c.req.Queues[0]}
			if shared[key] == nil {
				order = append(order, key)
			}
			shared[key] = append(shared[key], c)
			continue
		}
		if err := u.claimFromQueues(c); err != nil {
			return err
		}
	}
	for _, key := range order {
		if err := u.claimFromQueue(key, shared[key]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) claimFromQueue(key queueKey, calls []*claimCall) error {
	want := 0
	for _, c := range calls {
		want += c.req.Max - len(c.jobs)
	}
	ready, err := u.selectReady(key, want)
	if err != nil {
		return err
	}
	for _, c := range calls {
		n := min(len(ready), c.req.Max-len(c.jobs))
		if err := u.leaseTo(c, ready[:n]); err != nil {
			return err
		}
		ready = ready[n:]
	}
	return nil
}

// claimFromQueues hands out the first jobs over several queues.
func (u *unit) claimFromQueues(c *claimCall) error {
	queues := c.req.Queues
	if len(queues) == 0 {
		counts, err := u.currentCounts(c.req.Contract)
		if err != nil {
			return err
		}
		for _, q := range counts {
			if q.Ready > 0 && (c.req.Skip == nil || !c.req.Skip(q.Queue)) {
				queues = append(queues, q.Queue)
			}
		}
	}
	want := c.req.Max - len(c.jobs)
	var all []*job.Job
	for _, q := range queues {
		ready, err := u.selectReady(queueKey{c.req.Contract, q}, want)
		if err != nil {
			return err
		}
		all = append(all, ready...)
	}
	slices.SortFunc(all, job.CompareClaim)
	all = slices.CompactFunc(all, func(a, b *job.Job) bool { return a.Seq == b.Seq })
	free, err := u.freeSlots(queueKey{c.req.Contract, ""}, want)
	if err != nil {
		return err
	}
	n := min(len(all), free)
	for _, j := range all[n:] { // was locked for nothing: who passed over it meanwhile looks again
		u.becameReady[queueKeyOf(j)]++
	}
	return u.leaseTo(c, all[:n])
}

func (u *unit) leaseTo(c *claimCall, jobs []*job.Job) error {
	for _, j := range jobs {
		if err := u.lease(j, c.req.Worker); err != nil {
			return err
		}
		c.jobs = append(c.jobs, j)
	}
	return nil
}

// selectReady returns the first n ready jobs of a queue that this transaction has not
// leased yet and that limits and pauses allow.
func (u *unit) selectReady(key queueKey, n int) ([]*job.Job, error) {
	if u.exhausted[key] || u.settings.of(key).Paused {
		return nil, nil
	}
	n, err := u.freeRuns(key, n)
	if err != nil || n == 0 {
		return nil, err
	}
	picked := u.leasedNow[key]
	asked := n + len(picked)
	found, err := u.tx.LockReady(key.contract, key.queue, asked)
	if err != nil {
		return nil, err
	}
	large := func(j *job.Job) bool { return j.OutOfLine != 0 }
	u.truncatedBySize = u.truncatedBySize ||
		(len(found) < asked && slices.ContainsFunc(found, large))
	found = slices.DeleteFunc(found, func(j *job.Job) bool { return picked[j.Seq] })
	u.exhausted[key] = len(found) == 0
	return found[:min(n, len(found))], nil
}

// freeRuns reports how many of n runs of a queue its limits leave.
func (u *unit) freeRuns(key queueKey, n int) (int, error) {
	n, err := u.freeSlots(queueKey{key.contract, ""}, n)
	if err != nil || n == 0 {
		return 0, err
	}
	return u.freeSlots(key, n)
}

// freeSlots reports how many of n runs one limit leaves. Its name is locked.
func (u *unit) freeSlots(key queueKey, n int) (int, error) {
	limit := u.maxRunning(key)
	if limit == 0 {
		return n, nil
	}
	counts, err := u.currentCounts(key.contract)
	if err != nil {
		return 0, err
	}
	free := int64(limit)
	for _, c := range counts {
		if key.queue == "" || c.Queue == key.queue {
			free -= c.Leased
		}
	}
	return int(max(0, min(int64(n), free))), nil
}

// ClaimJob hands out one job by its identity, also one whose lease is over or
// whose time has just come. Conflict means that it is not claimable now: leased,
// waiting, over, or held back by a pause or limit. NotFound if there is none.
func (e *Engine) ClaimJob(ctx context.Context, id job.ID, worker string) (*job.Job, error) {
	if _, err := e.contract(id.Contract); err != nil {
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
		if err := u.tx.LoadBodies([]*job.Job{j}); err != nil {
			return err
		}
		claimed = j
		return u.lease(j, worker)
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// lockUnderLimits locks a job and, before it, the limits that its run would be under: names come
// before rows for everybody.
func (u *unit) lockUnderLimits(id job.ID) (*job.Job, error) {
	found, err := u.tx.Get([]job.ID{id})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errNotFound(id)
	}
	key := queueKeyOf(found[0])
	if err := u.lockRuns([]queueKey{{key.contract, ""}, key}); err != nil {
		return nil, err
	}
	j, err := u.lockOne(id)
	if err == nil && queueKeyOf(j) != key {
		err = errConcurrentInsert
	}
	return j, err
}

// canRun reports whether a job may be handed out now. Its limits are locked.
func (u *unit) canRun(j *job.Job) (bool, error) {
	key := queueKeyOf(j)
	if j.Phase != job.Ready || u.settings.of(key).Paused || u.e.hub.isClosed() {
		return false, nil
	}
	free, err := u.freeRuns(key, 1)
	return free > 0, err
}

// makeReady lets a job's time come or its lapsed lease end, as the sweeps would.
func (u *unit) makeReady(j *job.Job) error {
	jumped := u.e.guard.lastJump()
	expired := j.Phase == job.Leased && !j.LeaseUntil.After(u.now) &&
		(jumped.IsZero() || !j.UpdatedAt.Before(jumped) || !jumped.Add(j.Lease).After(u.now))
	if expired {
		return u.expireRun(j)
	}
	if j.Phase == job.Waiting && j.OpenDeps == 0 && !j.DueAt.After(u.now) {
		return u.promote(j)
	}
	return nil
}
