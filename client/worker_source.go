package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// jobSource claims jobs over the worker API and finishes them.
type jobSource struct {
	api      *WorkerAPI
	outcomes batcher[RunOutcome]
	query    ClaimQuery
	handlers map[string]JobHandler   // by queue; "" is for all others
	afterRun func(ClaimedJob, error) // may be nil
}

// newJobSource makes a source of jobs for handlers by queue.
func newJobSource(api *WorkerAPI, query ClaimQuery, handlers map[string]JobHandler,
	afterRun func(ClaimedJob, error)) *jobSource {
	s := &jobSource{api: api, query: query, handlers: handlers, afterRun: afterRun}
	s.outcomes = batcher[RunOutcome]{op: "worker finish", sendOne: s.finishOne,
		sendAll: s.finishAll}
	return s
}

func (s *jobSource) claim(ctx context.Context, max int, wait time.Duration) ([]lease, error) {
	query := s.query
	query.Max = max
	jobs, err := s.api.claim(ctx, query, wait, true)
	if err != nil {
		return nil, err
	}
	leases := make([]lease, len(jobs))
	for i, job := range jobs {
		leases[i] = &jobLease{source: s, job: job}
	}
	return leases, nil
}

// finish sends the outcome of a run, together with others that are ready at the same time. It fails
// as [WorkerAPI.Complete] does. A large outcome goes in a request of its own, and so does one of
// Images: the server checks the objects that a result names before it accepts it, which takes time
// that the outcomes of other runs should not wait.
func (s *jobSource) finish(ctx context.Context, outcome RunOutcome) error {
	if s.query.Contract == ContractImages || outcome.size() > maxBatchedBytes {
		return s.finishOne(ctx, outcome)
	}
	return s.outcomes.send(ctx, outcome)
}

// finishOne ends a run in a request of its own.
func (s *jobSource) finishOne(ctx context.Context, outcome RunOutcome) error {
	switch {
	case outcome.Failure != nil:
		return s.api.Fail(ctx, outcome.RunID, *outcome.Failure)
	case outcome.Released:
		return s.api.Release(ctx, outcome.RunID)
	}
	return s.api.Complete(ctx, outcome.RunID, outcome.Result)
}

// finishAll ends runs in one request.
func (s *jobSource) finishAll(ctx context.Context, outcomes []RunOutcome) ([]error, error) {
	results, err := s.api.Finish(ctx, outcomes)
	if err != nil {
		return nil, outcomesError(err)
	}
	errs := make([]error, len(results))
	for i, result := range results {
		errs[i] = result.Err
	}
	return errs, nil
}

// outcomesError decides what becomes of the outcomes of a batch that has failed. Where the server
// has refused all of it, each is sent again alone: after ErrInvalid to learn which one is wrong,
// and after another refusal, such as 404 from a server that does not have the route, because later
// batches would get it too.
func outcomesError(err error) error {
	status := statusOf(err)
	refused := status != 0 && status < http.StatusInternalServerError
	switch {
	case errors.Is(err, ErrInvalid):
		return errSendSingly
	case refused && !errors.Is(err, ErrRetryable):
		return errNoBatches
	}
	return err
}

// size is about how many bytes the outcome has on the wire.
func (o RunOutcome) size() int {
	if o.Failure != nil {
		return len(o.Failure.Error) + len(o.Failure.Type)
	}
	return len(o.Result)
}

// jobLease is one claimed job.
type jobLease struct {
	source *jobSource
	job    ClaimedJob
	result json.RawMessage // once the handler has succeeded
}

func (l *jobLease) timeout() time.Duration { return l.job.Lease }

func (l *jobLease) logAttrs() []any {
	return []any{
		"queue", l.job.Queue,
		"job_id", l.job.ID,
		"run_id", l.job.RunID,
		"attempt", l.job.Attempt,
	}
}

// errNotStarted is the error of a run whose handler was not called.
var errNotStarted = fmt.Errorf("%w: not started", ErrRelease)

