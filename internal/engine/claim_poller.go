package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Commits of this node wake claims that wait, and so does what other nodes announce. An
// announcement may be lost, and time alone makes jobs ready too, so the engine also polls: once a
// second while claims wait, in one view for all of them. An idle node hence makes no updates. Where
// Refresh is called it polls in its own view; an engine without maintenance has a loop for it.

// pollInterval is the time between two polls.
const pollInterval = time.Second

// claimPoller polls for the claims of the process that wait.
type claimPoller struct {
	interval time.Duration
	ctx      context.Context // ends when the engine closes
	stop     context.CancelFunc

	mu        sync.Mutex
	running   bool
	byRefresh bool // Refresh polls
}

func newClaimPoller() *claimPoller {
	p := &claimPoller{interval: pollInterval}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// pollWhileWaiting starts polling unless it is running. The caller has registered its claim with
// the hub, so that polling does not end before the claim is served.
func (e *Engine) pollWhileWaiting() {
	p := e.claimPoller
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running || p.byRefresh || p.ctx.Err() != nil {
		return
	}
	p.running = true
	go e.pollLoop()
}

// leaveToRefresh ends polling by the loop.
func (p *claimPoller) leaveToRefresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byRefresh = true
}

// pollLoop polls until no claim waits, Refresh polls or the engine closes.
func (e *Engine) pollLoop() {
	tick := time.NewTicker(e.claimPoller.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.claimPoller.ctx.Done():
		}
		if !e.mustPoll() {
			return
		}
		e.poll(e.claimPoller.ctx)
	}
}

// mustPoll reports whether a claim waits. If none does, the next one that waits starts polling.
func (e *Engine) mustPoll() bool {
	p := e.claimPoller
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = !p.byRefresh && p.ctx.Err() == nil && len(e.hub.hashes()) > 0
	return p.running
}

// poll wakes the claims for which there may be a job. Where the store does not answer it wakes all
// of them, so that each asks it and gets its error.
func (e *Engine) poll(ctx context.Context) {
	waiting := e.hub.hashes()
	err := e.view(ctx, func(r reader) error {
		next, err := r.NextDue(r.Now())
		if err != nil {
			return err
		}
		_, err = e.wakeClaimable(r, waiting, next)
		return err
	})
	if err != nil {
		e.wakeAllOf(waiting)
	}
}

func (e *Engine) wakeAllOf(waiting map[job.QueueHash]bool) {
	for hash := range waiting {
		e.hub.wake(hash, wakeAll)
	}
}

// wakeClaimable wakes those of the claims that may get a job: their queue has ready jobs, or a job
// is due or a lease has ended, which a claim looks for by itself. It reports whether it woke any.
func (e *Engine) wakeClaimable(r reader, waiting map[job.QueueHash]bool, next store.Due) (
	found bool, err error) {
	if comesBy(r.Now(), next.Waiting, next.Lease) {
		e.wakeAllOf(waiting)
		return true, nil
	}
	var queues []job.QueueHash
	var anyOf []string // the job types of which claims wait for a job of any queue
	for hash := range waiting {
		if jobType, isAny := e.anyQueue[hash]; isAny {
			anyOf = append(anyOf, jobType)
		} else {
			queues = append(queues, hash) // a slotsHash has no jobs
		}
	}
	jobTypes, err := readyJobTypes(r, anyOf)
	if err != nil {
		return false, err
	}
	for _, jobType := range jobTypes {
		e.hub.wake(anyQueueHash(jobType), wakeAll)
	}
	ready, err := r.ReadyQueues(store.ReadySelector{Queues: queues})
	for _, q := range ready {
		e.hub.wake(q.Queue, wakeAll)
	}
	return len(jobTypes)+len(ready) > 0, err
}

// readyJobTypes returns those of some job types that have ready jobs. The counts of all job types
// cost one statement, as those of one do.
func readyJobTypes(r reader, of []string) (ready []string, err error) {
	s := store.QueueSelector{Sums: true}
	switch len(of) {
	case 0:
		return nil, nil
	case 1:
		s.JobType = of[0]
	}
	counts, err := r.Counts(s)
	for i := range counts {
		if counts[i].Ready > 0 && slices.Contains(of, counts[i].JobType) {
			ready = append(ready, counts[i].JobType)
		}
	}
	return ready, err
}
