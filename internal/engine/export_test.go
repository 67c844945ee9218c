package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// AwaitWaiting returns once n claims wait for what a request asks for and no claim is being served.
func AwaitWaiting(e *Engine, req ClaimRequest, n int) {
	hash := queueHashesOf(req)[1]
	await("callers to wait for jobs", func() bool {
		return e.hub.waiting(hash) >= n && !e.claims.busy()
	})
}

// AwaitIdle returns once n claims are idle, so that a submission may match them.
func AwaitIdle(e *Engine, n int) {
	await("claims to be idle", func() bool {
		e.hub.mu.Lock()
		defer e.hub.mu.Unlock()
		return e.hub.idle == n
	})
}

// AwaitMatched returns once n claims of a job type are matched with submissions.
func AwaitMatched(e *Engine, jobType string, n int) {
	await("claims to be matched", func() bool {
		e.hub.mu.Lock()
		defer e.hub.mu.Unlock()
		matched := 0
		for _, w := range e.hub.waiters[slotsHash(jobType)] {
			if w.match != nil {
				matched++
			}
		}
		return matched == n
	})
}

// WakeOne wakes the claim that has waited longest for a queue, as a commit of another node does.
func WakeOne(e *Engine, jobType, queue string) {
	e.hub.wake(job.QueueHashOf(jobType, queue), 1)
}

// AwaitAdded returns once n claims are registered for a queue, whether they wait or ask.
func AwaitAdded(e *Engine, jobType, queue string, n int) {
	hash := job.QueueHashOf(jobType, queue)
	await("claims to be registered", func() bool { return e.hub.waiting(hash) >= n })
}

// MaxGroups is how many groups of a verb are served at a time.
func MaxGroups(e *Engine) int { return e.submits.depth.groups() }

// AwaitSubmits returns once serving groups of submissions are being served and waiting callers wait
// behind them.
func AwaitSubmits(e *Engine, serving, waiting int) {
	await("groups of submissions to be served", func() bool {
		e.submits.mu.Lock()
		defer e.submits.mu.Unlock()
		return e.submits.serving == serving && len(e.submits.waiting) == waiting
	})
}

// Yield waits as an engine with so many callers does after work that took so long.
func Yield(ctx context.Context, took time.Duration, callers int64) {
	var e Engine
	e.callers.Store(callers)
	e.yield(ctx, took)
}

// await panics unless done reports true within a minute.
func await(what string, done func() bool) {
	for end := time.Now().Add(time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			panic("timed out waiting for " + what)
		}
	}
}

func (c *combiner[C]) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving > 0 || len(c.waiting) > 0
}

// WithoutPolling makes waiting claims ask the store only when they are notified.
func WithoutPolling(e *Engine) { PollEvery(e, time.Hour) }

// PollEvery sets the time between two polls. No claim has waited yet.
func PollEvery(e *Engine, interval time.Duration) { e.claimPoller.interval = interval }

// AwaitUpdates returns once n updates wait for the store.
func AwaitUpdates(e *Engine, n int) {
	await("updates to wait for the store", func() bool {
		e.guard.mu.Lock()
		defer e.guard.mu.Unlock()
		return len(e.guard.waiting) == n
	})
}

// ClaimTogether serves a number of equal requests as one group and returns how many jobs each got.
func ClaimTogether(e *Engine, callers int, req ClaimRequest) (got []int, err error) {
	var group []*ticket[claimCall]
	for range callers {
		group = append(group, &ticket[claimCall]{call: claimCall{ctx: context.Background(),
			req: req}})
	}
	err = e.claimGroup(group)
	for _, t := range group {
		got = append(got, len(t.call.jobs))
	}
	return got, err
}

// CachedDeadLetters returns how many of the dead letters that a node has cached are open.
func (e *Engine) CachedDeadLetters(jobType string) int64 {
	return e.deadLetterGroupCache.of[jobType].open
}
