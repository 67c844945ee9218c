package relay_test

import (
	"strings"
	"testing"
	"time"
)

// TestReasonsOfFailures is G-RL-37: a worker reports with a last heartbeat why its run has failed.
func TestReasonsOfFailures(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("the_reason_is_that_of_the_dead_letter", func(t *testing.T) {
			w.put(t, jobBody("reason", "1", `"timeout":60,"max_retries":0,"state":{"step":1}`))
			v := w.claim(t, "reason")
			w.clock.Advance(40 * time.Second)
			wantKnown(t, w.runs(t, heartbeats,
				runEntry(v, `"error":"no such mailbox","error_type":"SMTPError"`)), true)
			got := w.get(t, "reason", "1")
			assertEqual(t, "state", string(got.State), `{"step":1}`)
			assertEqual(t, "run", *got.RunID, *v.RunID)
			w.clock.Advance(20 * time.Second) // the lease was not extended
			w.runMaintenance(t)
			w.wantGone(t, "reason", "1")
			if log := w.log.String(); strings.Contains(log, "timed out") {
				t.Errorf("the log says that a run which has failed timed out: %s", log)
			}
			deadLetter := w.deadLetters(t, "reason", "").Items[0]
			assertEqual(t, "error", deadLetter.Error, "no such mailbox")
			assertEqual(t, "state", string(deadLetter.State), `{"step":1}`)
		})
		t.Run("a_state_is_stored_too_and_a_later_heartbeat_extends", func(t *testing.T) {
			w.put(t, jobBody("both", "1", `"timeout":60`))
			v := w.claim(t, "both")
			w.clock.Advance(59 * time.Second)
			wantKnown(t, w.runs(t, heartbeats, runEntry(v, `"state":2,"error":"no"`),
				runEntry(v, `"error":null`), runEntry(v, `"error":""`)), true, true, true)
			w.clock.Advance(59 * time.Second)
			w.runMaintenance(t)
			assertEqual(t, "state", string(w.get(t, "both", "1").State), "2")
			w.heartbeat(t, v, "").WantStatus(t, 202)
		})
		t.Run("an_earlier_attempt_is_named", func(t *testing.T) {
			w.put(t, jobBody("earlier", "1", `"timeout":60,"max_retries":1`))
			wantKnown(t, w.runs(t, heartbeats,
				runEntry(w.claim(t, "earlier"), `"error":"the first"`)), true)
			w.clock.Advance(time.Minute)
			w.runMaintenance(t)
			w.claim(t, "earlier")
			w.clock.Advance(time.Minute)
			w.runMaintenance(t)
			assertEqual(t, "error", w.deadLetters(t, "earlier", "").Items[0].Error,
				"no heartbeat within 60 s in attempt 2; attempt 1 failed: the first")
		})
		t.Run("any_text_is_kept_and_a_long_one_is_cut", func(t *testing.T) {
			w.put(t, jobBody("text", "1", `"timeout":60,"max_retries":0`))
			wantKnown(t, w.runs(t, heartbeats, runEntry(w.claim(t, "text"),
				`"error":"a\u0000\ud800`+strings.Repeat("ü", 20<<10)+`"`)), true)
			w.clock.Advance(time.Minute)
			w.runMaintenance(t)
			text := w.deadLetters(t, "text", "").Items[0].Error
			if !strings.HasPrefix(text, "a\uFFFD\uFFFDüü") || len(text) > 16<<10 {
				t.Errorf("the error has %d bytes and begins with %.20q", len(text), text)
			}
		})
		t.Run("lost_or_wrong", func(t *testing.T) {
			w.put(t, jobBody("wrong", "1"))
			v := w.claim(t, "wrong")
			w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
			wantKnown(t, w.runs(t, heartbeats, runEntry(v, `"error":"late"`)), false)
			for _, members := range []string{`"error":7`, `"error":"e","error_type":[]`,
				`"error_type":5`} {
				w.Do(t, "POST", heartbeats, "["+runEntry(v)+","+runEntry(v, members)+"]",
					beyondDocument, "1").WantStatus(t, 400).WantErrorText(t, "run 1: error")
			}
			wantKnown(t, w.runs(t, completions, runEntry(v, `"error":7`)), false)
		})
	})
}
