// Package duty is what the engine does by itself, one file each: promote what
// is due, expire what is lost, publish what has happened, prune what is old,
// gauge what is there. A duty owns when; the engine owns what.
//
// Every node runs every duty. Where only one may, the engine elects it; else
// the store's locks see to it that nothing is done twice.
package duty

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
)

// Runner runs the duties of one node.
type Runner struct {
	Engine *engine.Engine
	Log    *slog.Logger

	PruneEvery time.Duration // 0 means a minute
	Outlets    []Outlet      // what takes the messages of the outbox

	mu     sync.Mutex
	broken map[string]bool // duties whose last step failed
}

// Run does all duties until ctx ends, then returns when the last is done.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, d := range []func(context.Context){r.promote, r.expire, r.publish, r.prune, r.gauge, r.Engine.Listen} {
		wg.Go(func() { d(ctx) })
	}
	wg.Wait()
}

// did notes how a step of a duty ended and reports whether it went well. A store
// that is away makes every step fail for as long; only the first failure is
// logged, and that it works again.
func (r *Runner) did(ctx context.Context, duty string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.broken[duty]
	if r.broken == nil {
		r.broken = map[string]bool{}
	}
	r.broken[duty] = err != nil
	switch {
	case r.Log == nil:
	case err != nil && !was:
		r.Log.Warn("a duty failed and is tried again until it works", "duty", duty, "error_message", err)
	case err == nil && was:
		r.Log.Info("a duty works again", "duty", duty)
	}
	return err == nil
}

// pause waits for d, or for wake, and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// drain repeats a step as long as it finds something to do.
func drain(ctx context.Context, step func(context.Context) (int, error)) error {
	for ctx.Err() == nil {
		n, err := step(ctx)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}
