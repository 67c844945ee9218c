package fetchbox

import (
	"context"
	"iter"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// exportPageSize is how many jobs are read at a time, each page from a snapshot of its own.
const exportPageSize = 500

// View reads a store.
type View func(context.Context, func(store.Reader) error) error

// Export reads the ledger in a store, as operators see it and the newest first, of the jobs created
// at or after from and before a time; zero times are no bounds. Each job that is there throughout
// comes exactly once, as it was when its page was read. It ends with the first error (FB-093).
func Export(ctx context.Context, view View, from, before time.Time) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := store.Search{Contract: Name, PriorityMin: defaultPriority,
			PriorityMax: defaultPriority, CreatedFrom: from,
			CreatedBefore: before, Limit: exportPageSize}
		for {
			var jobs []*job.Job
			err := view(ctx, func(r store.Reader) (err error) {
				jobs, err = r.Search(s)
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, j := range jobs {
				o := strictjson.NewObject(make([]byte, 0, 512))
				snapshot(&o, j)
				if !yield(o.End(), nil) {
					return
				}
				s.AfterTime, s.AfterKey = j.CreatedAt, j.ID.Key
			}
			if len(jobs) < exportPageSize {
				return
			}
		}
	}
}
