package object

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/job"
)

// A copy of a bucket goes on where one that was stopped has ended, as objects that are there are
// left out. It is no snapshot: keys are listed while others may write. Whoever needs one copies
// twice or stops the writers.

const (
	copyPage    = 1000 // keys that are listed at a time
	copyWorkers = 8    // objects that are copied at the same time
)

// Copy copies the objects of a bucket into the same bucket of another storage, but for those that
// are there already: with the same size, and written after the original. The node's own objects
// stay out, as each storage has a marker of its own. Each object is reported with its size,
// concurrently, and whether it was copied. Objects that are written meanwhile may be missing.
func Copy(ctx context.Context, from, to *Objects, bucket string,
	report func(bytes int64, isNew bool)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := make(chan string)
	var workers sync.WaitGroup
	for range copyWorkers {
		workers.Go(func() {
			for key := range keys {
				if err := copyObject(ctx, from, to, bucket, key, report); err != nil {
					cancel(fmt.Errorf("object %s: %w", from.URI(bucket, key), err))
				}
			}
		})
	}
	err := listAll(ctx, from, bucket, keys)
	close(keys)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// listAll sends all keys of a bucket but those of the node's own objects.
func listAll(ctx context.Context, from *Objects, bucket string, keys chan<- string) error {
	after := ""
	for {
		page, err := from.List(ctx, bucket, "", after, copyPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, key := range page {
			if strings.HasPrefix(key, reservedPrefix) {
				continue
			}
			select {
			case keys <- key:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		after = page[len(page)-1]
	}
}

// copyObject copies one object.
func copyObject(ctx context.Context, from, to *Objects, bucket, key string,
	report func(int64, bool)) error {
	body, info, err := from.Open(ctx, bucket, key)
	if err != nil {
		return err
	}
	defer body.Close()
	there, has, err := to.Open(ctx, bucket, key)
	switch {
	case job.IsKind(err, job.NotFound):
	case err != nil:
		return err
	default:
		there.Close()
		// Times have steps: of two that are equal nobody knows which came first.
		isCopied := (has.Size == info.Size) && has.Modified.After(info.Modified)
		if isCopied {
			report(info.Size, false)
			return nil
		}
	}
	stored, err := to.Put(ctx, bucket, key, body, info.Attributes)
	if err != nil {
		return err
	}
	if stored.Size != info.Size {
		return errors.New("it has changed while it was copied")
	}
	report(info.Size, true)
	return nil
}
