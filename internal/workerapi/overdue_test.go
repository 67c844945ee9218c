package workerapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"
)

// A run that takes too long ends as the contract says, whatever its worker says next, and its
// heartbeat is answered so.
func TestOverdue(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"heartbeat", "start", "complete", "fail", "release"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			p, c := testkit.InMemory(t), newContract()
			c.TimedOut = func(j *job.Job) *engine.Outcome {
				if p.Clock.Now().Sub(j.StartedAt) <= time.Minute {
					return nil
				}
				return &engine.Outcome{On: job.FailedForGood, Failure: []byte(`"too long"`),
					Reason: "slow"}
			}
			w := newWorld(t, p, "", 0, c)
			w.submit(t, testContract, "a", 1)
			j := w.claimOne(t, "a")
			for range 3 { // up to the limit it goes on
				w.clock.Advance(20 * time.Second)
				if r := w.postRun(t, j.RunID, "heartbeat", ``).WantStatus(t,
					200); !strings.Contains(r.Body, `"cancel":false`) {
					t.Errorf("got %s", r.Body)
				}
			}
			w.clock.Advance(time.Millisecond)
			r := w.postRun(t, j.RunID, verb, runVerbs[verb])
			if verb != "heartbeat" {
				r.WantError(t, 409, "RUN_LOST")
			} else if r.WantStatus(t, 200); !strings.Contains(r.Body, `"cancel":true`) {
				t.Errorf("got %s", r.Body)
			}
			ended := w.wantState(t, "a-0", "failed")
			if string(ended.Failure) != `"too long"` || ended.Result != nil {
				t.Errorf("it left %q, %q", ended.Failure, ended.Result)
			}
			if verb == "heartbeat" && string(ended.Progress) != "1" {
				t.Errorf("the last state is %q", ended.Progress)
			}
			w.wantLost(t, j.RunID)
			w.wantMetric(t, `ended_runs_total{contract="made",outcome="overdue"}`, 1)
		})
	}
}

// What workers do is counted, from zero on.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	outcomes := []string{"completed", "failed", "released", "overdue", "undelivered"}
	for _, outcome := range outcomes {
		w.wantMetric(t, `ended_runs_total{contract="made",outcome="`+outcome+`"}`, 0)
	}
	w.wantMetric(t, `claimed_jobs_total{contract="made"}`, 0)
	w.wantMetric(t, `waiting_claims{contract="made"}`, 0)
	w.wantMetric(t, `errors_total{code="RUN_LOST"}`, 0)
	w.submit(t, testContract, "a", 4)
	jobs := w.claim(t, `,"max":3`)
	w.post(t, "/worker/v1/jobs/a-3/claim", `{"contract":"made"}`).WantStatus(t, 200)
	w.postRun(t, jobs[0].RunID, "start", ``).WantStatus(t, 200)
	w.postRun(t, jobs[0].RunID, "complete", ``).WantStatus(t, 200)
	w.postRun(t, jobs[1].RunID, "fail", runVerbs["fail"]).WantStatus(t, 200)
	w.postRun(t, jobs[2].RunID, "release", ``).WantStatus(t, 200)
	w.postRun(t, jobs[2].RunID, "release", ``).WantError(t, 409, "RUN_LOST")
	w.wantMetric(t, `claimed_jobs_total{contract="made"}`, 4)
	for i, want := range []float64{1, 1, 1, 0, 0} {
		w.wantMetric(t, `ended_runs_total{contract="made",outcome="`+outcomes[i]+`"}`, want)
	}
	w.wantMetric(t, `errors_total{code="RUN_LOST"}`, 1)
	w.wantMetric(t, `request_duration_seconds_count{action="release",code="2xx"}`, 1)
	w.wantMetric(t, `request_duration_seconds_count{action="release",code="4xx"}`, 1)
	if _, err := workerapi.New(workerapi.Config{Engine: w.engine, Log: discard,
		Registry: w.registry, Contracts: []workerapi.Adapter{newContract()}}); err == nil {
		t.Error("the same names are registered twice")
	}
	if problems, err := testutil.GatherAndLint(w.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// wantMetric reads one line of what is shown of the metrics.
func (w *world) wantMetric(t testing.TB, line string, want float64) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			name, value := strings.TrimPrefix(f.GetName(), "millrace_worker_api_"),
				m.GetCounter().GetValue()+m.GetGauge().GetValue()
			if m.Histogram != nil {
				name, value = name+"_count", float64(m.Histogram.GetSampleCount())
			}
			if name+"{"+strings.Join(labels, ",")+"}" == line {
				if value != want {
					t.Errorf("%s is %v, want %v", line, value, want)
				}
				return
			}
		}
	}
	t.Errorf("there is no %s", line)
}
