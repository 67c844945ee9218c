package fetchbox

import (
	"context"
	"errors"
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

// A job whose tasks have finished is claimed like any other job, by a finalizer. Its attempt waits
// for the dead letters of the job, runs the Finalize of the handler and ends the job:
//
//	             claim                        Start
//	ended ─────────────► listing ─────────────────────► finalizing ──► completed, failed
//	                       dead letters published         Finalize
//	replayed ──────────► closing ────────────────────────────────────► completed, failed
//	             claim     dead letters published, no second Finalize
//
// If the node is lost meanwhile, the lease expires and another node repeats the attempt: Finalize
// is called once per job, and again only if the node stops or is lost during the call (FB-077). If
// an operator replays a dead letter of the job meanwhile, the engine takes the job out of these
// states, and the outcome of the attempt is refused as that of a lost run.
const (
	maxFinalizers   = 4 // jobs at a time
	finalizeTimeout = 5 * time.Minute

	deadLetterPollInterval = 100 * time.Millisecond
	deadLetterTimeout      = time.Minute      // then the job is released, for others
	deadLetterRetryDelay   = 10 * time.Second // until the job is claimed again
)

// runFinalizer finalizes jobs until ctx ends. Every node does, also one without downloads: its
// tasks may be executed by remote workers. Jobs whose type is not registered any more are finalized
// as well, without a handler.
func (f *FetchBox) runFinalizer(ctx context.Context) {
	pool := worker.MustNew(worker.Config{Engine: f.Engine, JobType: Name,
		Name: f.Node + "/finalizer", Slots: maxFinalizers,
		HeartbeatInterval: f.Lease / 3, Handler: &finalizer{f}, Log: f.Log})
	pool.Run(ctx, f.Grace)
}

// finalizer executes the attempts that end jobs. All slots of its pool share it.
type finalizer struct{ *FetchBox }

// Handle implements worker.Handler. A replayed job ends without a second Finalize (G-FB-37). An
// error of Finalize does not change how the job ends: it becomes the last error of the job and an
// entry of its log.
func (f *finalizer) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	o := engine.Outcome{On: finalCause(t.Job)}
	if o.On == job.FailedForGood && !f.awaitDeadLetters(ctx) {
		return engine.Outcome{On: job.Released, Delay: deadLetterRetryDelay,
			Reason: "the dead letters are not published yet"}
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
		return engine.Outcome{} // another attempt runs Finalize again
	}
	if err != nil {
		telemetry.FailSpan(span, codeHandlerFinalize)
		if !errors.Is(err, errHandlerPanicked) { // finalize has logged a panic
			f.Log.Warn("the Finalize of a handler failed", telemetry.JobID, t.Job.ID.Key,
				telemetry.ErrorMessage, err)
		}
		failure := &taskError{code: codeHandlerFinalize, message: err.Error()}
		o.Failure, o.Reason = failure.encode(), failure.code
	}
	return o
}

// awaitDeadLetters waits until the dead letters of a failed job are in their stream, where a client
// that sees the failed job looks for them. The outbox is published in order: when the message that
// was the newest at the first look is published, they are too. It returns false if that takes
// longer than deadLetterTimeout, as in an outage of the streams; the job then goes back to its
// queue and keeps no slot from jobs without dead letters.
func (f *finalizer) awaitDeadLetters(ctx context.Context) (published bool) {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	newest := int64(0)
	for !f.publishedUpTo(ctx, &newest) {
		if !clock.Sleep(ctx, deadLetterPollInterval) {
			return false
		}
	}
	return true
}

// publishedUpTo reports whether the outbox has published a message, which the first call finds: the
// newest one. It reports false while the store does not respond.
func (f *finalizer) publishedUpTo(ctx context.Context, message *int64) bool {
	oldest, newest, err := f.Engine.Unpublished(ctx, Name, Tasks)
	if err != nil {
		return false
	}
	if *message == 0 {
		*message = newest
	}
	return oldest == 0 || oldest > *message
}

var errHandlerPanicked = errors.New("the handler panicked")

// finalize runs the Finalize of the handler of a job, if its type is still registered. A panic of
// the handler becomes an error, as the job must end nevertheless.
func (f *finalizer) finalize(ctx context.Context, j *job.Job) (err error) {
	t := f.types[j.Queue]
	if t == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			f.Log.Error("a handler panicked", telemetry.JobID, j.ID.Key, telemetry.ErrorMessage,
				fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errHandlerPanicked, p)
		}
	}()
	details := decodeJobDetails(j)
	return t.handler.Finalize(ctx, handler.Summary{
		Job: handler.Job{
			ID:          j.ID.Key,
			Type:        j.Queue,
			Tenant:      details.tenant,
			ManifestKey: details.manifestKey,
			TraceID:     details.traceID,
		},
		Status:     outcomeOf(j),
		Total:      j.Children,
		Completed:  j.Children - j.OpenDeps - j.FailedDeps,
		Failed:     j.FailedDeps,
		CreatedAt:  j.CreatedAt,
		FinishedAt: j.UpdatedAt,
	})
}
