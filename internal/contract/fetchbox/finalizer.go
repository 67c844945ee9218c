package fetchbox

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

const (
	maxFinalizers   = 4 // jobs at a time whose handlers are told
	finalizeTimeout = 5 * time.Minute

	deadLetterPollInterval = 100 * time.Millisecond // between two looks at the outbox
	deadLetterTimeout      = time.Minute            // then other jobs get their turn
	deadLetterRetryDelay   = 10 * time.Second       // until the job gets its next one
)

// runFinalizer tells handlers of the jobs that ended, and lets the jobs end, until ctx ends. It is
// a duty of every node, also of those without downloads: tasks may be run outside.
func (f *FetchBox) runFinalizer(ctx context.Context) {
	pool, err := worker.New(worker.Config{Engine: f.engine, Contract: Name,
		Name: f.Node + "/finalizer", Slots: maxFinalizers,
		HeartbeatInterval: f.Lease / 3, Handler: &finalizer{f}, Log: f.Log})
	if err != nil {
		panic(err) // New has let nothing pass that is refused here
	}
	pool.Run(ctx, f.Grace)
}

type finalizer struct{ *FetchBox }

// Handle implements worker.Handler. A job that ended before is not told of again (G-FB-37).
func (f *finalizer) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	o := engine.Outcome{On: finalCause(t.Job)}
	if o.On == job.FailedForGood && !f.awaitDeadLetters(ctx) {
		return engine.Outcome{On: job.Released, Delay: deadLetterRetryDelay,
			Reason: "its dead letters are not published yet"}
	}
	if t.Job.State != awaitingDeadLetters {
		return o
	}
	if t.Start() != nil {
		return engine.Outcome{}
	}
	within, span := f.Tracing.StartSpan(telemetry.Resume(ctx, t.Job.Trace), "finalize",
		attribute.String(telemetry.JobID, t.Job.ID.Key))
	defer span.End()
	within, cancel := context.WithTimeout(within, finalizeTimeout)
	defer cancel()
	err := f.finalize(within, t.Job)
	if ctx.Err() != nil {
		return engine.Outcome{} // it is told again elsewhere
	}
	if err != nil {
		telemetry.FailSpan(span, codeHandlerFinalize)
		f.Log.Warn("a handler failed to take in the end of a job", telemetry.JobID, t.Job.ID.Key,
			telemetry.ErrorMessage, err)
		failure := &taskError{code: codeHandlerFinalize, message: err.Error()}
		o.Failure, o.Reason = failure.encode(), failure.code
	}
	return o
}

// awaitDeadLetters waits until the dead letters of a job that failed are in their stream, which
// whoever sees the job failed reads next. The outbox is published in order: they are there when
// what was its newest message is.
func (f *finalizer) awaitDeadLetters(ctx context.Context) (published bool) {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	for last := int64(0); ; {
		oldest, newestMessage, err := f.engine.Unpublished(ctx, Name, Tasks)
		if err == nil {
			if last == 0 {
				last = newestMessage
			}
			if oldest == 0 || oldest > last {
				return true
			}
		}
		if !clock.Sleep(ctx, deadLetterPollInterval) {
			return false
		}
	}
}

// finalize tells the handler of the job's type. A type that is registered no more has nobody to be
// told.
func (f *finalizer) finalize(ctx context.Context, j *job.Job) (err error) {
	of := f.types[j.Queue]
	if of == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			f.Log.Error("a handler panicked", telemetry.JobID, j.ID.Key, telemetry.ErrorMessage,
				fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))
			err = fmt.Errorf("the handler broke: %v", p)
		}
	}()
	e := decodeJobDetails(j)
	return of.handler.Finalize(ctx, handler.Summary{
		Job: handler.Job{ID: j.ID.Key, Type: j.Queue, Tenant: e.tenant,
			ManifestKey: e.manifestKey, TraceID: e.traceID},
		Status: outcomeOf(j), Total: j.Children, Completed: j.Children - j.OpenDeps - j.FailedDeps,
		Failed: j.FailedDeps, CreatedAt: j.CreatedAt, SettledAt: j.UpdatedAt,
	})
}
