package fetchbox

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/outage"
)

// limitRetryInterval is between tries to set the limits.
const limitRetryInterval = 5 * time.Second

// runLimits bounds the downloads of each job type over all nodes (FB-074), once the store takes it.
func (f *FetchBox) runLimits(ctx context.Context) {
	limits := map[string]int{}
	for name, t := range f.types {
		if t.MaxParallel > 0 {
			limits[name] = t.MaxParallel
		}
	}
	tries := outage.Loop{Log: f.Log, Name: "limits of downloads"}
	for {
		err := f.engine.LimitQueues(ctx, Tasks, limits)
		if tries.Report(ctx, err); err == nil {
			return
		}
		if !clock.Sleep(ctx, limitRetryInterval) {
			return
		}
	}
}
