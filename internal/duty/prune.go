package duty

import (
	"context"
	"time"
)

// prune removes what need not be kept, in small batches.
func (r *Runner) prune(ctx context.Context) {
	every := r.PruneEvery
	if every <= 0 {
		every = time.Minute
	}
	for pause(ctx, every, nil) {
		r.did(ctx, "prune", drain(ctx, r.Engine.Prune))
	}
}
