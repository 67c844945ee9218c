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

// Why the context of a handler ends.
var (
	// ErrLost says that the run is no longer the job's: nothing it does counts.
	ErrLost = errors.New("worker: the run is lost")
	// ErrStopping says that the pool stops and has no time left.
	ErrStopping = errors.New("worker: the pool is stopping")
)

// Handler does the work of one job. It returns soon after ctx has ended; its
// outcome then is written all the same when the pool is stopping, and the zero
// Outcome gives the job back. Handlers run side by side.
type Handler interface {
	Handle(ctx context.Context, t *Task) engine.Outcome
}

// Config is what a pool is made of. Engine, Contract, Beat, Name and Handler are
// needed.
type Config struct {
	Engine            *engine.Engine
	Contract          string
	Queues            []string // none means all
	Name              string   // of this node; its workers are NAME/1, NAME/2, …
	Workers           int      // 0 is 1
	Slots             int      // jobs that a worker runs at a time; 0 is 1
	HeartbeatInterval time.Duration
	Handler           Handler
	Log               *slog.Logger // nil logs nothing

	// Claim is how a worker gets jobs; nil is that of Engine. Like that one it waits for the first.
	Claim func(context.Context, engine.ClaimRequest) ([]*job.Job, error)
	// Finish is how the end of a run is written; nil is that of Engine. With neither, a slot whose
	// run ends takes its next job in the same transaction.
	Finish func(context.Context, engine.Run, engine.Outcome) (*job.Job, error)
	// OnPanic says how a run whose handler panicked has ended; nil is Failed.
	OnPanic func(*Task, any) engine.Outcome
	// OnHeartbeat is told of every heartbeat that got through; nil tells nobody.
	OnHeartbeat func()
}

// Pool runs jobs. It is used once.
type Pool struct {
	Config

	mu       sync.Mutex
	inFlight map[job.ID]*execution

	chainClaims bool        // the end of a run brings the next job
	claimLoop   outage.Loop // of all workers

	executing        sync.WaitGroup // runs under way
	availableWorkers atomic.Int64   // workers that can take a job
}

// New checks the config. Nothing runs yet.
func New(c Config) (*Pool, error) {
	if c.Engine == nil || c.Contract == "" || c.Name == "" || c.Handler == nil ||
		c.HeartbeatInterval <= 0 || c.Workers < 0 || c.Slots < 0 {
		return nil, errors.New(
			"worker: Engine, Contract, Name, Handler and Beat are needed, Workers and Slots not below 0")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	chained := c.Claim == nil && c.Finish == nil
	if c.Claim == nil {
		c.Claim = c.Engine.Claim
	}
	if c.Finish == nil {
		c.Finish = c.Engine.Finish
	}
	c.Workers, c.Slots = max(1, c.Workers), max(1, c.Slots)
	return &Pool{Config: c, chainClaims: chained,
		claimLoop: outage.Loop{Log: c.Log, Name: "claims of " + c.Contract},
		inFlight:  map[job.ID]*execution{}}, nil
}

// Busy is how many runs are under way.
func (p *Pool) Busy() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.inFlight) }

// Available is how many workers ask for jobs or would if they were not asking
// already: those that run fewer than they may, while the pool runs.
func (p *Pool) Available() int { return int(p.availableWorkers.Load()) }

// Cancel stops a run of this pool at once: its job was canceled. It does not wait.
// What is not under way here is left alone.
func (p *Pool) Cancel(id job.ID) {
	p.mu.Lock()
	r := p.inFlight[id]
	p.mu.Unlock()
	if r != nil {
		r.abandon()
	}
}

// stopTimeout is what handlers get to return in once their context has ended.
const stopTimeout = time.Second

