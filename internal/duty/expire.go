package duty

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
)

// expire ends runs whose lease is over. It looks twice in the time that is
// promised, so that looking itself may take a while.
func (r *Runner) expire(ctx context.Context) {
	for {
		r.did(ctx, "expire", drain(ctx, r.Engine.Expire))
		if !pause(ctx, engine.SweepEvery/2, nil) {
			return
		}
	}
}
