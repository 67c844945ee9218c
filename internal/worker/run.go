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

	execution *execution
}

// Start tells the engine that the work begins, where the contract tells assigned
// from running. While the store is away it is tried again. After an error the run
// is lost: there is nothing to do any more.
func (t *Task) Start(context.Context) error {
	r := t.execution
	err := engine.Persist(r.leaseCtx, func() error {
		after, err := r.pool.Engine.Start(r.engineCtx, r.id)
		if err == nil {
			r.renewLease()
			t.Job.State, t.Job.Phase, t.Job.StartedAt, t.Job.UpdatedAt = after.State, after.Phase,
				after.StartedAt, after.UpdatedAt
			t.Job.LeaseUntil = after.LeaseUntil
		}
		return err
	})
	if err != nil {
		r.abandon()
		return fmt.Errorf("worker: a run could not be started: %w", err)
	}
	return nil
}

// run is one job under way.
type execution struct {
	pool      *Pool
	task      *Task
	id        engine.Run
	engineCtx context.Context // of the calls of the engine, which end by themselves
	ctx       context.Context // of the handler
	cancel    context.CancelCauseFunc

	lease       *time.Timer     // begins anew with every heartbeat
	leaseCtx    context.Context // until the lease is over, or the run given up
	cancelLease context.CancelFunc
}

func newExecution(ctx context.Context, p *Pool, worker string, j *job.Job) *execution {
	r := &execution{pool: p, id: engine.Run{ID: j.ID, Run: j.Run}, engineCtx: ctx}
	r.task = &Task{Job: j, Worker: worker, execution: r}
	r.leaseCtx, r.cancelLease = context.WithCancel(ctx)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.lease = time.AfterFunc(r.leaseDuration(), r.abandon)
	return r
}

// abandon makes the run count no more.
func (r *execution) abandon() {
	r.cancelLease()
	r.cancel(ErrLost)
}

// leaseDuration is how long the run may be silent.
func (r *execution) leaseDuration() time.Duration {
	if r.task.Job.Lease > 0 {
		return r.task.Job.Lease
	}
	return 2 * r.pool.HeartbeatInterval
}

// heartbeatInterval is the time between heartbeats: that of the settings, less for a job whose
// lease is from a time when they were others.
func (r *execution) heartbeatInterval() time.Duration {
	return min(r.pool.HeartbeatInterval, max(time.Millisecond, r.leaseDuration()/2))
}

// renewLease is for when the engine has heard of the run.
func (r *execution) renewLease() { r.lease.Reset(r.leaseDuration()) }

func (r *execution) stop() {
	r.lease.Stop()
	r.cancelLease()
	r.cancel(nil)
}

// isLost reports whether the run counts no more.
func (r *execution) isLost() bool { return r.leaseCtx.Err() != nil }

// run has the job handled, writes how that ended and returns the job asked for with it.
func (r *execution) execute(nextClaim func() *engine.ClaimRequest) (next *job.Job) {
	o := r.heartbeatUntil(r.handle())
	if r.isLost() {
		r.pool.Log.Debug("a run is no longer its job's and was stopped", telemetry.JobID,
			r.task.Job.ID.Key, telemetry.Worker, r.task.Worker)
		return nil
	}
	if o.On == "" {
		o.On = job.Released
	}
	err := engine.Persist(r.leaseCtx, func() (err error) {
		next, err = r.pool.finish(r.engineCtx, r.id, o, nextClaim())
		return err
	})
	switch {
	case err == nil:
	case job.IsKind(err, job.RunLost):
		// canceled at the last moment, or written by a try whose answer was lost
		r.pool.Log.Debug("a run ended and its job had gone on without it", telemetry.JobID,
			r.task.Job.ID.Key, telemetry.Worker, r.task.Worker)
	default:
		r.pool.Log.Log(context.Background(), outage.Level(slog.LevelError, err),
			"the end of a run could not be written; its lease will end it", telemetry.JobID,
			r.task.Job.ID.Key, telemetry.Worker, r.task.Worker, telemetry.NextState, string(o.On),
			telemetry.ErrorMessage, err)
	}
	return next
}

// handle calls the handler and answers once.
func (r *execution) handle() <-chan engine.Outcome {
	outcomes := make(chan engine.Outcome, 1)
	go func() {
		var o engine.Outcome
		defer func() {
			if p := recover(); p != nil {
				o = r.panicOutcome(p)
			}
			outcomes <- o
		}()
		o = r.pool.Handler.Handle(r.ctx, r.task)
	}()
	return outcomes
}

func (r *execution) panicOutcome(p any) engine.Outcome {
	r.pool.Log.Error("a handler panicked", telemetry.JobID, r.task.Job.ID.Key, telemetry.Worker,
		r.task.Worker,
		telemetry.ErrorMessage, fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))
	if r.pool.OnPanic != nil {
		return r.pool.OnPanic(r.task, p)
	}
	return engine.Outcome{On: job.Failed, Reason: "panic"}
}

// heartbeatUntil sends heartbeats until the handler has returned. While they fail they
// are sent more often.
func (r *execution) heartbeatUntil(outcomes <-chan engine.Outcome) engine.Outcome {
	interval := r.heartbeatInterval()
	next := time.NewTimer(interval)
	defer next.Stop()
	heartbeats := make(chan error, 1)
	for {
		select {
		case o := <-outcomes:
			return o
		case <-next.C:
			go func() { // not waited for: a store that hangs must not hide the end of the lease
				_, err := r.pool.Engine.Heartbeat(r.engineCtx, r.id, nil)
				heartbeats <- err
			}()
		case err := <-heartbeats:
			switch {
			case err == nil:
				r.renewLease()
				if r.pool.OnHeartbeat != nil {
					r.pool.OnHeartbeat()
				}
				next.Reset(interval)
			case job.IsKind(err, job.RunLost):
				r.abandon()
			default:
				next.Reset(min(interval, maxPause))
			}
		}
	}
}
