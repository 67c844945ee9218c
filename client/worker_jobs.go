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
	"time"
)

// JobHandler works on one run of a job. With nil the job is completed, and the
// result, any JSON or nil for none, is kept with it. An error fails the run:
// the contract tries the job again as its policy says, or not at all if the
// error is a [JobError] that is Final. An error that is [ErrRelease] gives the
// job back instead.
//
// The context ends when the run is lost, with the cause [ErrRunLost]; when the
// server asks the run to end, with [ErrRunCanceled]; and when the worker's
// drain timeout is over, with [ErrDrainTimeout]. It does not end with the
// context given to [JobWorker.Run], but has its values. An error returned after
// [ErrDrainTimeout] gives the job back without counting a failure, unless it is
// Final (G-TF-30).
type JobHandler func(ctx context.Context, run *JobRun) (result json.RawMessage, err error)

// JobMiddleware wraps a handler, for logging, tracing and the like. A panic
// passes through it; the worker recovers it outside of all middleware.
type JobMiddleware func(JobHandler) JobHandler

// JobError is an error of a handler with what the contract should know of it.
type JobError struct {
	// Err is the explanation; needed.
	Err error
	// Type is a word for the kind of failure, of up to 255 characters; empty
	// for none.
	Type string
	// Final says that no other run can succeed.
	Final bool
}

// Error gives the explanation.
func (e *JobError) Error() string { return fmt.Sprint(e.Err) }

// Unwrap gives the cause.
func (e *JobError) Unwrap() error { return e.Err }

// Final marks an error of a handler as one that no other run can mend: the job
// fails for good (G-TF-30). Nil stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	var jobErr *JobError
	if errors.As(err, &jobErr) {
		return &JobError{Err: err, Type: jobErr.Type, Final: true}
	}
	return &JobError{Err: err, Final: true}
}

// TypedJob makes a handler of one that takes the payload decoded from JSON into
// a P and returns a result to encode. Numbers in members of type any are
// json.Number, so none is rounded. A payload that does not decode, and a result
// that does not encode, fail the job for good, with the types "payload" and
// "result".
func TypedJob[P, R any](handle func(ctx context.Context, run *JobRun, payload P) (R,
	error)) JobHandler {
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

// JobWorker runs handlers for the jobs of one contract, over the worker API.
// API, Contract and Handlers are needed. The fields must not change while it
// runs.
type JobWorker struct {
	// API is where the jobs come from.
	API *WorkerAPI
	// Contract is whose jobs are run, such as [ContractTaskFlow].
	Contract string
	// Handlers do the work, by queue. The worker asks for jobs of these queues
	// alone; with one under "" it asks for those of all queues, and that
	// handler gets what no other does.
	Handlers map[string]JobHandler
	// Middleware wraps every handler; the first is the outermost.
	Middleware []JobMiddleware
	// Name tells the server who works. Empty means host name and process id.
	Name string
	// Concurrency is how many handlers run at once, and so the most jobs this
	// worker ever holds. Zero means 1.
	Concurrency int
	// PollWait is how long the server is asked to hold back an empty answer, at
	// most 30 s. Zero means 30 s, a negative value not at all.
	PollWait time.Duration
	// PollInterval is the least time between polls that bring nothing. Zero
	// means 1 s.
	PollInterval time.Duration
	// MaxHeartbeatInterval bounds the time between heartbeats, which is a third
	// of the lease. Handlers learn from them that their run was lost or is
	// asked to end. Zero sets no bound.
	MaxHeartbeatInterval time.Duration
	// DrainTimeout is how long handlers may go on after the context of Run has
	// ended. Zero means 25 s; a negative value ends their contexts at once.
	DrainTimeout time.Duration
	// AfterRun, when set, hears of each run when nothing more will be done
	// about it: its outcome was taken, or given up. It is called by several
	// goroutines.
	AfterRun func(ClaimedJob)
	// Logger gets failures and losses, and at the level debug each job that is
	// started and completed. Nil discards them.
	Logger *slog.Logger
}

// Run works until ctx ends, then drains: it stops polling and lets running
// handlers finish, beating for them, for DrainTimeout; then it ends their
// contexts, waits for them to return and gives their jobs back. Nothing is left
// running after it. A poll that is under way when ctx ends has half a second to
// bring its answer, and the jobs in it are given back. It is cut off then: jobs
// handed out in that very moment return when their lease is over.
//
// Per run it beats at a third of the lease, sending along the state set
// meanwhile. A run is lost when the server says so or when no heartbeat was
// confirmed for a whole lease; nothing is said about it then. Outcomes are
// tried for as long as the lease lasts, at most a minute; those of runs that end
// at about the same time go in one request, as by [WorkerAPI.Finish], except in
// Images. A panic is a failure of the type "panic" that may be retried.
//
// While the server answers errors it polls again after growing, random waits,
// no sooner than Retry-After says. Errors of single jobs are logged.
//
// It returns nil after a drain in which all handlers finished,
// [ErrDrainTimeout] when some had to be ended, and [ErrInvalid] at once when
// the worker is not fit to run.
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
	if handlers[""] == nil {
		query.Queues = slices.Sorted(maps.Keys(handlers))
	}
	r := runner{
		source: &jobSource{api: w.API, outcomes: outcomeSender{api: w.API},
			query: query, handlers: handlers, afterRun: w.AfterRun},
		slots:                make(slots, orDefault(w.Concurrency, 1)),
		pollWait:             min(max(orDefault(w.PollWait, 30*time.Second), 0), 30*time.Second),
		pollPause:            orDefault(w.PollInterval, time.Second),
		drainTimeout:         orDefault(w.DrainTimeout, 25*time.Second),
		maxHeartbeatInterval: w.MaxHeartbeatInterval,
		backoff:              w.API.client.backoff,
		log:                  logger.With("contract", w.Contract),
	}
	return r.run(ctx)
}

