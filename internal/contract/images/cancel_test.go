package images_test

import (
	"testing"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/testkit"
)

// TestCancel: RT-003: a job that waits for another attempt is given up; in any other status a
// cancel is a conflict that changes nothing.
func TestCancel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		cancel := func(id string) testkit.Reply {
			return w.Do(t, "POST", "/images/v1/jobs/"+id+"/cancel", "")
		}
		id := w.put(t, pngOf(t, 9, 9)).JobID
		cancel(id).WantError(t, 409, "CONFLICT")
		j := w.mustClaim(t, id)
		cancel(id).WantError(t, 409, "CONFLICT")
		w.status(t, id, "processing")
		if err := w.end(j, images.FailureOutcome(j, "the disk is unavailable", "storage_error",
			true)); err != nil {
			t.Fatal(err)
		}
		cancel(id).WantStatus(t, 200)
		w.status(t, id, "failed")
		cancel(id).WantError(t, 409, "CONFLICT")
		cancel("00000000-0000-4000-8000-000000000000").WantError(t, 404, "JOB_NOT_FOUND")
		cancel("x").WantError(t, 404, "JOB_NOT_FOUND")
	})
}
