package duty

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
)

// promote lets jobs become ready when their time comes: it sleeps until the
// next is due, or until something due earlier is submitted.
func (r *Runner) promote(ctx context.Context) {
	for {
		err := drain(ctx, r.Engine.Promote)
		next := engine.SweepEvery
		if err == nil {
			next, err = r.Engine.NextDue(ctx)
		}
		wake := r.Engine.Nudged()
		if !r.did(ctx, "promote", err) {
			next, wake = engine.SweepEvery, nil
		}
		// What is due and was not promoted is in another transaction's hands.
		if !pause(ctx, max(next, time.Millisecond), wake) {
			return
		}
	}
}
