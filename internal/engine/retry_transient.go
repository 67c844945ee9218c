package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
)

// The pauses of RetryTransient.
const (
	minTransientPause = 5 * time.Millisecond
	maxTransientPause = time.Second
)

// RetryTransient repeats fn while the store is unavailable and returns its last error: nil, one
// that is not transient, or the one there was when ctx ended. fn must be safe to repeat, as every
// verb is that names a run.
func RetryTransient(ctx context.Context, fn func() error) error {
	backoff := clock.Backoff{Min: minTransientPause, Max: maxTransientPause}
	for {
		err := fn()
		if !IsTransient(err) || ctx.Err() != nil {
			return err
		}
		if !backoff.Sleep(ctx) {
			return err
		}
	}
}

// IsTransient reports whether an error may be gone at the next try; nil is none. An error that
// nobody has classified (Internal) counts as one, since what a driver says of a lost connection is
// not always known; repeating costs little, and giving up may cost the end of a run.
func IsTransient(err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Timeout, job.Aborted, job.Internal:
		return err != nil
	default:
		return false
	}
}
