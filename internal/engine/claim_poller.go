package engine

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Claims that wait are woken by the commits of this node and by what other nodes announce. An
// announcement may be lost, and time alone makes jobs ready too, so the engine also polls: once a
// second while claims wait, in one view for all of them. An idle node hence makes no updates.

// pollInterval is the time between two polls.
const pollInterval = time.Second

// claimPoller polls for the claims of the process that wait.
type claimPoller struct {
	interval time.Duration
	ctx      context.Context // ends when the engine closes
	stop     context.CancelFunc

	mu      sync.Mutex
	running bool
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
	if p.running || p.ctx.Err() != nil {
		return
	}
	p.running = true
	go e.pollLoop()
}

// pollLoop polls until no claim waits or the engine closes.
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
	e.claimPoller.mu.Lock()
	defer e.claimPoller.mu.Unlock()
	e.claimPoller.running = e.claimPoller.ctx.Err() == nil && len(e.hub.hashes()) > 0
	return e.claimPoller.running
}

// poll wakes the claims for which there may be a job. Where the store does not answer it wakes all
// of them, so that each asks it and gets its error.
func (e *Engine) poll(ctx context.Context) {
	waiting := e.hub.hashes()
	var claimable []job.QueueHash
	err := e.view(ctx, func(r reader) (err error) {
		claimable, err = e.claimable(r, waiting)
		return err
	})
	if err != nil {
		for hash := range waiting {
			claimable = append(claimable, hash)
		}
	}
	for _, hash := range claimable {
		e.hub.wake(hash, wakeAll)
	}
}

// claimable returns those of the hashes whose claims may get a job: their queue has ready jobs, or
// a job is due or a lease has ended, which a claim looks for by itself.
func (e *Engine) claimable(r reader, waiting map[job.QueueHash]bool) (found []job.QueueHash,
	err error) {
	next, err := r.NextDue(r.Now())
	if err != nil {
		return nil, err
	}
	hasPassed := func(t time.Time) bool { return !t.IsZero() && !t.After(r.Now()) }
	if hasPassed(next.Waiting) || hasPassed(next.Lease) {
		for hash := range waiting {
			found = append(found, hash)
		}
		return found, nil
	}
	var queues []job.QueueHash
	for hash := range waiting {
		contract, isAny := e.anyQueue[hash]
		if !isAny {
			queues = append(queues, hash) // a slotsHash has no jobs
			continue
		}
		hasReady, err := e.hasReady(r, contract)
		if err != nil {
			return nil, err
		}
		if hasReady {
			found = append(found, hash)
		}
	}
	ready, err := r.ReadyQueues(store.ReadySelector{Queues: queues})
	for _, q := range ready {
		found = append(found, q.Queue)
	}
	return found, err
}

// hasReady reports whether a contract has ready jobs.
func (e *Engine) hasReady(r reader, contract string) (bool, error) {
	counts, err := r.Counts(store.QueueSelector{Contract: contract, Sums: true})
	return len(counts) > 0 && counts[0].Ready > 0, err
}
