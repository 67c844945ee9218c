package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Handler executes one run of a job of Relay; [JobHandler] is for those of the other contracts.
// When it returns nil the job is completed. When it returns an error, the job returns to its queue
// after its timeout (RL-085), and operators and its dead letter have the error (G-RL-37).
//
// The context ends when the run is lost, with a cause that is [ErrRunLost], and when the drain
// timeout of the worker has passed, with the cause [ErrDrainTimeout]. It has the values of the
// context given to [Worker.Run] but does not end with it. After a loss another worker may already
// have the job, and the result of the handler is ignored.
type Handler func(ctx context.Context, run *Run) error

// Middleware wraps a handler, for example to log or trace its runs. Panics pass through it: the
// worker recovers them outside of all middleware.
type Middleware func(Handler) Handler

// Typed makes a [Handler] of a function that takes the payload, decoded from JSON, as a T. Numbers
// in fields of type any become json.Number, so that none is rounded. A payload that does not
// decode is an error of the handler: the job returns until its retries are used up.
func Typed[T any](handle func(ctx context.Context, run *Run, payload T) error) Handler {
	return func(ctx context.Context, run *Run) error {
		var payload T
		if err := decodeExact(run.Job.Payload, &payload); err != nil {
			return fmt.Errorf("payload: %w", err)
		}
		return handle(ctx, run, payload)
	}
}

// Worker claims the jobs of one Relay queue and runs a handler for each. The workers of all other
// contracts are a [JobWorker]. Relay, Queue and Handler are required. The fields must not change
// while it runs.
type Worker struct {
	// Relay is the contract to claim jobs from.
	Relay *Relay
	// Queue is the queue's name.
	Queue string
	// Name identifies the worker to the server, in up to 255 bytes. Empty means host name and
	// process id (AD-040).
	Name string
	// Concurrency limits the handlers that run at once, and so the jobs that this worker has
	// claimed. Zero means 1.
	Concurrency int
	// Handler is called for every job.
	Handler Handler
	// Middleware wraps the handler; the first is the outermost.
	Middleware []Middleware
	// PollWait is how long the server may wait for a job before it answers that there is none, at
	// most 30 s (G-RL-30). Zero means 30 s; with a negative value the server answers at once.
	PollWait time.Duration
	// PollInterval is the least time between two polls that bring no job. It keeps the worker from
	// polling in a tight loop when the server does not wait. Zero means 1 s.
	PollInterval time.Duration
	// MaxHeartbeatInterval limits the time between heartbeats, which is a third of the job's
	// timeout. A handler learns from its heartbeats that its job was deleted or replaced; set
	// this for it to learn that earlier under long timeouts. Zero means no limit.
	MaxHeartbeatInterval time.Duration
	// DrainTimeout is how long handlers may continue after the context of Run has ended. Zero
	// means 25 s; a negative value ends their contexts at once.
	DrainTimeout time.Duration
	// Kill, when set, ends a drain early: when it ends, the worker stops, and the contexts of the
	// handlers end with the cause of Kill and [ErrDrainTimeout], as after DrainTimeout.
	Kill context.Context
	// AfterRun, when set, is called for each run when nothing more will be sent about it, with the
	// reason why the job was not completed: nil if it was, or its handler has ended the run.
	// Several goroutines call it.
	AfterRun func(RelayJob, error)
	// Logger gets what the worker waits for when it starts, failures and lost runs and, at level
	// debug, each job that was started and completed. Nil discards them.
	Logger *slog.Logger
}

