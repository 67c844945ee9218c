package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// The pauses of Persist.
const (
	leastPersist = 5 * time.Millisecond
	mostPersist  = time.Second
)

// Persist calls fn, again and again while the store is away, and returns its last
// error: nil, one that would be the same the next time, or whichever there was when
// ctx ended. fn must be safe to repeat, as everything is that names a run.
func Persist(ctx context.Context, fn func() error) error {
	pause := leastPersist
	for {
		err := fn()
		if err == nil || !passing(err) || ctx.Err() != nil {
			return err
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
		pause = min(2*pause, mostPersist)
	}
}

// passing reports an error that may not be there the next time.
func passing(err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Timeout, job.Aborted, job.Internal:
		return true
	default:
		return false
	}
}
