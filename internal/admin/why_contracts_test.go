package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// whyOf returns the codes of why for a job, and its next time.
func (w *jobsWorld) whyOf(t *testing.T, number int64) whyView {
	t.Helper()
	return get[whyView](t, w.world, fmt.Sprintf("/admin/v1/jobs/%d/why", number))
}

// TestWhyOfContracts (AD-015): jobs of Relay, TaskFlow, ForgeRun and deliveries of webhooks say why
// they do not run, as their own machines have it.
func TestWhyOfContracts(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		wants := func(number int64, codes string) whyView {
			t.Helper()
			v := w.whyOf(t, number)
			if v.codes() != codes {
				t.Errorf("job %d: got %+v, want %s", number, v, codes)
			}
			return v
		}
		const lost = `{"queue":"q","id":"1","timeout":5,"max_retries":0,"payload":{}}`
		r := w.submitJob(t, "relay", lost, "")
		wants(r.Number, "nobody_asks")
		w.claim(t, "relay")
		wants(r.Number, "running")
		w.clock.Advance(time.Minute)
		if _, err := w.engine.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		wants(r.Number, "dead")

		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
		then := w.submitJob(t, "taskflow", fmt.Sprintf(
			`{"name":"b","queue":"q","dependencies":[%q]}`, first.ID), "")
		run := w.claim(t, "taskflow")
		wants(then.Number, "waits_for_dependencies")
		w.end(t, run, engine.Outcome{On: job.FailedForGood})
		wants(first.Number, "dead")
		wants(then.Number, "dependency_failed done")

		owner := fmt.Sprintf(`,"owner":%q`, w.client)
		at := w.clock.Now().Add(time.Hour)
		f := w.submitJob(t, "forgerun", fmt.Sprintf(
			`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":%q}`,
			at.Format(time.RFC3339)), owner)
		if v := wants(f.Number, "nobody_asks not_due"); v.Next == nil || !v.Next.Equal(at) {
			t.Errorf("got %+v", v)
		}
		w.acted(t, f.Number, "cancel")
		stopped := w.submitJob(t, "taskflow", `{"name":"c","queue":"q"}`, "")
		w.claim(t, "taskflow")
		w.acted(t, stopped.Number, "cancel")
		for _, number := range []int64{f.Number, stopped.Number} {
			if v := wants(number, "done"); !strings.HasPrefix(v.Sentence, "The job was canceled: ") ||
				string(v.Reasons[0].Facts["cause"]) != `"canceled"` {
				t.Errorf("AD-015 a job that was canceled: %+v", v)
			}
		}

		id := job.ID{JobType: webhook.Name, Key: "d"}
		if _, err := w.engine.Submit(t.Context(), engine.Unique, []engine.Submission{{
			Job: job.Job{ID: id, Queue: "deliveries", Lease: time.Minute}}}); err != nil {
			t.Fatal(err)
		}
		w.end(t, w.claim(t, webhook.Name), engine.Outcome{On: job.Failed, Delay: time.Minute})
		j, err := w.engine.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		wants(j.Seq, "backing_off")
	})
}
