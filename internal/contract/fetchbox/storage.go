package fetchbox

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/clock"
)

// storagePollInterval is between two looks at a bucket that is away.
const storagePollInterval = time.Second

// storage is what this node knows of one bucket that the settings name. While it is away nothing
// that is downloaded can be kept there: a try that has met it is put back without being counted,
// and the next ones wait before they ask an origin for anything.
type storage struct {
	bucket      string
	unavailable atomic.Bool
	polling     chan struct{} // holds one: of all that wait, one looks
}

// storages are the buckets that the settings name, the default one first.
func storages(types map[string]Type) []*storage {
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

// storageOf is where a bucket's objects go. Of one that only a task names nobody knows that it
// should be there: a task that cannot be stored in it fails, and does not wait.
func (f *FetchBox) storageOf(bucket string) *storage {
	i := slices.IndexFunc(f.storages, func(s *storage) bool { return s.bucket == bucket })
	return f.storages[max(0, i)]
}

// pingStorage asks for all buckets that the settings name.
func (f *FetchBox) pingStorage(ctx context.Context) error {
	if err := f.Shared.Check(); err != nil {
		return err
	}
	names := make([]string, len(f.storages))
	for i, s := range f.storages {
		names[i] = s.bucket
	}
	return f.Objects.Ping(ctx, names...)
}

// storageResponds asks for the bucket.
func (f *FetchBox) storageResponds(ctx context.Context, s *storage) bool {
	within, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	err := f.Objects.Ping(within, s.bucket)
	if ctx.Err() == nil { // else it has not been asked to the end
		s.unavailable.Store(err != nil)
	}
	return err == nil
}

// awaitStorage returns when the bucket is there, at once where nobody has found it away, or when
// ctx ends.
func (f *FetchBox) awaitStorage(ctx context.Context, s *storage) {
	for s.unavailable.Load() {
		select {
		case <-s.polling:
		case <-ctx.Done():
			return
		}
		is := !s.unavailable.Load() || f.storageResponds(ctx, s) || clock.Sleep(ctx, storagePollInterval)
		s.polling <- struct{}{}
		if !is {
			return // ctx has ended
		}
	}
}
