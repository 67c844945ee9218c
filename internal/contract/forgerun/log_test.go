package forgerun_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// TestRequestsInAnOutage checks that requests which fail while the store is unavailable keep the
// fields that the document requires, and leave the text of the driver to the line of the outage.
func TestRequestsInAnOutage(t *testing.T) {
	t.Parallel()
	c := config()
	c.LogRequests = true
	w, f := faultyWorld(t, c)
	who := w.customer(t)
	unavailable := &job.Error{Kind: job.Unavailable, Op: "store.begin",
		Msg: "the store is unavailable",
		Err: errors.New("dial tcp 10.1.2.3:5432")}
	f.failWrites(unavailable)
	for range 3 {
		who.Do(t, "POST", "/v1/jobs", submitBody("SUCCESS_FAST")).WantError(t, 503,
			"RFA_STORAGE_DB_ERROR")
	}
	assertEqual(t, "FR-215 FR-220 requests", len(w.log.Lines(t, map[string]any{"msg": "request",
		"level": "INFO", "status": 503.0, "action": "submit", "client_id": who.id,
		"error_code":    "RFA_STORAGE_DB_ERROR",
		"error_message": "store.begin: the store is unavailable"})), 3)
	f.failReads(unavailable)
	who.Do(t, "GET", "/v1/jobs", "").WantError(t, 503, "RFA_STORAGE_DB_ERROR")
	if strings.Contains(w.log.String(), "10.1.2.3") {
		t.Errorf("the driver's text is in the log: %s", w.log)
	}
}

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