// handle calls the handler of the job's queue. ForgeRun has a state for a claimed job that was
// not started yet, so its runs are started first (G-FR-01).
func (l *jobLease) handle(ctx context.Context, a *attempt) error {
	handler := l.source.handlers[l.job.Queue]
	if handler == nil {
		handler = l.source.handlers[""]
	}
	if handler == nil {
		return fmt.Errorf("%w: no handler for queue %q", errNotStarted, l.job.Queue)
	}
	if l.job.Contract == ContractForgeRun {
		start := func() error { return l.source.api.Start(ctx, l.job.RunID) }
		if err := a.withRequestLock(ctx, start); err != nil {
			return fmt.Errorf("%w: %w", errNotStarted, err)
		}
	}
	result, err := handler(ctx, &JobRun{Job: l.job, attempt: a, api: l.source.api})
	if err != nil {
		return err
	}
	if result != nil && !json.Valid(result) {
		notJSON := errors.New("the handler's result is not JSON")
		return &JobError{Err: notJSON, Type: "result", Final: true}
	}
	l.result = result
	return nil
}

func (l *jobLease) heartbeat(ctx context.Context, state json.RawMessage) (cancel bool, err error) {
	reply, err := l.source.api.Heartbeat(ctx, l.job.RunID, state)
	return reply.Cancel, err
}

// complete sends the result. A result that the server refuses becomes a failure. It is final,
// because the result of another run would have the same form, except in Images: that also refuses
// a result whose objects it does not find, and another run may store them.
func (l *jobLease) complete(ctx context.Context, _ func() bool) (_ lease, refused, err error) {
	err = l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Result: l.result})
	if !errors.Is(err, ErrInvalid) {
		return nil, nil, err
	}
	return nil, err, l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Failure: &JobFailure{
		Error:     truncate("result refused: " + err.Error()),
		Type:      "result",
		Retryable: l.job.Contract == ContractImages,
	}})
}

func (l *jobLease) release() func(context.Context) error { return l.sendRelease }

func (l *jobLease) sendRelease(ctx context.Context) error {
	return l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Released: true})
}

// failureType returns the type of the error of a handler.
func failureType(failure, cause error) string {
	var jobErr *JobError
	var panicked *panicError
	switch {
	case errors.As(failure, &jobErr):
		return jobErr.Type
	case errors.As(failure, &panicked):
		return "panic"
	case errors.Is(cause, ErrRunCanceled):
		return "canceled"
	}
	return ""
}

// failureText returns the text of the error of a handler, as it is reported. That of a panic is its
// value: the type says that it was one.
func failureText(failure error) string {
	var panicked *panicError
	if errors.As(failure, &panicked) {
		return truncate(orDefault(fmt.Sprint(panicked.value), failure.Error()))
	}
	return truncate(failure.Error())
}

// report releases a job whose handler was stopped by the drain of the worker or returned
// ErrRelease, and reports every other failure.
func (l *jobLease) report(ctx context.Context, failure, cause error) error {
	var jobErr *JobError
	var panicked *panicError
	errors.As(failure, &jobErr)
	isPanic := errors.As(failure, &panicked)
	final := jobErr != nil && jobErr.Final
	drained := errors.Is(cause, ErrDrainTimeout) && !isPanic
	if (drained || errors.Is(failure, ErrRelease)) && !final {
		return l.sendRelease(ctx)
	}
	reported := JobFailure{Error: failureText(failure), Type: failureType(failure, cause),
		Retryable: !final}
	err := l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Failure: &reported})
	// The type is the handler's own text. If the server refuses it, the failure counts without it.
	if errors.Is(err, ErrInvalid) && reported.Type != "" {
		reported.Type = ""
		err = l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Failure: &reported})
	}
	if errors.Is(cause, ErrRunCanceled) && errors.Is(err, ErrRunLost) {
		return nil // the server had ended the run when it asked for that
	}
	return err
}

func (l *jobLease) runFinished(reason error) {
	if l.source.afterRun != nil {
		l.source.afterRun(l.job, reason)
	}
}

// maxFailure is how many bytes of an explanation are sent.
const maxFailure = 8 << 10

// truncate cuts a text to what the worker API takes, and makes it UTF-8.
func truncate(text string) string {
	if len(text) > maxFailure {
		text = text[:maxFailure] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
