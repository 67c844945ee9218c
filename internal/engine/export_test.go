package engine

import (
	"context"
	"runtime"
	"time"
)

// AwaitWaiting returns once so many wait for what a request asks for and no claim
// is being served.
func AwaitWaiting(e *Engine, req ClaimRequest, n int) {
	hash := queueHashesOf(req)[1]
	await("callers to wait for jobs", func() bool {
		return e.hub.waiting(hash) >= n && !e.claims.busy()
	})
}

// Servers is how many groups of a verb are served at a time.
func Servers(e *Engine) int { return e.submits.maxGroups }

// AwaitSubmits returns once so many groups of submissions are being served and
// so many callers wait behind them.
func AwaitSubmits(e *Engine, serving, waiting int) {
	await("groups of submissions to be served", func() bool {
		e.submits.mu.Lock()
		defer e.submits.mu.Unlock()
		return e.submits.serving == serving && len(e.submits.waiting) == waiting
	})
}

// await gives up when something that must come soon does not.
func await(what string, is func() bool) {
	for end := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			panic("waited in vain for " + what)
		}
	}
}

func (c *combiner[C]) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving > 0 || len(c.waiting) > 0
}

// WithoutFloor makes waiting claims look only when they are notified.
func WithoutFloor(e *Engine) { PollEvery(e, time.Hour) }

// PollEvery sets the time between two polls. No claim has waited yet.
func PollEvery(e *Engine, interval time.Duration) { e.poller.interval = interval }

// AwaitUpdates returns once so many updates wait for the store.
func AwaitUpdates(e *Engine, n int) {
	await("updates to wait for the store", func() bool {
		e.guard.mu.Lock()
		defer e.guard.mu.Unlock()
		return len(e.guard.waiting) == n
	})
}

// ClaimTogether serves a number of equal requests as one group and returns how
// many jobs each got.
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
