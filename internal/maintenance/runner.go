// Package maintenance is what the engine does by itself, without a request: it promotes jobs that
// are due, expires attempts whose lease has ended, carries out the ends that workers have recorded,
// publishes the outbox, prunes what is past its retention, and takes in what other nodes have
// written. While there is nothing to do it only reads.
//
//	task     how often                                       of the nodes
//	sweep    when the next job is due or lease ends          all
//	ends     when workers have recorded the ends of runs     all
//	publish  when a transaction wrote messages               the leader, for each publisher
//	prune    every PruneInterval                             all
//	refresh  every second                                    all
//
// This package decides when a step runs; the engine decides what it does. Every node runs every
// task. Where only one node may act at a time, the engine elects a leader; elsewhere the locks of
// the store prevent two nodes from doing the same work twice.
//
// A step that fails is repeated after a pause for as long as the node runs, and logged once at the
// beginning and once at the end of the trouble (package outage).
package maintenance

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/outage"
)

// Runner runs the maintenance of one node.
type Runner struct {
	Engine *engine.Engine
	Log    *slog.Logger

	PruneInterval time.Duration // 0 means a minute
	Publishers    []Publisher   // the receivers of the outbox

	mu    sync.Mutex
	loops map[string]*outage.Loop // by the name of the task
}

// Run runs all tasks until ctx ends, and returns when the last one has ended.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	tasks := []func(context.Context){r.sweep, r.carryOutEnds, r.verifyEnds, r.publish, r.prune,
		r.refresh, r.Engine.Listen}
	for _, task := range tasks {
		wg.Go(func() { task(ctx) })
	}
	wg.Wait()
}

// report records the result of a step in the loop of its task, and reports whether it succeeded.
// A step that the end of ctx interrupted counts as neither.
func (r *Runner) report(ctx context.Context, task string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	r.loop(task).Report(ctx, err)
	return err == nil
}

func (r *Runner) loop(task string) *outage.Loop {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loops == nil {
		r.loops = map[string]*outage.Loop{}
	}
	if r.loops[task] == nil {
		r.loops[task] = &outage.Loop{Log: r.Log, Name: task}
	}
	return r.loops[task]
}

// sleep waits for d or for wake, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	return clock.Timer(nil).WaitOr(ctx, d, wake) && ctx.Err() == nil
}

// awaitSignal waits for a signal or the end of ctx.
func awaitSignal(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ready:
	case <-ctx.Done():
	}
}

// untilEmpty repeats a step until it finds nothing to do, fails, or ctx ends.
func untilEmpty(ctx context.Context, step func(context.Context) (int, error)) error {
	for ctx.Err() == nil {
		n, err := step(ctx)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}
