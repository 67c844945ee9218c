// Package maintenance is what the engine does by itself, one file each: promote what
// is due, expire what is lost, publish what has happened, prune what is old,
// gauge what is there. A duty owns when; the engine owns what.
//
// Every node runs every duty. Where only one may, the engine elects it; else
// the store's locks see to it that nothing is done twice.
package maintenance

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/outage"
)

// Runner runs the duties of one node.
type Runner struct {
	Engine *engine.Engine
	Log    *slog.Logger

	PruneInterval time.Duration // 0 means a minute
	Publishers    []Publisher   // what takes the messages of the outbox

	mu    sync.Mutex
	loops map[string]*outage.Loop // one for each duty
}

// Run does all duties until ctx ends, then returns when the last is done.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, d := range []func(context.Context){r.promote, r.expire, r.publish, r.prune, r.gauge,
		r.Engine.Listen} {
		wg.Go(func() { d(ctx) })
	}
	wg.Wait()
}

// report notes how a step of a duty ended and reports whether it went well.
func (r *Runner) report(ctx context.Context, duty string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	r.loop(duty).Report(ctx, err)
	return err == nil
}

func (r *Runner) loop(duty string) *outage.Loop {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loops == nil {
		r.loops = map[string]*outage.Loop{}
	}
	if r.loops[duty] == nil {
		r.loops[duty] = &outage.Loop{Log: r.Log, Name: duty}
	}
	return r.loops[duty]
}

// sleep waits for d, or for wake, and reports whether ctx still holds.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// untilEmpty repeats a step as long as it finds something to do.
func untilEmpty(ctx context.Context, step func(context.Context) (int, error)) error {
	for ctx.Err() == nil {
		n, err := step(ctx)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}
