package fetchbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
)

// TestRetrySettings: a task keeps the attempts and delays of the settings it was made with.
func TestRetrySettings(t *testing.T) {
	t.Parallel()
	c := config()
	c.MaxAttempts = 4
	w := inMemory(t, c)
	r := w.submit(t, manifest(1))
	c.MaxAttempts, c.BackoffBase = 1, time.Minute
	changed := w.node(t, c)
	again := fetchbox.BrokenOutcome("HTTP_503", true, 0)

	failing := func(what string, delays ...time.Duration) {
		t.Helper()
		for i, delay := range delays {
			changed.awaitEnd(t, r.JobID, again)
			task := changed.all(t, fetchbox.Tasks)[0]
			assertEqual(t, fmt.Sprintf("%s: the delay after failure %d", what, i+1),
				task.DueAt.Sub(w.clock.Now()), delay)
			w.clock.Advance(delay)
			changed.sweep(t)
		}
	}
	state := func() job.State { return changed.all(t, fetchbox.Tasks)[0].State }

	failing("a task from before the change", time.Second, 2*time.Second, 4*time.Second)
	changed.awaitEnd(t, r.JobID, again)
	assertEqual(t, "after four failures", state(), "dead")

	changed.deliver(t)
	c.MaxAttempts = 3
	w.node(t, c).replay(t, changed.deadLetters(t, "").Items[0].Offset).WantStatus(t, 202)
	failing("a replay", time.Minute, 2*time.Minute)
	changed.awaitEnd(t, r.JobID, again)
	assertEqual(t, "after three more failures", state(), "dead")
}
