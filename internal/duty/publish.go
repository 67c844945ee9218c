package duty

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// publishEvery is how often the outbox is looked at for what other nodes put
// there; what this node does is told.
const publishEvery = 200 * time.Millisecond

// gatherTime is how long messages gather from the first on: each look at the
// outbox is a transaction that jobs have to wait for.
const gatherTime = 20 * time.Millisecond

// resignTime bounds the last step of a node that stops.
const resignTime = time.Second

// publish delivers what is in the outbox, in order, at least once.
func (r *Runner) publish(ctx context.Context) {
	if r.Deliver == nil {
		return
	}
	elected := false
	defer func() {
		if elected {
			r.resign(ctx)
		}
	}()
	deliver := func(ctx context.Context, batch []job.Message) error {
		elected = true
		return r.Deliver(ctx, batch)
	}
	for {
		wait, wake := publishEvery, r.Engine.Posted()
		if _, err := r.Engine.Publish(ctx, deliver); !r.did(ctx, "publish", err) {
			wait, wake = engine.SweepEvery, nil
		}
		if !pause(ctx, wait, wake) || !pause(ctx, gatherTime, nil) {
			return
		}
	}
}

// resign lets another node publish without waiting for the end of this one's
// term. Where it fails, that end comes.
func (r *Runner) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTime)
	defer cancel()
	_ = r.Engine.Resign(ctx)
}
