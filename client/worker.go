package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Handler works on one run of a job. Nil completes the job; an error leaves it
// to its timeout, after which it is handed out again (RL-085).
//
// The context ends when the run is lost, with a cause that is [ErrRunLost], or
// when the worker's drain timeout is over, with [ErrDrainTimeout]; it does not
// end with the context given to [Worker.Run], but has its values. After a loss
// the job may already be at work elsewhere, and what the handler returns counts
// for nothing.
type Handler func(ctx context.Context, run *Run) error

// Middleware wraps a handler, for logging, tracing and the like. A panic
// passes through it; the worker recovers it outside of all middleware.
type Middleware func(Handler) Handler

// Typed makes a handler of one that takes the payload decoded from JSON into a
// T. Numbers in members of type any are json.Number, so none is rounded. A
// payload that does not decode is an error of the handler: the job is handed
// out again until its retries are used up.
func Typed[T any](handle func(ctx context.Context, run *Run, payload T) error) Handler {
	return func(ctx context.Context, run *Run) error {
		var payload T
		if err := decodeExact(run.Job.Payload, &payload); err != nil {
			return fmt.Errorf("payload: %w", err)
		}
		return handle(ctx, run, payload)
	}
}

// Worker runs a handler for the jobs of one Relay queue. Relay, Queue and
// Handler are needed. The fields must not change while it runs.
type Worker struct {
	// Relay is where the jobs come from.
	Relay *Relay
	// Queue is the queue's name.
	Queue string
	// Concurrency is how many handlers run at once, and so the most jobs this
	// worker ever holds. Zero means 1.
	Concurrency int
	// Handler does the work.
	Handler Handler
	// Middleware wraps the handler; the first is the outermost.
	Middleware []Middleware
	// PollWait is how long the server is asked to hold back an empty answer, at
	// most 30 s (G-RL-30). Zero means 30 s, a negative value not at all.
	PollWait time.Duration
	// PollInterval is the least time between polls that bring nothing: all
	// there is against spinning where the server does not wait. Zero means 1 s.
	PollInterval time.Duration
	// MaxHeartbeatInterval bounds the time between heartbeats, which is a third
	// of the job's timeout. A handler learns from them that its job was deleted
	// or replaced; set it to learn sooner under long timeouts. Zero sets no
	// bound.
	MaxHeartbeatInterval time.Duration
	// DrainTimeout is how long handlers may go on after the context of Run has
	// ended. Zero means 25 s; a negative value ends their contexts at once.
	DrainTimeout time.Duration
	// Logger gets failures and losses, and at the level debug each job that is
	// started and completed. Nil discards them.
	Logger *slog.Logger
}

// Run works until ctx ends, then drains: it stops polling and lets running
// handlers finish, beating for them, for DrainTimeout; then it ends their
// contexts and waits for them to return. Nothing is left running after it. A
// poll that is under way when ctx ends has half a second to bring its answer,
// whose jobs are still done. It is cut off then: jobs handed out in that very
// moment return by their timeout.
//
// Per job it beats at a third of the timeout (RL-058), sending along the state
// set meanwhile. With timeout 0 the lease cannot be prolonged (RL-090), and it
// beats each second only to notice the loss. A run is lost when a heartbeat is
// answered 404 (RL-054) or when none was confirmed for a whole timeout. A lost
// run is never completed. When a handler returns nil the job is completed,
// tried for as long as its lease lasts, at most a minute.
//
// While the server answers errors it polls again after growing, random waits,
// no sooner than Retry-After says. Errors of single jobs are logged.
//
// It returns nil after a drain in which all handlers finished,
// [ErrDrainTimeout] when some had to be ended, and [ErrInvalid] at once when
// the worker is not fit to run.
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
	r := runner{
		source:               &relaySource{relay: w.Relay, queue: w.Queue, handler: handler},
		slots:                make(slots, orDefault(w.Concurrency, 1)),
		pollWait:             max(orDefault(w.PollWait, 30*time.Second), 0),
		pollPause:            orDefault(w.PollInterval, time.Second),
		drainTimeout:         orDefault(w.DrainTimeout, 25*time.Second),
		maxHeartbeatInterval: w.MaxHeartbeatInterval,
		backoff:              w.Relay.client.backoff,
		log:                  logger.With("queue", w.Queue),
	}
	return r.run(ctx)
}

func (w *Worker) validate() error {
	var problems []error
	complain := func(bad bool, problem string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: %s", ErrInvalid, problem))
		}
	}
	complain(w.Relay == nil, "Relay is missing")
	complain(w.Queue == "", "Queue is missing")
	complain(w.Handler == nil, "Handler is missing")
	complain(w.Concurrency < 0, "Concurrency is negative")
	complain(w.PollInterval < 0, "PollInterval is negative")
	complain(w.MaxHeartbeatInterval < 0, "MaxHeartbeatInterval is negative")
	return errors.Join(problems...)
}

// Run is one run of a job in the hands of a handler. Its methods are safe for
// concurrent use. Once the run is over they fail with [ErrRunLost] or
// [ErrRunSettled] and send nothing.
type Run struct {
	// Job is the job as it was handed out, with the state that an earlier run
	// has left (RL-057).
	Job RelayJob

	attempt *attempt
	relay   *Relay
}

// SetState puts a state, any JSON value, up for the next heartbeat, in place of
// one still waiting. It also goes out when the handler fails, but not when it
// succeeds: the job is then gone. A state that the server refuses is logged
// and dropped.
//
// Errors: [ErrInvalid] if it is not JSON.
func (r *Run) SetState(state json.RawMessage) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.stage(state)
}

// SaveState stores a state at once, by a heartbeat of its own (RL-052), and
// returns when the server has it. After a failure that may pass it stays up
// for the next heartbeat.
//
// Errors: those of [Relay.Heartbeat].
func (r *Run) SaveState(ctx context.Context, state json.RawMessage) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.save(ctx, state)
}

// Requeue puts jobs in the place of this one and ends the run (RL-059). The
// worker will not complete it; the handler's context goes on until it returns.
// To run again later, give run.Job.RelaySpec with another RunAt (RL-070).
//
// Errors: those of [Relay.Requeue]; the run then goes on.
func (r *Run) Requeue(ctx context.Context, jobs []RelaySpec, mode RelayMode) error {
	if r.attempt == nil {
		return errDetached()
	}
	return r.attempt.finish(ctx, func(ctx context.Context) error {
		return r.relay.Requeue(ctx, r.Job.Run(), jobs, mode)
	})
}

// errDetached: a Run made by hand, as in a handler's own test, has a Job but
// no lease.
func errDetached() error { return invalid("relay run", "not handed out by a Worker") }
