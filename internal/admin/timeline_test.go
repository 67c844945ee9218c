package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// timelineView is a timeline as it is answered.
type timelineView struct {
	Entries []struct {
		At             time.Time
		From, To       *time.Time
		Kind           string
		Text, Worker   *string
		RunID          *string `json:"run_id"`
		Lasted         *float64
		State, Outcome *string
		Error, Actor   *string
		Action, ID     *string
		Number         *int64
	}
	Truncated bool
}

// shown returns the entries of a kind, each as the given members, which are null as "-".
func (v *timelineView) shown(kind string) string {
	text := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	var all []string
	for _, e := range v.Entries {
		if e.Kind != kind {
			continue
		}
		switch kind {
		case "attempt":
			all = append(all, strings.Join([]string{text(e.Worker), text(e.Outcome),
				text(e.Error)}, " "))
		case "operator":
			all = append(all, text(e.Action))
		default:
			all = append(all, text(e.State))
		}
	}
	return strings.Join(all, "; ")
}

// timelineOf returns the timeline of a job, whose entries are in order.
func (w *jobsWorld) timelineOf(t *testing.T, number int64) *timelineView {
	t.Helper()
	v := get[timelineView](t, w.world, fmt.Sprintf("/admin/v1/jobs/%d/timeline", number))
	for i := range v.Entries {
		e := &v.Entries[i]
		if i > 0 && e.At.Before(v.Entries[i-1].At) {
			t.Errorf("AD-014 job %d: entry %d is before the one above it", number, i)
		}
		if (e.Kind == "attempt") != (e.From != nil) {
			t.Errorf("AD-014 job %d: entry %d is %+v", number, i, e)
		}
	}
	return &v
}

// wantShown fails unless the entries of kinds are as wanted.
func wantShown(t *testing.T, v *timelineView, want map[string]string) {
	t.Helper()
	for kind, shown := range want {
		if got := v.shown(kind); got != shown {
			t.Errorf("AD-014 %s: got %q, want %q", kind, got, shown)
		}
	}
}

// AD-014, G-AD-07: a job of TaskFlow with a dependency, a failed, a lost and a good attempt,
// progress and what an operator has done, with lengths in seconds. The read token sees no texts
// where it may not.
func TestTimelineOfTaskFlow(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
		j := w.submitJob(t, "taskflow", fmt.Sprintf(`{"name":"b","queue":"q","dependencies":[%q],
			"retry_policy":{"max_attempts":3,"backoff_strategy":"FIXED","base_delay_seconds":60,
			"max_delay_seconds":60}}`, first.ID), "")
		wantShown(t, w.timelineOf(t, j.Number), map[string]string{"submitted": "PENDING",
			"dependency": "READY", "attempt": "", "progress": ""})
		w.clock.Advance(90 * time.Second)
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Succeeded})
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Failed, Reason: "no answer",
			Failure: []byte(`{"error":"no answer"}`)})
		w.acted(t, j.Number, "run-now")
		w.claim(t, "taskflow")
		w.clock.Advance(2 * time.Minute)
		if _, err := w.engine.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.acted(t, j.Number, "run-now")
		run := w.claim(t, "taskflow")
		if _, err := w.engine.Heartbeat(t.Context(), run, []byte(`{"percent":50}`)); err != nil {
			t.Fatal(err)
		}
		v := w.timelineOf(t, j.Number)
		wantShown(t, v, map[string]string{"submitted": "PENDING", "dependency": "COMPLETED",
			"state": "READY; RUNNING; READY; RUNNING; READY; RUNNING",
			"attempt": "w failed no answer; w expired the worker was lost: its lease ended " +
				"without a heartbeat; w running -",
			"operator": "job.submit; job.run-now; job.run-now", "progress": "-"})
		lasted := map[string][]float64{}
		for _, e := range v.Entries {
			if e.Lasted != nil {
				lasted[e.Kind] = append(lasted[e.Kind], *e.Lasted)
			}
			if e.Kind == "attempt" && (e.RunID == nil || len(*e.RunID) != 36) {
				t.Errorf("AD-014 an attempt has the run id %v", e.RunID)
			}
			if e.Kind == "dependency" && (*e.Number != first.Number || *e.ID != first.ID) {
				t.Errorf("AD-014 the dependency is %+v", e)
			}
		}
		if len(lasted["attempt"]) != 2 || lasted["attempt"][1] < 119.99 ||
			lasted["submitted"][0] < 90 || lasted["dependency"][0] < 90 ||
			len(lasted["operator"])+len(lasted["progress"]) > 0 {
			t.Errorf("AD-014 the entries lasted %v", lasted)
		}
		w.api.ReadPayloads = false
		hidden := w.do(t, readToken, "GET", fmt.Sprintf("/admin/v1/jobs/%d/timeline", j.Number),
			"").WantStatus(t, 200)
		if !strings.Contains(hidden.Body, `"outcome":"failed","error":null`) ||
			strings.Contains(hidden.Body, "no answer") || strings.Contains(hidden.Body, "percent") {
			t.Errorf("G-AD-03 the read token sees %s", hidden.Body)
		}
	})
}

