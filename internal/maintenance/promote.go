package maintenance

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
)

// backpressurePause is how often jobs are looked at that are due and cannot go on.
const backpressurePause = 200 * time.Millisecond

// promote lets jobs become ready when their time comes: it sleeps until the
// next is due, or until something due earlier is submitted.
func (r *Runner) promote(ctx context.Context) {
	for held := 0; ; {
		err := untilEmpty(ctx, r.Engine.Promote)
		next := engine.SweepInterval
		if err == nil {
			next, err = r.Engine.NextDue(ctx)
		}
		wake := r.Engine.DueChanged()
		if !r.report(ctx, "promote", err) {
			next, wake = engine.SweepInterval, nil
		}
		// What is due and was not promoted, twice in a row, is in another
		// transaction's hands or held back by a limit.
		if held++; next > 0 {
			held = 0
		}
		if held > 1 {
			next = backpressurePause
		}
		if !sleep(ctx, max(next, time.Millisecond), wake) {
			return
		}
	}
}
