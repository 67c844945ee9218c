package maintenance

import (
	"context"
	"time"
)

// refreshInterval bounds how late a node learns what another node has written, where the
// announcement of it was lost.
const refreshInterval = time.Second

// refresh loads the queue settings of other nodes, and looks for messages in the outbox.
func (r *Runner) refresh(ctx context.Context) {
	for {
		r.report(ctx, "refresh", r.Engine.Refresh(ctx))
		if !sleep(ctx, refreshInterval, nil) {
			return
		}
	}
}
