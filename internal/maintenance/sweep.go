package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
)

// stuckPause is how long to wait before the next step when a job that is due cannot be promoted, or
// an attempt whose lease has ended cannot be expired.
const stuckPause = 200 * time.Millisecond

// sweep promotes waiting jobs that are due and expires attempts whose lease has ended. Between
// steps it sleeps until the first of both, or until a job that is due earlier is submitted. Where
// nothing is due within the horizon it sleeps until Refresh finds something, and reads nothing.
func (r *Runner) sweep(ctx context.Context) {
	for stuck := 0; ; {
		next, err := r.sweepDue(ctx)
		wake := r.Engine.DueChanged()
		if !r.report(ctx, "sweep", err) {
			next, wake = engine.SweepInterval, nil
		}
		// A job that is due and was not moved twice in a row is locked by another transaction, held
		// back by a limit or kept after a jump of the clock: a pause keeps this from being a
		// busy loop.
		stuck++
		if next > 0 {
			stuck = 0
		}
		if stuck > 1 {
			next = stuckPause
		}
		if next == engine.DueHorizon {
			awaitSignal(ctx, wake)
		} else {
			clock.SleepOr(ctx, max(next, time.Millisecond), wake)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// sweepDue moves all jobs that are due, and returns the time until the next one is.
func (r *Runner) sweepDue(ctx context.Context) (time.Duration, error) {
	due, lease, err := r.Engine.NextDue(ctx)
	if err != nil {
		return 0, err
	}
	if min(due, lease) > 0 {
		return min(due, lease), nil
	}
	var expired, promoted error
	if lease <= 0 {
		expired = untilEmpty(ctx, r.Engine.Expire)
	}
	if due <= 0 {
		promoted = untilEmpty(ctx, r.Engine.Promote)
	}
	if err := errors.Join(expired, promoted); err != nil {
		return 0, err
	}
	due, lease, err = r.Engine.NextDue(ctx)
	return min(due, lease), err
}
