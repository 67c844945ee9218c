package fetchbox

import (
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/uuids"
)

const (
	sweepInterval = time.Hour
	sweepMaxAge   = 2 * 24 * time.Hour // older manifests were looked at before
	sweepMinAge   = time.Hour          // younger ones may be on their way
	sweepPageSize = 200
)

// runSweeper deletes manifests without a job, every sweepInterval until ctx ends.
func (f *FetchBox) runSweeper(ctx context.Context) {
	f.runEvery(ctx, sweepInterval, "sweep", f.sweep)
}

// runPruner deletes messages past their age, every PruneInterval until ctx ends (G-FB-40).
func (f *FetchBox) runPruner(ctx context.Context) {
	f.runEvery(ctx, f.PruneInterval, "prune of the streams", f.Streams.Prune)
}

// runEvery runs do at once and then after each interval, until ctx ends.
func (f *FetchBox) runEvery(ctx context.Context, interval time.Duration, what string,
	do func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	loop := outage.Loop{Log: f.Log, Name: what}
	for {
		loop.Report(ctx, do(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes the manifests of submits that failed in the middle (G-FB-02). Ids follow time, so
// those of a stretch of time are listed without looking at others.
func (f *FetchBox) sweep(ctx context.Context) error {
	now, from := f.Now(), sweepMaxAge
	if f.LedgerRetention > 0 {
		from = min(from, f.LedgerRetention) // the job of an older one may be pruned
	}
	for name := range f.types {
		prefix := manifestPrefix + name + "/"
		after, end := prefix+uuids.LowerBound(now.Add(-from)),
			prefix+uuids.LowerBound(now.Add(-sweepMinAge))
		for {
			found, err := f.Objects.List(ctx, "", prefix, after, sweepPageSize)
			if err != nil {
				return err
			}
			var keys []string
			for _, key := range found {
				if key < end {
					keys = append(keys, key)
				}
			}
			if err := f.sweepKeys(ctx, prefix, keys); err != nil {
				return err
			}
			if len(keys) < sweepPageSize {
				break
			}
			after = keys[len(keys)-1]
		}
	}
	return nil
}

// sweepKeys removes those of the manifests whose job does not exist.
func (f *FetchBox) sweepKeys(ctx context.Context, prefix string, keys []string) error {
	var ids []job.ID
	of := map[string]string{} // job to manifest
	for _, key := range keys {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		if id, ok := uuids.Parse(name); ok {
			ids = append(ids, engineJobID(id))
			of[id] = key
		}
	}
	jobs, err := f.engine.GetAll(ctx, ids)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		delete(of, j.ID.Key)
	}
	for _, key := range of {
		if err := f.Objects.Delete(ctx, "", key); err != nil {
			return err
		}
	}
	return nil
}
