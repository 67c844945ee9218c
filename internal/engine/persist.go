package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
)

// The pauses of Persist.
const (
	minPersistPause = 5 * time.Millisecond
	maxPersistPause = time.Second
)

// Persist repeats fn while the store is unavailable and returns its last error: nil, one that is
// not transient, or the one there was when ctx ended. fn must be safe to repeat, as every verb is
// that names a run.
func Persist(ctx context.Context, fn func() error) error {
	backoff := clock.Backoff{Min: minPersistPause, Max: maxPersistPause}
	for {
		err := fn()
		if !isTransient(err) || ctx.Err() != nil {
			return err
		}
		if !backoff.Sleep(ctx) {
			return err
		}
	}
}

// isTransient reports whether an error may be gone at the next try; nil is none.
func isTransient(err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Timeout, job.Aborted, job.Internal:
		return err != nil
	default:
		return false
	}
}
