package client

import (
	"context"
	"errors"
	"time"
)

// The requests that report the outcome of a run are tried until the server gives a definite answer,
// instead of Retry.MaxTries: a server that is away, or asks to try again, gives no job to another
// worker. The context of such a request has the outage of the worker, which logs the failures.

// maxOutcomePause is the longest pause between two tries to report an outcome, beside Retry-After:
// it has to reach a server that is back before the lease ends.
const maxOutcomePause = 2 * time.Second

type outcomeTriesKey struct{}

// withOutcomeTries returns a context whose calls report an outcome.
func withOutcomeTries(ctx context.Context, outage *serverOutage) context.Context {
	return context.WithValue(ctx, outcomeTriesKey{}, outage)
}

// withoutOutcomeTries returns a context whose calls are tried as Retry says, and whose failures are
// not reported to the outage: for calls that others follow in any case.
func withoutOutcomeTries(ctx context.Context) context.Context {
	return withOutcomeTries(ctx, nil)
}

// outcomeTriesOf returns the outage that withOutcomeTries has set; nil for calls that report no
// outcome.
func outcomeTriesOf(ctx context.Context) *serverOutage {
	outage, _ := ctx.Value(outcomeTriesKey{}).(*serverOutage)
	return outage
}

// isDefinite reports whether the error of a request is an answer that another try would get too. No
// answer and one that is ErrRetryable are not: they say nothing about the run.
func isDefinite(err error) bool { return statusOf(err) != 0 && !errors.Is(err, ErrRetryable) }
