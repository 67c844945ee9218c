package duty

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
)

// expire ends runs whose lease is over. It looks twice in the time that is
// promised, so that looking itself may take a while.
func (r *Runner) expire(ctx context.Context) {
	for {
		wait := engine.SweepEvery / 2
		if !r.did(ctx, "expire", drain(ctx, r.Engine.Expire)) {
			wait = engine.SweepEvery
		}
		if !pause(ctx, wait, nil) {
			return
		}
	}
}
