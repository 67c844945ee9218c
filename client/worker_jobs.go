package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// JobHandler executes one run of a job. When its error is nil, the job is completed and keeps the
// result, which is any JSON or nil. An error fails the run: the contract retries the job by its
// policy, or not at all if the error is a [JobError] that is Final. With an error that is
// [ErrRelease] the job is released.
//
// The context ends when the run is lost, with a cause that is [ErrRunLost]; when the server asks
// the run to end, with [ErrRunCanceled]; and when the drain timeout of the worker has passed, with
// [ErrDrainTimeout]. It has the values of the context given to [JobWorker.Run] but does not end
// with it. An error returned after [ErrDrainTimeout] releases the job without counting a failure,
// unless the error is Final (G-TF-30).
type JobHandler func(ctx context.Context, run *JobRun) (result json.RawMessage, err error)

// JobMiddleware wraps a handler, for example to log or trace its runs. Panics pass through it: the
// worker recovers them outside of all middleware.
type JobMiddleware func(JobHandler) JobHandler

// JobError is an error of a handler with what the failure report says about it.
type JobError struct {
	// Err is the explanation. It is required.
	Err error
	// Type names the kind of failure in up to 255 characters; empty for none.
	Type string
	// Final says that no other run can succeed: the job fails without another attempt.
	Final bool
}

// Error returns the explanation.
func (e *JobError) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *JobError) Unwrap() error { return e.Err }

// Final marks an error of a handler as one that no other run can avoid: the job fails without
// another attempt (G-TF-30). Final(nil) is nil. Relay has no failures, so a [Worker] takes it for
// any other error: the job comes back after its timeout.
func Final(err error) error {
	var jobErr *JobError
	switch {
	case errors.As(err, &jobErr):
		return &JobError{Err: err, Type: jobErr.Type, Final: true}
	case err != nil:
		return &JobError{Err: err, Final: true}
	}
	return nil
}

// TypedJob makes a [JobHandler] of a function that takes the payload, decoded from JSON, as a P
// and returns a result to encode as JSON. Numbers in fields of type any become json.Number, so
// that none is rounded. A payload that does not decode and a result that does not encode fail the
// job without another attempt, with the types "payload" and "result".
func TypedJob[P, R any](
	handle func(ctx context.Context, run *JobRun, payload P) (R, error)) JobHandler {
	return func(ctx context.Context, run *JobRun) (json.RawMessage, error) {
		var payload P
		if err := decodeExact(run.Job.Payload, &payload); err != nil {
			return nil, &JobError{Err: fmt.Errorf("payload: %w", err), Type: "payload", Final: true}
		}
		result, err := handle(ctx, run, payload)
		if err != nil {
			return nil, err
		}
		encoded, err := json.Marshal(result)
		if err != nil {
			return nil, &JobError{Err: fmt.Errorf("result: %w", err), Type: "result", Final: true}
		}
		return encoded, nil
	}
}

// JobWorker claims the jobs of one contract over the worker API and runs handlers for them. API,
// Contract and Handlers are required. The fields must not change while it runs.
type JobWorker struct {
	// API is the worker API to claim jobs from.
	API *WorkerAPI
	// Contract is the contract of the jobs, such as [ContractTaskFlow].
	Contract string
	// Handlers are the handlers by queue. The worker claims jobs of these queues only. With a
	// handler under "" it claims jobs of all queues, and that handler gets those of the queues
	// that have no other.
	Handlers map[string]JobHandler
	// Middleware wraps every handler; the first is the outermost.
	Middleware []JobMiddleware
	// Name identifies the worker to the server. Empty means host name and process id.
	Name string
	// Concurrency limits the handlers that run at once, and so the jobs that this worker has
	// claimed. Zero means 1.
	Concurrency int
	// PollWait is how long the server may wait for a job before it answers that there is none, at
	// most 30 s. Zero means 30 s; with a negative value the server answers at once.
	PollWait time.Duration
	// PollInterval is the least time between two polls that bring no job. Zero means 1 s.
	PollInterval time.Duration
	// MaxHeartbeatInterval limits the time between heartbeats, which is a third of the lease.
	// Handlers learn from their heartbeats that their run was lost or is asked to end. Zero means
	// no limit.
	MaxHeartbeatInterval time.Duration
	// DrainTimeout is how long handlers may continue after the context of Run has ended. Zero
	// means 25 s; a negative value ends their contexts at once.
	DrainTimeout time.Duration
	// Kill, when set, ends a drain early: when it ends, the worker stops, and the contexts of the
	// handlers end with the cause of Kill and [ErrDrainTimeout], as after DrainTimeout.
	Kill context.Context
	// AfterRun, when set, is called for each run when nothing more will be sent about it, with the
	// reason why the job was not completed: nil if it was, or its handler has ended the run. A
	// result that the server refuses is a reason. Several goroutines call it.
	AfterRun func(ClaimedJob, error)
	// Logger gets what the worker waits for when it starts, failures and lost runs and, at level
	// debug, each job that was started and completed. Nil discards them.
	Logger *slog.Logger
}

