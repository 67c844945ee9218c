package duty

import (
	"context"
	"time"
)

// gaugeEvery bounds how late a node learns that another paused or limited a
// queue.
const gaugeEvery = time.Second

// gauge takes in what other nodes set for queues.
func (r *Runner) gauge(ctx context.Context) {
	for {
		r.did(ctx, "gauge", r.Engine.LoadQueues(ctx))
		if !pause(ctx, gaugeEvery, nil) {
			return
		}
	}
}
