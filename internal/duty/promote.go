package duty

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
)

// heldPause is how often jobs are looked at that are due and cannot go on.
const heldPause = 200 * time.Millisecond

// promote lets jobs become ready when their time comes: it sleeps until the
// next is due, or until something due earlier is submitted.
func (r *Runner) promote(ctx context.Context) {
	for held := 0; ; {
		err := drain(ctx, r.Engine.Promote)
		next := engine.SweepEvery
		if err == nil {
			next, err = r.Engine.NextDue(ctx)
		}
		wake := r.Engine.Nudged()
		if !r.did(ctx, "promote", err) {
			next, wake = engine.SweepEvery, nil
		}
		// What is due and was not promoted, twice in a row, is in another
		// transaction's hands or held back by a limit.
		if held++; next > 0 {
			held = 0
		}
		if held > 1 {
			next = heldPause
		}
		if !pause(ctx, max(next, time.Millisecond), wake) {
			return
		}
	}
}
