package maintenance

import (
	"context"
	"time"
)

// gaugeInterval bounds how late a node learns that another paused or limited a
// queue.
const gaugeInterval = time.Second

// gauge takes in what other nodes set for queues.
func (r *Runner) gauge(ctx context.Context) {
	for {
		r.report(ctx, "gauge", r.Engine.LoadQueues(ctx))
		if !sleep(ctx, gaugeInterval, nil) {
			return
		}
	}
}
