package fetchbox

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/telemetry"
)

// limitPause is between tries to set the limits.
const limitPause = 5 * time.Second

// runLimits bounds the downloads of each job type over all nodes (FB-074), once the store takes it.
func (f *FetchBox) runLimits(ctx context.Context) {
	limits := map[string]int{}
	for name, t := range f.types {
		if t.MaxParallel > 0 {
			limits[name] = t.MaxParallel
		}
	}
	for {
		err := f.engine.LimitQueues(ctx, Tasks, limits)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			f.Log.Warn("the limits of downloads could not be set; they will be", telemetry.ErrorMessage, err)
		}
		if !pause(ctx, limitPause) {
			return
		}
	}
}
