package images_test

import (
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestWhy (AD-015): a job waits for its message while that is in the outbox, and then for a worker.
func TestWhy(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		id := w.put(t, pngOf(t, 9, 9)).JobID
		wants := func(codes ...job.ReasonCode) {
			t.Helper()
			why, err := w.engine.Why(t.Context(), w.state(t, id).Seq,
				engine.WhySources{Pollers: func(_ engine.RecordReader, contract,
					queue string) (job.Pollers, error) {
					return job.Pollers{}, nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			got := []job.ReasonCode{}
			for _, r := range why.Reasons {
				got = append(got, r.Code)
			}
			assertEqual(t, "the reasons", encoded(got), encoded(codes))
		}
		wants(job.ReasonNoWorkers, job.ReasonMessagePending)
		w.messages(t)
		wants(job.ReasonNoWorkers)
		w.mustClaim(t, id)
		wants(job.ReasonRunning)
	})
}
