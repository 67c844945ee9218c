package maintenance

import (
	"context"
	"time"
)

// gaugeInterval bounds how late a node learns that another node has paused or limited a queue.
const gaugeInterval = time.Second

// gauge loads the queue settings that other nodes have stored.
func (r *Runner) gauge(ctx context.Context) {
	for {
		r.report(ctx, "gauge", r.Engine.LoadQueues(ctx))
		if !sleep(ctx, gaugeInterval, nil) {
			return
		}
	}
}
