package maintenance

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
)

// expire ends attempts whose lease has ended. It runs twice in the interval within which expiry is
// promised, so that the step itself may take some time.
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
