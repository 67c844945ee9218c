package fetchbox

import (
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/serial"
)

const (
	sweepEvery = time.Hour
	sweepFrom  = 2 * 24 * time.Hour // older manifests were looked at before
	sweepTo    = time.Hour          // younger ones may be on their way
	sweepPage  = 200
)

// runSweeper deletes manifests without a job, every sweepEvery until ctx ends.
func (f *FetchBox) runSweeper(ctx context.Context) {
	f.every(ctx, sweepEvery, "sweep", f.sweep)
}

// runPruner deletes messages past their age, every PruneInterval until ctx ends (G-FB-40).
func (f *FetchBox) runPruner(ctx context.Context) {
	f.every(ctx, f.PruneInterval, "prune of the streams", f.Streams.Prune)
}

// every runs do at once and then after each interval, until ctx ends.
func (f *FetchBox) every(ctx context.Context, interval time.Duration, what string,
	do func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	loop := outage.Loop{Log: f.Log, What: what}
	for {
		loop.Did(ctx, do(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes the manifests of submits that failed in the middle (G-FB-02). Ids follow time, so those of a stretch of
// time are listed without looking at others.
func (f *FetchBox) sweep(ctx context.Context) error {
	now, from := f.Now(), sweepFrom
	if f.LedgerRetention > 0 {
		from = min(from, f.LedgerRetention) // the job of an older one may be pruned
	}
	for name := range f.types {
		prefix := manifestPrefix + name + "/"
		after, end := prefix+serial.Floor(now.Add(-from)), prefix+serial.Floor(now.Add(-sweepTo))
		for {
			found, err := f.Objects.List(ctx, "", prefix, after, sweepPage)
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
			if len(keys) < sweepPage {
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
		if id, ok := serial.Parse(name); ok {
			ids = append(ids, idOf(id))
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
