package client

import (
	"context"
	"encoding/json"
	"time"
)

// source hands out leased work. It is what the runner needs of a contract.
type source interface {
	// claim leases up to max pieces of work, waiting up to wait for the first
	// one. None is no error. It tries once: the runner has its own backoff.
	claim(ctx context.Context, max int, wait time.Duration) ([]lease, error)
}

// lease is one piece of leased work, a single run of it.
type lease interface {
	// timeout is how long the lease lasts after it was given and after each
	// beat; 0 means that beats cannot prolong it.
	timeout() time.Duration
	// logAttrs names the run in the log.
	logAttrs() []any
	// handle runs the caller's handler.
	handle(ctx context.Context, a *attempt) error
	// heartbeat prolongs the lease and stores the state unless it is nil. It fails
	// with ErrRunLost when the lease is no longer held; cancel asks the run to
	// end, though it is.
	heartbeat(ctx context.Context, state json.RawMessage) (cancel bool, err error)
	// complete ends the lease with success. May run again.
	complete(ctx context.Context) error
}

// failureReporter is a lease whose contract wants to hear of failures. Others are left
// to their timeout.
type failureReporter interface {
	// report ends the lease of a handler that has failed; cause is why its
	// context had ended by then, nil if it had not. May run again.
	report(ctx context.Context, failure, cause error) error
}

// releaser is a lease that can be given back unharmed.
type releaser interface {
	// release ends the lease as if it had not been. May run again.
	release(ctx context.Context) error
}

// endObserver is a lease that is told when nothing more will be done about it.
type endObserver interface{ runOver() }
