package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// A runner is made for any contract. These interfaces are what it needs of one: [Worker] gives it
// the source of a Relay queue, [JobWorker] the source of a contract behind the worker API.

// source claims jobs.
type source interface {
	// claim leases up to max jobs and waits up to wait for the first one. None is no error. It
	// makes one try, because the runner has its own backoff. The error is errDrained where the
	// worker gets no further jobs.
	claim(ctx context.Context, max int, wait time.Duration) ([]lease, error)
}

// errDrained means that an operator has drained the worker: it gets no further jobs.
var errDrained = errors.New("the worker is drained")

// lease is one claimed job, under the run id of its claim.
type lease interface {
	// timeout is how long the lease lasts after the claim and after each heartbeat; 0 means that
	// heartbeats cannot extend it.
	timeout() time.Duration
	// logAttrs identifies the run in the log.
	logAttrs() []any
	// handle calls the handler.
	handle(ctx context.Context, a *attempt) error
	// heartbeat extends the lease and stores the state unless that is nil. It fails with
	// ErrRunLost when the lease has ended. cancel is true when the server asks the run to end
	// although it still has its lease.
	heartbeat(ctx context.Context, state json.RawMessage) (cancel bool, err error)
	// complete ends the lease with success. A result that the server refuses ends it with a
	// failure; refused is then the refusal. It may be called again after an error other than
	// ErrRunLost. It may bring the next lease in the place of this one, also of one that is lost,
	// if mayClaim reports true when the request is sent; nil is none, and the worker polls.
	complete(ctx context.Context, mayClaim func() bool) (next lease, refused, err error)
	// report reports why a handler has failed. cause is the cause of its context if that had ended
	// before the handler returned, else nil. The lease ends by it, but in a contract where a failed
	// job returns when its lease expires. It may be called again after an error.
	report(ctx context.Context, failure, cause error) error
	// release returns what gives the job back without an attempt counted, which may be called again
	// after an error. It is nil in a contract where a failed job returns when its lease expires.
	release() func(ctx context.Context) error
	// runFinished is called when nothing more will be sent about the run, with the reason why the
	// job was not completed; nil if it was, or if its handler has ended the run.
	runFinished(reason error)
}
