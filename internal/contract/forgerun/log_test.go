package forgerun_test

import (
	"testing"
	"time"
)

// TestLogRequests: requests and transitions keep their fields, and are INFO or DEBUG as it is set.
// A failed attempt with retries left is INFO either way, and the last one is WARN.
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
			failures := func(level string) int {
				return lines(map[string]any{"msg": "job", "level": level, "job_id": ill,
					"next_state": "FAILED", "error_code": "simulated_failure",
					"error_message": "the work kind fails by design"})
			}
			assertEqual(t, "FR-220 failed attempts", failures("INFO"), 1)
			assertEqual(t, "FR-220 failures for good", failures("WARN"), 0)
			for range c.MaxRetries {
				who.retry(t, ill)
				w.clock.Advance(time.Hour)
				w.claimAndRun(t)
			}
			who.wantState(t, ill, "FAILED")
			assertEqual(t, "FR-220 failed attempts", failures("INFO"), c.MaxRetries)
			assertEqual(t, "FR-220 failures for good", failures("WARN"), 1)
			for _, line := range w.log.Lines(t, map[string]any{"msg": "job"}) {
				for key, value := range line {
					if value == "" && key != "current_state" { // FR-219 has it in every line
						t.Errorf("%s is empty: %v", key, line)
					}
				}
			}
		})
	}
}
