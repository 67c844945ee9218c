package maintenance

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
)

// expire ends runs whose lease is over. It looks twice in the time that is
// promised, so that looking itself may take a while.
func (r *Runner) expire(ctx context.Context) {
	for {
		wait := engine.SweepInterval / 2
		if !r.report(ctx, "expire", untilEmpty(ctx, r.Engine.Expire)) {
			wait = engine.SweepInterval
		}
		if !sleep(ctx, wait, nil) {
			return
		}
	}
}
