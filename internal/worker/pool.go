package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// The causes of a handler's context when it ends before the handler has returned.
var (
	// ErrLost means that the run is not the job's current one any more: no outcome of it counts.
	ErrLost = errors.New("worker: the run is lost")
	// ErrStopping means that the pool is stopping and its grace period has passed.
	ErrStopping = errors.New("worker: the pool is stopping")
)

// Handler executes jobs. Handle must return soon after ctx has ended. If ctx ended because the
// pool is stopping, the outcome is still written, and the zero Outcome releases the job. Handle is
// called by several goroutines at once.
type Handler interface {
	Handle(ctx context.Context, t *ClaimedJob) engine.Outcome
}

// Config configures a pool. Engine, JobType, HeartbeatInterval, Name and Handler are required.
type Config struct {
	Engine            *engine.Engine
	JobType           string
	Queues            []string // none means all
	Name              string   // of this node; its workers are NAME/1, NAME/2, …
	Workers           int      // 0 means 1
	Slots             int      // how many jobs a worker executes at once; 0 means 1
	HeartbeatInterval time.Duration
	Handler           Handler
	Log               *slog.Logger // nil logs nothing

	// Claim claims up to Max jobs and waits for the first one; nil means that of Engine. The
	// handler is called for every job that it returns. It may choose its jobs, and release those
	// for which something else than a slot of the pool is not free.
	Claim func(context.Context, engine.ClaimRequest) ([]*job.Job, error)
	// Finish writes the outcome of a run; nil means that of Engine. When neither Claim nor Finish
	// is set, a slot claims its next job in the transaction that finishes the one before.
	Finish func(context.Context, engine.Run, engine.Outcome) (*job.Job, error)
	// OnPanic returns the outcome of a run whose handler panicked; nil means Failed.
	OnPanic func(*ClaimedJob, any) engine.Outcome
	// OnHeartbeat, if set, is called after every heartbeat that was stored.
	OnHeartbeat func()
}

// Pool executes jobs. Its Run is called once.
type Pool struct {
	Config

	mu       sync.Mutex
	inFlight map[job.ID]*execution

	chainClaims bool        // a finish claims the next job
	claimLoop   outage.Loop // the claims of all workers

	executing        sync.WaitGroup // executions in progress
	availableWorkers atomic.Int64   // workers with a free slot
}

// New checks the config and makes a pool that is not running yet.
func New(c Config) (*Pool, error) {
	if c.Engine == nil || c.JobType == "" || c.Name == "" || c.Handler == nil ||
		c.HeartbeatInterval <= 0 || c.Workers < 0 || c.Slots < 0 {
		return nil, errors.New(
			"worker: Engine, JobType, Name, Handler and HeartbeatInterval are required; " +
				"Workers and Slots must not be negative")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	chained := c.Claim == nil && c.Finish == nil
	if claim := c.Claim; claim != nil {
		c.Claim = func(ctx context.Context, req engine.ClaimRequest) ([]*job.Job, error) {
			defer c.Engine.Polling(req)()
			return claim(ctx, req)
		}
	} else {
		c.Claim = c.Engine.Claim
	}
	if c.Finish == nil {
		c.Finish = c.Engine.Finish
	}
	c.Workers, c.Slots = max(1, c.Workers), max(1, c.Slots)
	return &Pool{
		Config:      c,
		chainClaims: chained,
		claimLoop:   outage.Loop{Log: c.Log, Name: "claims of " + c.JobType},
		inFlight:    map[job.ID]*execution{},
	}, nil
}

// MustNew is New for a config that the caller has checked already, such as a contract whose
// settings accept nothing that New refuses. It panics where New returns an error.
func MustNew(c Config) *Pool {
	pool, err := New(c)
	if err != nil {
		panic(err)
	}
	return pool
}

// Busy is the number of executions in progress.
func (p *Pool) Busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.inFlight)
}

// Available is the number of workers that have a free slot, while the pool runs.
func (p *Pool) Available() int { return int(p.availableWorkers.Load()) }

// Cancel ends the execution of a job that was canceled, without waiting for it. It does nothing
// if the job is not executed by this pool.
func (p *Pool) Cancel(id job.ID) {
	p.mu.Lock()
	r := p.inFlight[id]
	p.mu.Unlock()
	if r != nil {
		r.abandon()
	}
}

// stopTimeout is how long handlers may take to return once their contexts have ended.
const stopTimeout = time.Second

// Run claims and executes jobs until ctx ends. Then it lets the executions in progress finish
// within the grace period, ends the contexts of the others, and returns when all have finished. A
// handler that does not return within stopTimeout is left behind, and its job is released.
func (p *Pool) Run(ctx context.Context, grace time.Duration) {
	var claiming sync.WaitGroup
	for i := range p.Workers {
		w := &worker{
			pool:  p,
			name:  fmt.Sprintf("%s/%d", p.Name, i+1),
			slots: make(chan struct{}, p.Slots),
		}
		claiming.Go(func() { w.claimLoop(ctx) })
	}
	claiming.Wait()
	finished := make(chan struct{})
	go func() { p.executing.Wait(); close(finished) }()
	if closedWithin(grace, finished) {
		return
	}
	for _, r := range p.executions() {
		r.cancel(ErrStopping)
	}
	if closedWithin(stopTimeout, finished) {
		return
	}
	for _, r := range p.executions() {
		p.Log.Warn("a handler did not return when its context ended; its job is given back",
			telemetry.JobID, r.claimed.Job.ID.Key)
		r.abandon()
		_, _ = p.Engine.Release(context.WithoutCancel(ctx), r.id)
	}
}

