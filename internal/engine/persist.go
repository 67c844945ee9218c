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

// Persist calls fn, again and again while the store is away, and returns its last
// error: nil, one that would be the same the next time, or whichever there was when
// ctx ended. fn must be safe to repeat, as everything is that names a run.
func Persist(ctx context.Context, fn func() error) error {
	pause := minPersistPause
	for {
		err := fn()
		if err == nil || !isTransient(err) || ctx.Err() != nil {
			return err
		}
		if !clock.Sleep(ctx, pause) {
			return err
		}
		pause = min(2*pause, maxPersistPause)
	}
}

// isTransient reports an error that may not be there the next time.
func isTransient(err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Timeout, job.Aborted, job.Internal:
		return true
	default:
		return false
	}
}