func (w *JobWorker) validate() error {
	var problems []error
	complain := func(bad bool, problem string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: %s", ErrInvalid, problem))
		}
	}
	complain(w.API == nil, "API is missing")
	complain(w.Contract == "", "Contract is missing")
	complain(len(w.Handlers) == 0, "Handlers are missing")
	for queue, handler := range w.Handlers {
		complain(handler == nil, fmt.Sprintf("the handler of queue %q is missing", queue))
	}
	complain(w.Concurrency < 0, "Concurrency is negative")
	complain(w.PollInterval < 0, "PollInterval is negative")
	complain(w.MaxHeartbeatInterval < 0, "MaxHeartbeatInterval is negative")
	return errors.Join(problems...)
}

// processName tells processes apart.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// JobRun is one run of a job in the hands of a handler. Its methods are safe
// for concurrent use. Once the run is over they fail with [ErrRunLost] or
// [ErrRunSettled] and send nothing.
type JobRun struct {
	// Job is the job as it was handed out, with the state that an earlier run
	// has left.
	Job ClaimedJob

	attempt *attempt
	api     *WorkerAPI
}

// SetState puts a state, any JSON value, up for the next heartbeat, in place of
// one still waiting. It also goes out when the handler fails. A state that the
// server refuses is logged and dropped.
//
// Errors: [ErrInvalid] if it is not JSON.
func (r *JobRun) SetState(state json.RawMessage) error {
	if r.attempt == nil {
		return invalid("job run", "not handed out by a JobWorker")
	}
	return r.attempt.stage(state)
}

// SaveState stores a state at once, by a heartbeat of its own, and returns when
// the server has it. After a failure that may pass it stays up for the next
// heartbeat.
//
// Errors: those of [WorkerAPI.Heartbeat].
func (r *JobRun) SaveState(ctx context.Context, state json.RawMessage) error {
	if r.attempt == nil {
		return invalid("job run", "not handed out by a JobWorker")
	}
	return r.attempt.save(ctx, state)
}

// Release gives the job back and ends the run, without counting it where the
// contract allows that (G-X-18). What the handler then returns counts for
// nothing; its context goes on until it returns.
//
// Errors: those of [WorkerAPI.Release]; the run then goes on.
func (r *JobRun) Release(ctx context.Context) error {
	if r.attempt == nil {
		return invalid("job run", "not handed out by a JobWorker")
	}
	return r.attempt.finish(ctx, func(ctx context.Context) error {
		return r.api.Release(ctx, r.Job.RunID)
	})
}