// Run claims and runs jobs until ctx ends. Then it lets the runs under way end
// within the grace, ends the others, and returns when all are over; a handler
// that does not return even so is left behind, and its job given back.
func (p *Pool) Run(ctx context.Context, grace time.Duration) {
	var claiming sync.WaitGroup
	for i := range p.Workers {
		w := &worker{pool: p, name: fmt.Sprintf("%s/%d", p.Name, i+1),
			slots: make(chan struct{}, p.Slots)}
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
		p.Log.Warn("a run does not end although it was told to; its job is given back",
			telemetry.JobID, r.task.Job.ID.Key)
		r.abandon()
		_, _ = p.Engine.Release(context.WithoutCancel(ctx), r.id)
	}
}

// closedWithin reports whether over was closed within d.
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

func (p *Pool) executions() []*execution {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*execution, 0, len(p.inFlight))
	for _, r := range p.inFlight {
		all = append(all, r)
	}
	return all
}

func (p *Pool) track(r *execution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight[r.task.Job.ID] = r
}

// untrack forgets a run, unless the job has another one here already.
func (p *Pool) untrack(r *execution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[r.task.Job.ID] == r {
		delete(p.inFlight, r.task.Job.ID)
	}
}

// worker is one that claims. A token in slots is a run under way.
type worker struct {
	pool  *Pool
	name  string
	slots chan struct{}
}

// claimWait is how long one claim waits for a job.
const claimWait = 30 * time.Second

// The pauses of a worker whose claims fail or, as with an engine that closes,
// come back at once with nothing.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// claimLoop claims until ctx ends.
func (w *worker) claimLoop(ctx context.Context) {
	p := w.pool
	p.availableWorkers.Add(1)
	defer p.availableWorkers.Add(-1)
	pause := minPause
	for ctx.Err() == nil {
		free := w.waitForSlot(ctx)
		if free == 0 {
			return
		}
		earlyTimer := time.NewTimer(claimWait / 2)
		jobs, err := p.Claim(ctx, w.claimRequest(free))
		returnedEarly := earlyTimer.Stop()
		for _, j := range jobs {
			w.slots <- struct{}{}
			w.start(ctx, j)
		}
		p.claimLoop.Report(ctx, err)
		if len(jobs) > 0 || (err == nil && !returnedEarly) {
			pause = minPause
			continue
		}
		clock.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// waitForSlot waits until there is a free slot and returns how many there are; 0 is the
// end of ctx.
func (w *worker) waitForSlot(ctx context.Context) int {
	if len(w.slots) == cap(w.slots) {
		w.pool.availableWorkers.Add(-1)
		defer w.pool.availableWorkers.Add(1)
	}
	select {
	case w.slots <- struct{}{}: // taken and given back: there is one
		<-w.slots
		return cap(w.slots) - len(w.slots)
	case <-ctx.Done():
		return 0
	}
}

func (w *worker) claimRequest(maxJobs int) engine.ClaimRequest {
	return engine.ClaimRequest{Contract: w.pool.Contract, Queues: w.pool.Queues, Max: maxJobs,
		Worker: w.name, Wait: claimWait}
}

// start runs a job and, as long as the end of one brings the next, those after it.
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

func (w *worker) trackNew(ctx context.Context, j *job.Job) *execution {
	r := newExecution(context.WithoutCancel(ctx), w.pool, w.name, j)
	w.pool.track(r)
	return r
}

// run has a run run and returns that of the job which its end has brought.
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

// nextClaim is what the end of a run asks for; nil for nothing.
func (w *worker) nextClaim(ctx context.Context) *engine.ClaimRequest {
	if !w.pool.chainClaims || ctx.Err() != nil {
		return nil
	}
	request := w.claimRequest(1)
	return &request
}

// finish writes the end of a run and returns the job that was asked for with it.
func (p *Pool) finish(ctx context.Context, run engine.Run, o engine.Outcome,
	next *engine.ClaimRequest) (*job.Job, error) {
	if next == nil {
		_, err := p.Finish(ctx, run, o)
		return nil, err
	}
	outcomes := p.Engine.FinishAll(ctx, []engine.FinishRequest{{Run: run, Outcome: o,
		Next: next}})[0]
	if len(outcomes.Next) == 0 {
		return nil, outcomes.Err
	}
	return outcomes.Next[0], outcomes.Err
}
