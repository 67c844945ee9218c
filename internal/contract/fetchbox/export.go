package fetchbox

import (
	"context"
	"iter"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// exportPageSize is how many jobs are read in one transaction. One transaction for all would hold a
// snapshot of the store for as long as the export takes.
const exportPageSize = 500

// Export returns the jobs of the ledger as operators see them, the newest first (FB-093): those
// created at or after from and earlier than before; zero times are no bounds. A job that exists
// during the whole export is returned exactly once, as it was when its page was read. The first
// error ends the sequence. The command millrace export passes the view of the store itself, so that
// it also works beside a running server (G-FB-41).
func Export(ctx context.Context, view contract.View,
	from, before time.Time) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := store.Search{
			JobType:       Name,
			CreatedFrom:   from,
			CreatedBefore: before,
			Limit:         exportPageSize,
		}
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
				appendJob(&o, j)
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
