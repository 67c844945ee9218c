package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Task is a job as its handler gets it.
type Task struct {
	Job    *job.Job // as it was claimed, and from Start on as it was then
	Worker string

	run *run
}

// Start tells the engine that the work begins, where the contract tells assigned
// from running. While the store is away it is tried again. After an error the run
// is lost: there is nothing to do any more.
func (t *Task) Start(context.Context) error {
	r := t.run
	err := engine.Persist(r.alive, func() error {
		after, err := r.pool.Engine.Start(r.calls, r.id)
		if err == nil {
			r.renew()
			t.Job.State, t.Job.Phase, t.Job.StartedAt, t.Job.UpdatedAt = after.State, after.Phase, after.StartedAt, after.UpdatedAt
			t.Job.LeaseUntil = after.LeaseUntil
		}
		return err
	})
	if err != nil {
		r.giveUp()
		return fmt.Errorf("worker: a run could not be started: %w", err)
	}
	return nil
}

// run is one job under way.
type run struct {
	pool   *Pool
	task   *Task
	id     engine.Run
	calls  context.Context // of the calls of the engine, which end by themselves
	ctx    context.Context // of the handler
	cancel context.CancelCauseFunc

	lease *time.Timer     // begins anew with every heartbeat
	alive context.Context // until the lease is over, or the run given up
	kill  context.CancelFunc
}

func newRun(ctx context.Context, p *Pool, worker string, j *job.Job) *run {
	r := &run{pool: p, id: engine.Run{ID: j.ID, Run: j.Run}, calls: ctx}
	r.task = &Task{Job: j, Worker: worker, run: r}
	r.alive, r.kill = context.WithCancel(ctx)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.lease = time.AfterFunc(r.leaseTime(), r.giveUp)
	return r
}

// giveUp makes the run count no more.
func (r *run) giveUp() {
	r.kill()
	r.cancel(ErrLost)
}

// leaseTime is how long the run may be silent.
func (r *run) leaseTime() time.Duration {
	if r.task.Job.Lease > 0 {
		return r.task.Job.Lease
	}
	return 2 * r.pool.Beat
}

// beatTime is the time between heartbeats: that of the settings, less for a job whose
// lease is from a time when they were others.
func (r *run) beatTime() time.Duration {
	return min(r.pool.Beat, max(time.Millisecond, r.leaseTime()/2))
}

// renew is for when the engine has heard of the run.
func (r *run) renew() { r.lease.Reset(r.leaseTime()) }

func (r *run) end() {
	r.lease.Stop()
	r.kill()
	r.cancel(nil)
}

// lost reports whether the run counts no more.
func (r *run) lost() bool { return r.alive.Err() != nil }

// run has the job handled, writes how that ended and returns the job asked for with it.
func (r *run) run(ask func() *engine.ClaimRequest) (next *job.Job) {
	o := r.beatUntil(r.handle())
	if r.lost() {
		r.pool.Log.Debug("a run is no longer its job's and was stopped", telemetry.JobID, r.task.Job.ID.Key, telemetry.Worker, r.task.Worker)
		return nil
	}
	if o.On == "" {
		o.On = job.Released
	}
	err := engine.Persist(r.alive, func() (err error) { next, err = r.pool.finish(r.calls, r.id, o, ask()); return err })
	switch {
	case err == nil:
	case job.IsKind(err, job.RunLost): // canceled at the last moment, or written by a try whose answer was lost
		r.pool.Log.Debug("a run ended and its job had gone on without it", telemetry.JobID, r.task.Job.ID.Key, telemetry.Worker, r.task.Worker)
	default:
		r.pool.Log.Log(context.Background(), outage.Level(slog.LevelError, err),
			"the end of a run could not be written; its lease will end it", telemetry.JobID, r.task.Job.ID.Key, telemetry.Worker, r.task.Worker, telemetry.NextState, string(o.On), telemetry.ErrorMessage, err)
	}
	return next
}

// handle calls the handler and answers once.
func (r *run) handle() <-chan engine.Outcome {
	ended := make(chan engine.Outcome, 1)
	go func() {
		var o engine.Outcome
		defer func() {
			if p := recover(); p != nil {
				o = r.panicked(p)
			}
			ended <- o
		}()
		o = r.pool.Handler.Handle(r.ctx, r.task)
	}()
	return ended
}

func (r *run) panicked(p any) engine.Outcome {
	r.pool.Log.Error("a handler panicked", telemetry.JobID, r.task.Job.ID.Key, telemetry.Worker, r.task.Worker,
		telemetry.ErrorMessage, fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))
	if r.pool.Panicked != nil {
		return r.pool.Panicked(r.task, p)
	}
	return engine.Outcome{On: job.Failed, Reason: "panic"}
}

// beatUntil sends heartbeats until the handler has returned. While they fail they
// are sent more often.
func (r *run) beatUntil(ended <-chan engine.Outcome) engine.Outcome {
	every := r.beatTime()
	next := time.NewTimer(every)
	defer next.Stop()
	beaten := make(chan error, 1)
	for {
		select {
		case o := <-ended:
			return o
		case <-next.C:
			go func() { // not waited for: a store that hangs must not hide the end of the lease
				_, err := r.pool.Engine.Beat(r.calls, r.id, nil)
				beaten <- err
			}()
		case err := <-beaten:
			switch {
			case err == nil:
				r.renew()
				if r.pool.Beaten != nil {
					r.pool.Beaten()
				}
				next.Reset(every)
			case job.IsKind(err, job.RunLost):
				r.giveUp()
			default:
				next.Reset(min(every, mostPause))
			}
		}
	}
}
