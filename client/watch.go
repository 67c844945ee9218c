package client

import (
	"context"
	"errors"
	"time"
)

// How often watch looks: soon at first, then ever more seldom.
const (
	minWatchPause = 50 * time.Millisecond
	maxWatchPause = 2 * time.Second
)

// watch looks until what it sees is done. It goes on while the server is away
// or asks for patience; other errors, and the end of the context, end it.
func watch[T any](ctx context.Context, c *Client, op string, poll func() (T, error),
	done func(T) bool) (T, error) {
	pause := minWatchPause
	for {
		value, err := poll()
		if err == nil && done(value) {
			return value, nil
		}
		var fail *Error
		if err != nil && (!errors.As(err, &fail) || !fail.Retryable()) {
			var none T
			return none, err
		}
		minPause := time.Duration(0)
		if fail != nil {
			minPause = fail.RetryAfter
		}
		// Between half and all of the pause, so that many waits spread out.
		if !sleep(ctx, minPause+pause/2+c.backoff.random(pause/2)) {
			return value, &Error{Op: op, Err: errors.Join(contextError(ctx), err)}
		}
		pause = min(pause*3/2, maxWatchPause)
	}
}
