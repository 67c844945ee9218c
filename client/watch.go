package client

import (
	"context"
	"errors"
	"time"
)

// The pauses of watch grow from the first to the second.
const (
	minWatchPause = 50 * time.Millisecond
	maxWatchPause = 2 * time.Second
)

// watch polls until done is true of a value, and returns that. Retryable errors do not end it, so
// that it continues while the server is unavailable or limits requests; other errors do, and so
// does the end of the context.
func watch[T any](ctx context.Context, c *Client, op string, poll func() (T, error),
	done func(T) bool) (T, error) {
	pause := minWatchPause
	for {
		value, err := poll()
		var fail *Error
		switch {
		case err == nil:
			if done(value) {
				return value, nil
			}
		case !errors.As(err, &fail) || !fail.Retryable():
			var none T
			return none, err
		}
		minPause := time.Duration(0)
		if fail != nil {
			minPause = fail.RetryAfter
		}
		// The pause is random between its half and its whole, so that many callers spread out.
		if !sleep(ctx, minPause+pause/2+c.backoff.random(pause/2)) {
			return value, &Error{Op: op, Err: errors.Join(contextError(ctx), err)}
		}
		pause = min(pause*3/2, maxWatchPause)
	}
}
