package forgerun_test

import (
	"testing"
	"time"
)

// TestLogRequests: requests and changes of state keep their fields, and are Info or Debug as
// it is set; a job that fails is more than that either way.
func TestLogRequests(t *testing.T) {
	t.Parallel()
	for level, set := range map[string]bool{"INFO": true, "DEBUG": false} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			c := config()
			c.LogRequests = set
			w := inMemory(t, c)
			who := w.customer(t)
			well, ill := who.submit(t, submitBody("SUCCESS_FAST")),
				who.submit(t, submitBody("FAIL_IMMEDIATE"))
			for range 2 {
				w.claimAndRun(t)
				w.clock.Advance(time.Minute)
			}
			who.wantState(t, well, "SUCCEEDED")
			who.wantState(t, ill, "FAILED")
			lines := func(members map[string]any) int { return len(w.log.Lines(t, members)) }
			assertEqual(t, "FR-215 requests",
				lines(map[string]any{"msg": "request", "level": level, "status": 202.0}), 2)
			assertEqual(t, "FR-219 ends",
				lines(map[string]any{"msg": "job", "level": level, "job_id": well,
					"next_state": "SUCCEEDED"}), 1)
			assertEqual(t, "FR-220 failures",
				lines(map[string]any{"msg": "job", "level": "WARN", "job_id": ill,
					"next_state": "FAILED"}), 1)
		})
	}
}
