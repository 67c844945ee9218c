package fetchbox

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// The sweep deletes manifests that have no job because their submit failed after it stored them. It
// lists those of a window of time: earlier sweeps have checked older ones, and the submit of a
// younger one may still be running. It runs on one elected node at a time.
const (
	sweepInterval = time.Hour
	sweepTerm     = sweepInterval * 9 / 10 // any node may be elected for the next sweep
	maxSweepAge   = 2 * 24 * time.Hour
	minSweepAge   = time.Hour
	sweepPageSize = 200
)

// runSweeper sweeps every sweepInterval until ctx ends.
func (f *FetchBox) runSweeper(ctx context.Context) {
	f.runEvery(ctx, sweepInterval, "sweep", f.sweep)
}

// runPruner prunes the streams every PruneInterval until ctx ends (G-FB-40).
func (f *FetchBox) runPruner(ctx context.Context) {
	f.runEvery(ctx, f.PruneInterval, "prune of the streams", f.Streams.Prune)
}

// runEvery runs do at once and then after each interval, until ctx ends. An error is logged and
// leaves the rest of the work to the next round.
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

// sweep removes the manifests of submits that failed halfway (G-FB-02), if this node is elected.
func (f *FetchBox) sweep(ctx context.Context) error {
	return f.Engine.AsLeader(ctx, "fetchbox.sweep", sweepTerm, f.sweepTypes)
}

// sweepTypes sweeps the manifests of all job types.
func (f *FetchBox) sweepTypes(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(f.types)) {
		if err := f.sweepType(ctx, manifestPrefix+name+"/"); err != nil {
			return err
		}
	}
	return nil
}

// sweepType sweeps the manifests of one job type. Ids, and so keys, are ordered by time. So the
// window is a range of the list, and nothing outside of it is read but the rest of its last page.
func (f *FetchBox) sweepType(ctx context.Context, prefix string) error {
	now, maxAge := f.Now(), maxSweepAge
	if f.LedgerRetention > 0 {
		maxAge = min(maxAge, f.LedgerRetention) // the job of an older manifest may be pruned
	}
	after := prefix + uuids.LowerBound(now.Add(-maxAge))
	end := prefix + uuids.LowerBound(now.Add(-minSweepAge))
	for {
		found, err := f.Objects.List(ctx, "", prefix, after, sweepPageSize)
		if err != nil {
			return err
		}
		keys := slices.DeleteFunc(found, func(key string) bool { return key >= end })
		if err := f.sweepKeys(ctx, prefix, keys); err != nil {
			return err
		}
		if len(keys) < sweepPageSize {
			return nil
		}
		after = keys[len(keys)-1]
	}
}

// sweepKeys deletes those manifests whose job does not exist. Keys without the id of a job are left
// alone, as FetchBox has not made them. The jobs of all keys are read before anything is deleted,
// so an error of the store deletes nothing.
func (f *FetchBox) sweepKeys(ctx context.Context, prefix string, keys []string) error {
	var ids []job.ID
	manifests := map[string]string{} // by job
	for _, key := range keys {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		if id, ok := uuids.Parse(name); ok {
			ids = append(ids, engineJobID(id))
			manifests[id] = key
		}
	}
	jobs, err := f.Engine.GetByIDs(ctx, ids, store.AllBodies)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		delete(manifests, j.ID.Key)
	}
	for _, key := range slices.Sorted(maps.Values(manifests)) {
		if err := f.Objects.Delete(ctx, "", key); err != nil {
			return err
		}
	}
	return nil
}
