package fetchbox

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/clock"
)

// storagePollInterval is the pause between two pings of an unavailable bucket.
const storagePollInterval = time.Second

// storage is the state of one bucket that the settings name, as this node sees it. In an outage of
// the bucket no download can be stored: an attempt that fails because of it is released and does
// not count, and the following attempts wait before they ask an origin for anything.
//
//	an attempt cannot store ─► ping ─ no answer ─► unavailable, the attempt is released
//	later attempts ─► awaitStorage: one of them pings every second, the others wait for it
//	                                   └─ answer ─► available, all of them continue
//
// Leases are renewed during the wait, so a long outage costs neither attempts nor lost workers.
type storage struct {
	bucket      string
	unavailable atomic.Bool
	polling     chan struct{} // holds one token: one of the waiting attempts polls for all
}

// storages are the buckets that the settings name, the default bucket first. Each is there once,
// whatever the number of job types that store in it.
func storages(types map[string]*Type) []*storage {
	names := []string{""}
	for _, t := range types {
		names = append(names, t.Bucket)
	}
	slices.Sort(names)
	var all []*storage
	for _, name := range slices.Compact(names) {
		s := &storage{bucket: name, polling: make(chan struct{}, 1)}
		s.polling <- struct{}{}
		all = append(all, s)
	}
	return all
}

// storageOf is the state of a bucket. A bucket that only a task names need not exist at all: it
// shares the state of the default bucket, so a task that cannot be stored in it fails instead of
// waiting for it.
func (f *FetchBox) storageOf(bucket string) *storage {
	i := slices.IndexFunc(f.storages, func(s *storage) bool { return s.bucket == bucket })
	return f.storages[max(0, i)]
}

// pingStorage pings all buckets that the settings name. It fails also while the storage is refused
// because it is not the database's.
func (f *FetchBox) pingStorage(ctx context.Context) error {
	if err := f.Binding.Check(); err != nil {
		return err
	}
	names := make([]string, len(f.storages))
	for i, s := range f.storages {
		names[i] = s.bucket
	}
	return f.Objects.Ping(ctx, names...)
}

// storageResponds pings a bucket and remembers whether it is available.
func (f *FetchBox) storageResponds(ctx context.Context, s *storage) bool {
	within, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	err := f.Objects.Ping(within, s.bucket)
	if ctx.Err() == nil { // otherwise the ping was interrupted and says nothing
		s.unavailable.Store(err != nil)
	}
	return err == nil
}

// awaitStorage returns when a bucket is available, or when ctx ends.
func (f *FetchBox) awaitStorage(ctx context.Context, s *storage) {
	for s.unavailable.Load() {
		select {
		case <-s.polling:
		case <-ctx.Done():
			return
		}
		f.pollStorage(ctx, s)
		s.polling <- struct{}{}
		if ctx.Err() != nil {
			return
		}
	}
}

// pollStorage pings a bucket that is still unavailable, and pauses if it does not respond.
func (f *FetchBox) pollStorage(ctx context.Context, s *storage) {
	if s.unavailable.Load() && !f.storageResponds(ctx, s) {
		clock.Sleep(ctx, storagePollInterval)
	}
}
