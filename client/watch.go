package client

import (
	"context"
	"errors"
	"time"
)

// How often watch looks: soon at first, then ever more seldom.
const (
	waitFirst  = 50 * time.Millisecond
	waitSeldom = 2 * time.Second
)

// watch looks until what it sees is done. It goes on while the server is away
// or asks for patience; other errors, and the end of the context, end it.
func watch[T any](ctx context.Context, c *Client, op string, look func() (T, error), done func(T) bool) (T, error) {
	pause := waitFirst
	for {
		seen, err := look()
		if err == nil && done(seen) {
			return seen, nil
		}
		var fail *Error
		if err != nil && (!errors.As(err, &fail) || !fail.Retryable()) {
			var none T
			return none, err
		}
		least := time.Duration(0)
		if fail != nil {
			least = fail.RetryAfter
		}
		// Between half and all of the pause, so that many waits spread out.
		if !sleep(ctx, least+pause/2+c.backoff.random(pause/2)) {
			return seen, &Error{Op: op, Err: errors.Join(ended(ctx), err)}
		}
		pause = min(pause*3/2, waitSeldom)
	}
}
