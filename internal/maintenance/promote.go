package maintenance

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
)

// backpressurePause is how long to wait before the next step when due jobs cannot be promoted.
const backpressurePause = 200 * time.Millisecond

// promote makes waiting jobs ready when they are due. Between steps it sleeps until the next job is
// due, or until a job that is due earlier is submitted.
func (r *Runner) promote(ctx context.Context) {
	for stuck := 0; ; {
		next, err := r.promoteDue(ctx)
		wake := r.Engine.DueChanged()
		if !r.report(ctx, "promote", err) {
			next, wake = engine.SweepInterval, nil
		}
		// A job that is due and was not promoted twice in a row is locked by another
		// transaction or held back by a limit: a pause keeps this from being a busy loop.
		stuck++
		if next > 0 {
			stuck = 0
		}
		if stuck > 1 {
			next = backpressurePause
		}
		if !sleep(ctx, max(next, time.Millisecond), wake) {
			return
		}
	}
}

// promoteDue promotes all jobs that are due, and returns the time until the next one is.
func (r *Runner) promoteDue(ctx context.Context) (time.Duration, error) {
	if err := untilEmpty(ctx, r.Engine.Promote); err != nil {
		return 0, err
	}
	return r.Engine.NextDue(ctx)
}
