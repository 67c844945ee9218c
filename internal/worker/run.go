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

// ClaimedJob is a claimed job as its handler gets it.
type ClaimedJob struct {
	Job    *job.Job // as it was claimed; Start brings it up to date
	Worker string   // the name of the worker that claimed it

	execution *execution
}

// Start marks the job as started, in job types that have a state for it. It is tried again while
// the store is unavailable, until the lease ends. After an error the run is lost and the handler
// should return.
func (t *ClaimedJob) Start() error {
	r := t.execution
	err := engine.RetryTransient(r.leaseCtx, func() error {
		started, err := r.pool.Engine.Start(r.engineCtx, r.id)
		if err != nil {
			return err
		}
		r.renewLease()
		t.Job.State = started.State
		t.Job.Phase = started.Phase
		t.Job.StartedAt = started.StartedAt
		t.Job.UpdatedAt = started.UpdatedAt
		t.Job.LeaseUntil = started.LeaseUntil
		return nil
	})
	if err != nil {
		r.abandon()
		return fmt.Errorf("worker: a run could not be started: %w", err)
	}
	return nil
}

// execution is one run of a job in this process.
type execution struct {
	pool      *Pool
	claimed   *ClaimedJob
	id        engine.Run
	engineCtx context.Context // for calls of the engine, which bound themselves in time
	ctx       context.Context // of the handler
	cancel    context.CancelCauseFunc

	lease       *time.Timer     // fires when the lease has ended; every heartbeat resets it
	leaseCtx    context.Context // ends with the lease, or when the run is lost
	cancelLease context.CancelFunc
}

// newExecution makes the execution of a claimed job. From now on its lease runs, whatever the job
// waits for.
func newExecution(ctx context.Context, p *Pool, worker string, j *job.Job) *execution {
	r := &execution{pool: p, id: engine.Run{ID: j.ID, Run: j.Run}, engineCtx: ctx}
	r.claimed = &ClaimedJob{Job: j, Worker: worker, execution: r}
	r.leaseCtx, r.cancelLease = context.WithCancel(ctx)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.lease = time.AfterFunc(r.leaseDuration(), r.abandon)
	return r
}

// abandon ends the execution: its run is lost, and its outcome will not be written.
func (r *execution) abandon() {
	r.cancelLease()
	r.cancel(ErrLost)
}

// leaseDuration is how long the lease lasts without a heartbeat.
func (r *execution) leaseDuration() time.Duration {
	if r.claimed.Job.Lease > 0 {
		return r.claimed.Job.Lease
	}
	return 2 * r.pool.HeartbeatInterval
}

// heartbeatInterval is the time between heartbeats: that of the config, or less for a job whose
// lease is shorter because it was given under other settings.
func (r *execution) heartbeatInterval() time.Duration {
	return min(r.pool.HeartbeatInterval, max(time.Millisecond, r.leaseDuration()/2))
}

// renewLease starts the lease again after a call that has extended it in the store.
func (r *execution) renewLease() { r.lease.Reset(r.leaseDuration()) }

// stop frees the timer and the contexts of an execution that has ended.
func (r *execution) stop() {
	r.lease.Stop()
	r.cancelLease()
	r.cancel(nil)
}

// isLost reports whether the run is lost.
func (r *execution) isLost() bool { return r.leaseCtx.Err() != nil }

// execute runs the handler and writes its outcome. It returns the job that was claimed with it, if
// any.
func (r *execution) execute(nextClaim func() *engine.ClaimRequest) (next *job.Job) {
	o := r.heartbeatUntil(r.handle())
	if r.isLost() {
		r.pool.Log.Debug("a run is lost and was stopped",
			telemetry.JobID, r.claimed.Job.ID.Key, telemetry.Worker, r.claimed.Worker)
		return nil
	}
	if o.On == "" {
		o.On = job.Released
	}
	err := engine.RetryTransient(r.leaseCtx, func() (err error) {
		next, err = r.pool.finish(r.engineCtx, r.id, o, nextClaim())
		return err
	})
	switch {
	case err == nil:
	case job.IsKind(err, job.RunLost):
		// The job was canceled just now, or an earlier try whose answer was lost has finished it.
		r.pool.Log.Debug("a run was lost before its outcome was written",
			telemetry.JobID, r.claimed.Job.ID.Key, telemetry.Worker, r.claimed.Worker)
	default:
		r.pool.Log.Log(context.Background(), outage.Level(slog.LevelError, err),
			"the outcome of a run could not be written; its lease will end it",
			telemetry.JobID, r.claimed.Job.ID.Key,
			telemetry.Worker, r.claimed.Worker,
			telemetry.NextState, string(o.On),
			telemetry.ErrorMessage, err)
	}
	return next
}

// handle calls the handler in a goroutine and returns the channel of its one outcome.
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
		o = r.pool.Handler.Handle(r.ctx, r.claimed)
	}()
	return outcomes
}

// panicOutcome logs a panic with its stack and returns the outcome of the run. The process goes on.
func (r *execution) panicOutcome(p any) engine.Outcome {
	r.pool.Log.Error("a handler panicked",
		telemetry.JobID, r.claimed.Job.ID.Key,
		telemetry.Worker, r.claimed.Worker,
		telemetry.ErrorMessage, fmt.Sprint(p),
		telemetry.Stack, string(debug.Stack()))
	if r.pool.OnPanic != nil {
		return r.pool.OnPanic(r.claimed, p)
	}
	return engine.Outcome{On: job.Failed, Reason: "panic"}
}

// heartbeatUntil sends heartbeats until the handler has returned, and returns its outcome. A
// heartbeat that failed is repeated after a shorter pause.
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
			go func() { // a store that hangs must not delay the return of the handler
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
