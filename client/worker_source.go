package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// jobSource hands out jobs by the worker API.
type jobSource struct {
	api      *WorkerAPI
	outcomes outcomeSender
	query    ClaimQuery
	handlers map[string]JobHandler // by queue; "" is for all others
	afterRun func(ClaimedJob)      // may be nil
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

// end ends a run; the context is that of a settlement. What Images has to look at
// before it believes a result takes its time, which nobody else is to wait for.
func (s *jobSource) finish(ctx context.Context, outcome RunOutcome) error {
	if s.query.Contract == ContractImages {
		return s.outcomes.sendSingle(ctx, outcome)
	}
	return s.outcomes.finish(ctx, outcome)
}

// jobLease is one run of a job.
type jobLease struct {
	source *jobSource
	job    ClaimedJob
	result json.RawMessage // once the handler has succeeded
}

func (l *jobLease) timeout() time.Duration { return l.job.Lease }

func (l *jobLease) logAttrs() []any {
	return []any{"queue", l.job.Queue, "job_id", l.job.ID, "run_id", l.job.RunID, "attempt",
		l.job.Attempt}
}

// errNotStarted: the run could not even be started.
var errNotStarted = fmt.Errorf("%w: not started", ErrRelease)

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
	if err == nil && result != nil && !json.Valid(result) {
		err = &JobError{Err: errors.New("the handler's result is not JSON"), Type: "result",
			Final: true}
	}
	l.result = result
	return err
}

func (l *jobLease) heartbeat(ctx context.Context, state json.RawMessage) (cancel bool, err error) {
	beat, err := l.source.api.Heartbeat(ctx, l.job.RunID, state)
	return beat.Cancel, err
}

// complete sends the result. What the server refuses it would refuse again, after another run as
// well: a form that does not fit is the handler's. Images refuses also what it does not find, which
// another run may well leave there.
func (l *jobLease) complete(ctx context.Context) error {
	err := l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Result: l.result})
	if errors.Is(err, ErrInvalid) {
		return l.source.finish(ctx, RunOutcome{RunID: l.job.RunID,
			Failure: &JobFailure{Error: truncate("result refused: " + err.Error()), Type: "result",
				Retryable: l.job.Contract == ContractImages}})
	}
	return err
}

func (l *jobLease) release(ctx context.Context) error {
	return l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Released: true})
}

// report gives back what the end of the worker has cut short and what its
// handler has released, and tells of other failures.
func (l *jobLease) report(ctx context.Context, failure, cause error) error {
	var jobErr *JobError
	var panicked *panicError
	errors.As(failure, &jobErr)
	isPanic := errors.As(failure, &panicked)
	final := jobErr != nil && jobErr.Final
	cut := errors.Is(cause, ErrDrainTimeout) && !isPanic && !final
	if cut || (errors.Is(failure, ErrRelease) && !final) {
		return l.release(ctx)
	}
	reported := JobFailure{Error: truncate(failure.Error()), Retryable: !final}
	switch {
	case jobErr != nil:
		reported.Type = jobErr.Type
	case isPanic:
		reported.Type = "panic"
	case errors.Is(cause, ErrRunCanceled):
		reported.Type = "canceled"
	}
	err := l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Failure: &reported})
	// the handler's own word: the failure counts without it too
	if errors.Is(err, ErrInvalid) && reported.Type != "" {
		reported.Type = ""
		err = l.source.finish(ctx, RunOutcome{RunID: l.job.RunID, Failure: &reported})
	}
	if errors.Is(cause, ErrRunCanceled) && errors.Is(err, ErrRunLost) {
		return nil // the server had ended the run when it asked for that
	}
	return err
}

func (l *jobLease) runOver() {
	if l.source.afterRun != nil {
		l.source.afterRun(l.job)
	}
}

// maxFailure is how many bytes of an explanation are sent.
const maxFailure = 8 << 10

func truncate(text string) string {
	if len(text) > maxFailure {
		text = text[:maxFailure] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