// Run claims and executes jobs until ctx ends, and drains then: it stops polling and lets running
// handlers finish under their heartbeats. After DrainTimeout it ends their contexts, waits for
// them to return and releases their jobs. No goroutine is left when it returns. The poll that is
// under way when ctx ends may take half a second more, and its jobs are released; then it is cut
// off, and jobs that were claimed in that moment return when their leases expire.
//
// Each run gets a heartbeat at every third of its lease, which also stores the state that the
// handler has set meanwhile. A run is lost when the server says so, or when it has refused all
// heartbeats for a whole lease; nothing more is sent about it then. Time in which the server cannot
// be reached, or asks to try again ([ErrRetryable]), does not count: handlers go on, and an outcome
// is tried until the server gives a definite answer; after a stop, until 10 s after DrainTimeout.
// Outcomes that are ready at about the same time share a request, as with [WorkerAPI.Finish],
// except those of Images. A panic is reported as a retryable failure of the type "panic".
//
// While the server answers with errors, the worker polls again after random pauses that grow, and
// not before Retry-After. Errors of single jobs are logged.
//
// When an operator drains the worker on the server (AD-041), it stops polling, lets its handlers
// finish without a limit of time, and Run returns nil.
//
// Run returns nil after a drain in which all handlers finished, [ErrDrainTimeout] when the
// contexts of some had to be ended, and an [*Error] that is [ErrInvalid] at once when a field is
// missing or wrong.
func (w *JobWorker) Run(ctx context.Context) error {
	if err := w.validate(); err != nil {
		return &Error{Op: "job worker", Err: err}
	}
	logger := w.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	query := ClaimQuery{Contract: w.Contract, Worker: orDefault(w.Name, processName())}
	handlers := map[string]JobHandler{}
	for queue, handler := range w.Handlers {
		for _, wrap := range slices.Backward(w.Middleware) {
			handler = wrap(handler)
		}
		handlers[queue] = handler
	}
	queues := "all"
	if handlers[""] == nil {
		query.Queues = slices.Sorted(maps.Keys(handlers))
		queues = strings.Join(query.Queues, ",")
	}
	concurrency := orDefault(w.Concurrency, 1)
	logStart(logger, w.API.client, w.Contract, queues, query.Worker, concurrency)
	source := newJobSource(w.API, query, handlers, w.AfterRun)
	defer source.outcomes.wait()
	r := runner{
		source:               source,
		slots:                make(slots, concurrency),
		pollWait:             min(max(orDefault(w.PollWait, 30*time.Second), 0), 30*time.Second),
		pollPause:            orDefault(w.PollInterval, time.Second),
		drainTimeout:         orDefault(w.DrainTimeout, 25*time.Second),
		kill:                 w.Kill,
		maxHeartbeatInterval: w.MaxHeartbeatInterval,
		backoff:              w.API.client.backoff,
		log:                  logger.With("contract", w.Contract),
	}
	return r.run(ctx)
}

// validate returns all that is missing or wrong in the fields.
func (w *JobWorker) validate() error {
	var problems []error
	addProblem := func(bad bool, problem string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: %s", ErrInvalid, problem))
		}
	}
	addProblem(w.API == nil, "API is required")
	addProblem(w.Contract == "", "Contract is required")
	addProblem(len(w.Handlers) == 0, "Handlers are required")
	for _, queue := range slices.Sorted(maps.Keys(w.Handlers)) {
		problem := fmt.Sprintf("the handler of queue %q is required", queue)
		addProblem(w.Handlers[queue] == nil, problem)
	}
	addProblem(w.Concurrency < 0, "Concurrency is negative")
	addProblem(w.PollInterval < 0, "PollInterval is negative")
	addProblem(w.MaxHeartbeatInterval < 0, "MaxHeartbeatInterval is negative")
	return errors.Join(problems...)
}

// processName identifies this process among those of all hosts.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// JobRun is one run of a job, as its handler gets it. Its methods are safe for concurrent use.
// Once the run has ended they fail with [ErrRunLost] or [ErrRunFinished] and send nothing.
type JobRun struct {
	// Job is the job as it was claimed, with the state that an earlier run has stored.
	Job ClaimedJob

	attempt *attempt
	api     *WorkerAPI
}

// SetState sets a state, any JSON value, to be stored by the next heartbeat. It replaces a state
// that was not sent yet. The state is also stored when the handler fails. A state that the server
// refuses is logged and dropped.
//
// Errors: [ErrInvalid] if the state is not JSON.
func (r *JobRun) SetState(state json.RawMessage) error {
	if r.attempt == nil {
		return errDetachedJob()
	}
	return r.attempt.stage(state)
}

// SaveState stores a state at once, with a heartbeat of its own, and returns when the server has
// it. After a retryable error the state is sent with the next heartbeat.
//
// Errors: those of [WorkerAPI.Heartbeat].
func (r *JobRun) SaveState(ctx context.Context, state json.RawMessage) error {
	if r.attempt == nil {
		return errDetachedJob()
	}
	return r.attempt.save(ctx, state)
}

// Release releases the job and ends the run, without counting an attempt where the contract allows
// that (G-X-18). The result of the handler is then ignored; its context continues until it
// returns.
//
// Errors: those of [WorkerAPI.Release], after which the run continues.
func (r *JobRun) Release(ctx context.Context) error {
	if r.attempt == nil {
		return errDetachedJob()
	}
	return r.attempt.finish(ctx, func(ctx context.Context) error {
		return r.api.Release(ctx, r.Job.RunID)
	})
}

// FinishWith ends the run by something else than a request of the worker: by a transaction of the
// handler's own, see package pgtx. end records the end of the run and commits it. The worker sends
// nothing about the run while end runs, so end should be short against the lease, and nothing after
// end has returned nil: the result of the handler is then ignored. Its context continues until it
// returns.
//
// Errors: that of end, after which the run continues; with [ErrRunLost] it is lost.
func (r *JobRun) FinishWith(ctx context.Context, end func(context.Context) error) error {
	if r.attempt == nil {
		return errDetachedJob()
	}
	return r.attempt.finishWith(ctx, end)
}

// errDetachedJob is the error of a JobRun made by hand, as in the test of a handler: it has no
// lease.
func errDetachedJob() error { return invalid("job run", "not claimed by a JobWorker") }