// closedWithin reports whether done was closed within d.
func closedWithin(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// executions returns the executions in progress.
func (p *Pool) executions() []*execution {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*execution, 0, len(p.inFlight))
	for _, r := range p.inFlight {
		all = append(all, r)
	}
	return all
}

// track adds an execution to those in progress.
func (p *Pool) track(r *execution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight[r.claimed.Job.ID] = r
}

// untrack removes an execution, unless a later one of the same job has replaced it.
func (p *Pool) untrack(r *execution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[r.claimed.Job.ID] == r {
		delete(p.inFlight, r.claimed.Job.ID)
	}
}

// worker claims jobs. Each element of slots is a slot in use.
type worker struct {
	pool  *Pool
	name  string
	slots chan struct{}
}

// claimWait is how long a claim waits for a job. Nothing depends on it: a claim wakes when it
// may get a job, and what is not announced the engine finds for all claims at once. Each claim of
// an idle node costs a transaction.
const claimWait = 5 * time.Minute

// earlyReturn is how soon a claim returns that has not waited.
const earlyReturn = 15 * time.Second

// The pauses of a worker after claims that fail or that return early without jobs, as those of an
// engine that is closing do.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// claimLoop claims and starts jobs until ctx ends.
func (w *worker) claimLoop(ctx context.Context) {
	p := w.pool
	defer p.Engine.AddLocalWorker(p.JobType, w.name, p.Queues, p.Slots)()
	for ctx.Err() == nil {
		serving, stop := p.Engine.AwaitServing(ctx, w.name)
		w.claimWhile(ctx, serving)
		stop()
	}
}

// claimWhile claims and starts jobs until serving ends, which it does with ctx or because the
// worker is drained. The executions it starts end with ctx alone.
func (w *worker) claimWhile(ctx, serving context.Context) {
	p := w.pool
	p.availableWorkers.Add(1)
	defer p.availableWorkers.Add(-1)
	backoff := clock.Backoff{Min: minPause, Max: maxPause}
	for serving.Err() == nil {
		free := w.waitForSlot(serving)
		if free == 0 {
			return
		}
		earlyTimer := time.NewTimer(earlyReturn)
		jobs, err := p.Claim(serving, w.claimRequest(free))
		returnedEarly := earlyTimer.Stop()
		for _, j := range jobs {
			w.slots <- struct{}{}
			w.start(ctx, j)
		}
		p.claimLoop.Report(serving, err)
		failed := err != nil || returnedEarly
		if len(jobs) == 0 && failed {
			backoff.Sleep(serving)
			continue
		}
		backoff.Reset()
	}
}

// waitForSlot waits for a free slot and returns the number of free slots; 0 when ctx has ended.
func (w *worker) waitForSlot(ctx context.Context) int {
	if len(w.slots) == cap(w.slots) {
		w.pool.availableWorkers.Add(-1)
		defer w.pool.availableWorkers.Add(1)
	}
	select {
	case w.slots <- struct{}{}: // taken and given back: there is a free one
		<-w.slots
		return cap(w.slots) - len(w.slots)
	case <-ctx.Done():
		return 0
	}
}

// claimRequest asks for up to maxJobs jobs of the pool's queues.
func (w *worker) claimRequest(maxJobs int) engine.ClaimRequest {
	return engine.ClaimRequest{
		JobType: w.pool.JobType,
		Queues:  w.pool.Queues,
		Max:     maxJobs,
		Worker:  w.name,
		Wait:    claimWait,
	}
}

// start executes a job in a goroutine, and after it the jobs that the finishes claim.
func (w *worker) start(ctx context.Context, j *job.Job) {
	r := w.trackNew(ctx, j)
	w.pool.executing.Add(1)
	go func() {
		defer w.pool.executing.Done()
		defer func() { <-w.slots }()
		for r != nil {
			r = w.execute(ctx, r)
		}
	}()
}

// trackNew makes the execution of a claimed job.
func (w *worker) trackNew(ctx context.Context, j *job.Job) *execution {
	r := newExecution(context.WithoutCancel(ctx), w.pool, w.name, j)
	w.pool.track(r)
	return r
}

// execute runs an execution to its end. It returns that of the job which the finish has claimed.
func (w *worker) execute(ctx context.Context, r *execution) (next *execution) {
	defer w.pool.untrack(r)
	defer r.stop()
	j := r.execute(func() *engine.ClaimRequest { return w.nextClaim(ctx) })
	if j == nil {
		return nil
	}
	if ctx.Err() != nil {
		w.pool.Engine.ReleaseClaimed([]*job.Job{j})
		return nil
	}
	return w.trackNew(ctx, j)
}

// nextClaim returns the claim that goes with a finish; nil for none.
func (w *worker) nextClaim(ctx context.Context) *engine.ClaimRequest {
	if !w.pool.chainClaims || ctx.Err() != nil || w.isDraining() {
		return nil
	}
	request := w.claimRequest(1)
	return &request
}

// isDraining reports whether the worker or its node is drained.
func (w *worker) isDraining() bool {
	e := w.pool.Engine
	return e.IsNodeDraining() || e.IsDraining(engine.DrainWorker, w.name)
}

// finish writes the outcome of a run and returns the job that was claimed with it, if any.
func (p *Pool) finish(ctx context.Context, run engine.Run, o engine.Outcome,
	next *engine.ClaimRequest) (*job.Job, error) {
	if next == nil {
		_, err := p.Finish(ctx, run, o)
		return nil, err
	}
	results := p.Engine.FinishAll(ctx, []engine.FinishRequest{{Run: run, Outcome: o, Next: next}})
	result := results[0]
	if len(result.Next) == 0 {
		return nil, result.Err
	}
	return result.Next[0], result.Err
}
