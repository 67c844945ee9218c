package fetchbox_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

// TestDeadLettersBeforeTheEnd stalls the streams: a job whose task is dead is not done before its
// dead letter can be listed.
func TestDeadLettersBeforeTheEnd(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newFetchWorldOn(t, p, assertNear())
		h := w.withRecordingHandler(nil)
		s := origin(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusForbidden)
		})
		id := w.submitTo(t, "default", resourcesOf(s.URL, 1)).JobID
		var stalled atomic.Bool
		stalled.Store(true)
		refused := make(chan struct{}, 1000)
		w.fetchbox.Publishing(func(next func(context.Context, []stream.Message) ([]uint64,
			error)) publisher {
			return func(ctx context.Context, messages []stream.Message) ([]uint64, error) {
				if stalled.Load() {
					select {
					case refused <- struct{}{}:
					default:
					}
					return nil, &job.Error{Kind: job.Unavailable, Op: "test",
						Msg: "the streams are stalled"}
				}
				return next(ctx, messages)
			}
		})
		w.live(t)
		testkit.WaitUntil(t, "the finalizer to have the job", func() bool {
			v := w.get(t, id)
			if v.Status != "queued" && v.Status != "in_progress" {
				t.Fatalf("the job is %s, and its dead letter is not published", v.Status)
			}
			j, err := w.engine.List(t.Context(), store.Filter{JobType: fetchbox.Name})
			return err == nil && len(j) == 1 && j[0].State == "listing"
		})
		testkit.Receive(t, "a batch that is refused", refused)
		assertEqual(t, "failed tasks", w.status(t, id, "in_progress").Failed, 1)
		assertEqual(t, "dead letters", len(w.deadLetters(t, "").Items), 0)
		assertEqual(t, "jobs that were finalized", len(h.finalized), 0)
		stalled.Store(false)
		assertEqual(t, "finalized status", h.wait(t).Status, "failed")
		assertEqual(t, "dead letters when the job is finalized", len(w.deadLetters(t, "").Items), 1)
		w.untilStatus(t, id, "failed")
	})
}