// AD-014: Relay keeps no history, so the timeline has the present attempt, and a job that is gone
// what its dead letter tells; a number that no job had is 404.
func TestTimelineOfRelay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		r := w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":0,
			"payload":1}`, "")
		w.claim(t, "relay")
		wantShown(t, w.timelineOf(t, r.Number), map[string]string{"submitted": "-",
			"attempt": "w running -", "operator": "job.submit"})
		w.clock.Advance(2 * time.Minute)
		if _, err := w.engine.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := w.timelineOf(t, r.Number)
		wantShown(t, v, map[string]string{"submitted": "-", "state": "-",
			"attempt": "w expired the worker was lost: its lease ended without a heartbeat"})
		w.submitJob(t, "relay", `{"queue":"q","id":"2","timeout":60,"max_retries":1,"payload":1}`, "")
		w.giveUp(t)
		w.giveUp(t)
		last := w.deadLetters(t, "", 2).Items[1].Number
		v = w.timelineOf(t, last)
		text := ""
		for _, e := range v.Entries {
			if e.Kind == "attempt" {
				text += *e.Text
			}
		}
		if text != "attempt 2 by w expired; earlier attempts are not kept" {
			t.Errorf("AD-014 the attempts are %q", text)
		}
		for _, path := range []string{"999", "0", "x"} {
			w.do(t, w.api.Token(), "GET", "/admin/v1/jobs/"+path+"/timeline", "").WantError(t, 404,
				"NOT_FOUND")
		}
	})
}

// publish publishes what waits in the outbox of ForgeRun.
func (w *hooksWorld) publish(t *testing.T) {
	t.Helper()
	for _, c := range w.contracts {
		if c.Outbox == nil {
			continue
		}
		if _, err := w.engine.Publish(t.Context(), c.Outbox.Deliver,
			c.PublishingJobTypes()...); err != nil {
			t.Fatal(err)
		}
	}
}

// AD-014: a job of ForgeRun shows the deliveries of its events, and a delivery its attempts.
func TestTimelineOfForgeRun(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		f := w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
			fmt.Sprintf(`,"owner":%q`, w.client))
		run := w.claim(t, "forgerun")
		w.end(t, run, engine.Outcome{On: job.Started})
		w.end(t, run, engine.Outcome{On: job.FailedForGood, Reason: "boom"})
		waiting := w.timelineOf(t, f.Number)
		if n := strings.Count(waiting.shown("message"), ";"); n != 4 {
			t.Errorf("AD-014 the messages that wait: %q", waiting.shown("message"))
		}
		w.publish(t)
		wantShown(t, w.timelineOf(t, f.Number), map[string]string{"submitted": "CREATED",
			"state": "QUEUED; ASSIGNED; RUNNING; FAILED; -", "attempt": "w failed boom",
			"message": "", "delivery": "pending"})
		w.status.Store(http.StatusInternalServerError)
		w.deliver(t, 1)
		v := w.timelineOf(t, f.Number)
		wantShown(t, v, map[string]string{"delivery": "exhausted"})
		for _, e := range v.Entries {
			if e.Kind != "delivery" {
				continue
			}
			if strings.Contains(*e.Text, "hidden") {
				t.Errorf("AD-052 the query of a URL is shown: %s", *e.Text)
			}
			wantShown(t, w.timelineOf(t, *e.Number), map[string]string{"progress": "",
				"attempt": "- failed the answer was 500, not a 2xx status"})
		}
	})
}

// AD-014: a timeline has 2,000 entries at most and says that there are more.
func TestTimelineIsBounded(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		j := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
		for range 700 {
			w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Released})
		}
		v := w.timelineOf(t, j.Number)
		if len(v.Entries) != job.MaxEntries || !v.Truncated {
			t.Errorf("AD-014 got %d entries, truncated %v", len(v.Entries), v.Truncated)
		}
		entries, truncated, err := w.api.Timeline(t.Context(), j.Number)
		if err != nil || !truncated || len(entries) != len(v.Entries) {
			t.Errorf("AD-014 Timeline returned %d entries, %v, %v", len(entries), truncated, err)
		}
	})
}
