// Package maintenance is what the engine does by itself, without a request: it promotes jobs that
// are due, expires attempts whose lease has ended, carries out the ends that workers have recorded,
// publishes the outbox, prunes rows that are past their retention, and reads what other nodes have
// written. Refresh also says to the sweep which times come soon. While there is nothing to do it
// only reads.
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

// carryOutEnds carries out the ends of runs that workers have recorded, whenever the store
// announces some or the sweep has seen some.
func (r *Runner) carryOutEnds(ctx context.Context) {
	r.rounds(ctx, "recorded ends", r.Engine.EndsRecorded(), r.Engine.CarryOutEnds)
}

// verifyEnds carries out those of the ends whose results have to be verified first.
func (r *Runner) verifyEnds(ctx context.Context) {
	r.rounds(ctx, "recorded ends to verify", r.Engine.EndsToVerify(), r.Engine.VerifyEnds)
}

// rounds repeats a step whenever there is a signal, until ctx ends.
func (r *Runner) rounds(ctx context.Context, task string, ready <-chan struct{},
	step func(context.Context) (int, error)) {
	for {
		awaitSignal(ctx, ready)
		if ctx.Err() != nil {
			return
		}
		_, err := step(ctx)
		pause := r.Engine.EndsPause()
		if !r.report(ctx, task, err) {
			pause = stuckPause
		}
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

// prune deletes rows that are past their retention, in small batches.
func (r *Runner) prune(ctx context.Context) {
	interval := r.PruneInterval
	if interval <= 0 {
		interval = time.Minute
	}
	for clock.Sleep(ctx, interval) {
		r.report(ctx, "prune", untilEmpty(ctx, r.Engine.Prune))
	}
}

// refresh looks every second for jobs that are due, for jobs that waiting claims may get, and for
// changes of other nodes. An announcement that was lost is made up for by then.
func (r *Runner) refresh(ctx context.Context) {
	for {
		r.report(ctx, "refresh", r.Engine.Refresh(ctx))
		if !clock.Sleep(ctx, engine.SweepInterval) {
			return
		}
	}
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
