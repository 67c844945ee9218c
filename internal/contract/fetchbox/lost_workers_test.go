package fetchbox_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
)

// expireRun claims the only task of a job and lets its lease expire.
func (w *world) expireRun(t testing.TB, jobID string) *job.Job {
	t.Helper()
	j := w.claimOnly(t, jobID)
	w.clock.Advance(lease + time.Second)
	w.sweep(t)
	return j
}

// TestLostWorkers: a task whose worker was lost is claimed again at once and has the tries it
// had before. A number of its own bounds that.
func TestLostWorkers(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		again := fetchbox.BrokenOutcome("HTTP_503", true, 0)
		t.Run("FB-087 G-FB-43 lost runs use up no try", func(t *testing.T) {
			r := w.submit(t, manifest(1))
			for range maxLostRuns - 1 {
				assertEqual(t, "failures", w.expireRun(t, r.JobID).FailedAttempts, 0)
			}
			for range tries - 1 {
				w.awaitEnd(t, r.JobID, again)
				w.clock.Advance(time.Hour)
				w.sweep(t)
			}
			w.awaitEnd(t, r.JobID, storedOutcome)
			w.status(t, r.JobID, "completed")
		})
		t.Run("G-FB-43 FB-057 FB-084 the last of them is the end", func(t *testing.T) {
			r := w.submit(t, manifest(1))
			w.awaitEnd(t, r.JobID, again)
			w.clock.Advance(time.Hour)
			w.sweep(t)
			for n := range maxLostRuns {
				w.status(t, r.JobID, "in_progress")
				assertEqual(t, "lost before", w.expireRun(t, r.JobID).LostAttempts, n)
			}
			assertEqual(t, "last error", w.status(t, r.JobID, "in_progress").LastError.Code,
				"SYSTEM_WORKER_LOST")
			w.deliver(t)
			last := w.deadLetters(t, "").Items[0]
			assertEqual(t, "code", last.Code, "SYSTEM_WORKER_LOST")
			assertEqual(t, "attempts", last.Attempts, 2)
			t.Run("G-FB-37 replay gives as many again", func(t *testing.T) {
				w.replay(t, last.Offset).WantStatus(t, 202)
				for range maxLostRuns - 1 {
					w.expireRun(t, r.JobID)
				}
				w.awaitEnd(t, r.JobID, storedOutcome)
				w.status(t, r.JobID, "completed")
			})
		})
	})
}
