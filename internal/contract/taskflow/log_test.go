package taskflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
)

// TestLog: a job that fails for good can be found in the log, and those that depend on it do not
// flood it.
func TestLog(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	lines := func(members map[string]any, want ...string) {
		t.Helper()
		found := w.log.Lines(t, members)
		assertEqual(t, "lines", len(found), len(want))
		for i := range min(len(found), len(want)) {
			if got, _ := found[i]["error_message"].(string); got != want[i] {
				t.Errorf("line %d: got %q, want %q", i, got, want[i])
			}
		}
	}
	a := w.create(t, attempts(2, "FIXED", 5, 5)).ID
	b := w.create(t, dependenciesMember(a)).ID
	w.create(t, dependenciesMember(a))
	w.create(t, dependenciesMember(b))
	try := func(n int) map[string]any {
		return map[string]any{"level": "DEBUG", "msg": "an attempt of a job failed", "job_id": a,
			"queue": "q", "attempt": float64(n)}
	}
	failed := map[string]any{"level": "WARN", "msg": "a job failed for good", "job_id": a,
		"queue": "q", "attempt": float64(2)}
	w.fail(t, a, true)
	lines(try(1), "broken: it broke")
	lines(failed)
	w.clock.Advance(5 * time.Second)
	w.claimAndStart(t, a)
	w.clock.Advance(lease)
	w.runMaintenance(t)
	const silent = "lost: the lease expired before the worker sent a heartbeat or an outcome"
	lines(failed, silent)
	lines(map[string]any{"level": "INFO", "msg": "jobs are blocked by a failed job",
		"jobs": float64(3)}, "")
	lines(map[string]any{"level": "WARN"}, silent)
	lines(map[string]any{"level": "INFO"}, "")

	long := w.create(t).ID
	j := w.claimAndStart(t, long)
	w.finish(t, j, taskflow.FailureOutcome(j, strings.Repeat("ö", 20_000), "", false))
	lines(map[string]any{"level": "WARN", "job_id": long, "attempt": float64(1)},
		strings.Repeat("ö", 250)+"…")
}
