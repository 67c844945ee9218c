package maintenance

import (
	"context"
	"time"
)

// prune deletes what is past its retention, in small batches.
func (r *Runner) prune(ctx context.Context) {
	every := r.PruneInterval
	if every <= 0 {
		every = time.Minute
	}
	for sleep(ctx, every, nil) {
		r.report(ctx, "prune", untilEmpty(ctx, r.Engine.Prune))
	}
}