// Run claims and executes jobs until ctx ends, and drains then: it stops polling and lets running
// handlers finish under their heartbeats. After DrainTimeout it ends their contexts and waits for
// them to return. No goroutine is left when it returns. The poll that is under way when ctx ends
// may take half a second more, and its jobs are executed; then it is cut off, and jobs that were
// claimed in that moment return after their timeout.
//
// Each job gets a heartbeat at every third of its timeout (RL-058), which also stores the state
// that the handler has set meanwhile. A lease of timeout 0 cannot be extended (RL-090); its
// heartbeats, one a second, only detect the loss of the run. A run is lost when a heartbeat is
// answered with 404 (RL-054), when the server has refused all of them for a whole timeout, such as
// for a wrong token, or when the answer to its completion says so (G-RL-36), as when the server was
// away for longer than the timeout. A lost run is never completed: its job runs again.
//
// Runs that end at about the same time are completed in one request, and heartbeats that are due
// together and have no state share one too, as with [Relay.CompleteAll] and [Relay.HeartbeatAll].
// None waits for others. While all handlers of the worker are in use, a completion also claims the
// next job (G-RL-35), which saves a poll. With a server that does not have these requests each run
// has its own, and polls bring all jobs.
//
// Time in which the server cannot be reached, or asks to try again ([ErrRetryable]: Relay answers
// 429 while its store is unavailable), does not count: it gives no job to another worker then.
// Handlers go on, and a completion is tried until the server gives a definite answer; after a stop,
// until 10 s after DrainTimeout. The log gets one line when the server begins to fail requests, and
// one when it answers again.
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
func (w *Worker) Run(ctx context.Context) error {
	if err := w.validate(); err != nil {
		return &Error{Op: "relay worker", Err: err}
	}
	handler := w.Handler
	for i := len(w.Middleware) - 1; i >= 0; i-- {
		handler = w.Middleware[i](handler)
	}
	logger := w.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	name := orDefault(w.Name, processName())
	source := newRelaySource(w.Relay, w.Queue, name, handler, w.AfterRun)
	defer source.wait()
	concurrency := orDefault(w.Concurrency, 1)
	logStart(logger, w.Relay.client, "relay", w.Queue, name, concurrency)
	r := runner{
		source:               source,
		slots:                make(slots, concurrency),
		pollWait:             max(orDefault(w.PollWait, 30*time.Second), 0),
		pollPause:            orDefault(w.PollInterval, time.Second),
		drainTimeout:         orDefault(w.DrainTimeout, 25*time.Second),
		kill:                 w.Kill,
		maxHeartbeatInterval: w.MaxHeartbeatInterval,
		backoff:              w.Relay.client.backoff,
		log:                  logger.With("queue", w.Queue),
	}
	return r.run(ctx)
}

// logStart logs what a worker waits for.
func logStart(log *slog.Logger, server *Client, contract, queues, worker string, concurrency int) {
	log.Info("waiting for jobs", "contract", contract, "queues", queues, "server", server.address(),
		"concurrency", concurrency, "worker", worker)
}

// validate returns all that is missing or wrong in the fields.
func (w *Worker) validate() error {
	var problems []error
	addProblem := func(bad bool, problem string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: %s", ErrInvalid, problem))
		}
	}
	addProblem(w.Relay == nil, "Relay is required")
	addProblem(w.Queue == "", "Queue is required")
	addProblem(w.Handler == nil, "Handler is required")
	addProblem(w.Concurrency < 0, "Concurrency is negative")
	addProblem(w.PollInterval < 0, "PollInterval is negative")
	addProblem(w.MaxHeartbeatInterval < 0, "MaxHeartbeatInterval is negative")
	return errors.Join(problems...)
}

// Run is one run of a job of Relay, as its handler gets it; a [JobRun] is one of another contract.
// Its methods are safe for concurrent use. Once the run has ended they fail with [ErrRunLost] or
// [ErrRunFinished] and send nothing.
type Run struct {
	// Job is the job as it was claimed, with the state that an earlier run has stored (RL-057).
	Job RelayJob

	attempt *attempt
	relay   *Relay
}

// SetState sets a state, any JSON value, to be stored by the next heartbeat. It replaces a state
// that was not sent yet. The state is also stored when the handler fails, but not when it
// succeeds, as the job is removed then. A state that the server refuses is logged and dropped.
//
// Errors: [ErrInvalid] if the state is not JSON.
func (r *Run) SetState(state json.RawMessage) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.stage(state)
}

// SaveState stores a state at once, with a heartbeat of its own (RL-052), and returns when the
// server has it. After a retryable error the state is sent with the next heartbeat.
//
// Errors: those of [Relay.Heartbeat].
func (r *Run) SaveState(ctx context.Context, state json.RawMessage) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.save(ctx, state)
}

// Requeue replaces this job by others and ends the run (RL-059). The worker will not complete it;
// the handler's context continues until the handler returns. To run the same job again later,
// pass run.Job.RelaySpec with another RunAt (RL-070).
//
// Errors: those of [Relay.Requeue], after which the run continues; [ErrRunLost] when the run is
// lost, so that nothing was stored.
func (r *Run) Requeue(ctx context.Context, jobs []RelaySpec, mode RelayMode) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.finish(ctx, func(ctx context.Context) error {
		err := r.relay.requeue(ctx, r.Job.Run(), jobs, mode)
		var fail *Error
		if errors.As(err, &fail) && fail.Uncertain {
			return withoutRunLost(err) // an earlier try has requeued it
		}
		return err
	})
}

// FinishWith ends the run by something else than a request of the worker: by a transaction of the
// handler's own, see package pgtx. end records the end of the run and commits it. The worker sends
// nothing about the run while end runs, so end should be short against the job's timeout, and
// nothing after end has returned nil. The handler's context continues until the handler returns.
//
// Errors: that of end, after which the run continues; with [ErrRunLost] it is lost.
func (r *Run) FinishWith(ctx context.Context, end func(context.Context) error) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.finishWith(ctx, end)
}

// errDetached is the error of a Run made by hand, as in the test of a handler: it has no lease.
func errDetached() error { return invalid("relay run", "not claimed by a Worker") }
