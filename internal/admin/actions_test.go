package admin_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	eventtypes "github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// jobsWorld is a node with three contracts, and a client of ForgeRun.
type jobsWorld struct {
	*world
	client    string
	contracts []*contract.Contract
	metrics   map[string]*prometheus.Registry // of each contract
}

// registry makes the registry of the metrics of a contract.
func (w *jobsWorld) registry(name string) *prometheus.Registry {
	if w.metrics == nil {
		w.metrics = map[string]*prometheus.Registry{}
	}
	w.metrics[name] = prometheus.NewRegistry()
	return w.metrics[name]
}

// withJobs runs a test with such a node on each database.
func withJobs(t *testing.T, test func(t *testing.T, w *jobsWorld)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Shared = p.Reopen != nil
			w.addContracts(t, c)
		})
		test(t, w)
	})
}

// addContracts builds the contracts on the engine of a node.
func (w *jobsWorld) addContracts(t testing.TB, c *admin.Config) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := relay.New(relay.Config{Engine: c.Engine, Log: log, Registry: w.registry("relay"),
		Settings: relay.Settings{MaxNumJobs: 1000, BodyLimit: 1 << 20, RetryableStatus: 429}})
	must(err)
	tf, err := taskflow.New(taskflow.Config{Engine: c.Engine, Log: log,
		Registry: w.registry("taskflow"), Now: c.Now, Random: testkit.RandomBytes,
		BodyLimit: 1 << 20, GraphBodyLimit: 1 << 20,
		Settings: taskflow.Settings{Lease: time.Minute, MaxConcurrent: 1000}})
	must(err)
	f, err := forgerun.New(forgerun.Config{Engine: c.Engine, Log: log,
		Registry: w.registry("forgerun"), Now: c.Now, Elapsed: c.Elapsed,
		Random: testkit.RandomBytes, Pepper: pepper, Node: "node", Client: http.DefaultClient,
		NoLocalWorkers: true,
		Settings: forgerun.Settings{Types: []string{"EXECUTE", "DEFERRED"}, JobsPerWorker: 1,
			Lease: 30 * time.Second, Heartbeat: time.Second, MaxRunTime: 2 * time.Minute,
			MaxRetries: 1, RatePerMinute: 1000, AnonymousPerMinute: 1000, MaxActiveJobs: 1000,
			QueueSize: 2000, BodyLimit: 1 << 20, PayloadLimit: 256 << 10, DurationScale: 1,
			Webhook: forgerun.Webhook{Timeout: time.Second, MaxAttempts: 1, BackoffBase: time.Second,
				BackoffMax: time.Hour, BackoffFactor: 2}}})
	must(err)
	c.Contracts = []*contract.Contract{r.Offer(), tf.Offer(), f.Offer()}
	w.contracts = c.Contracts
	c.Engine.SetFeed(webhook.NewFeed(eventtypes.New(c.Contracts)))
	for _, one := range c.Contracts {
		must(one.Validate())
		testkit.Register(t, c.Engine, one.JobTypes...)
	}
	accounts, err := account.New(account.Config{Engine: c.Engine, Pepper: pepper,
		KeyLifetime: time.Hour, RevokedRetention: time.Hour, RatePerMinute: 1,
		AnonymousPerMinute: 1, Log: log, Elapsed: c.Elapsed})
	must(err)
	client, err := accounts.CreateClient(t.Context(), "")
	must(err)
	w.client = client.ID
}

// jobState is the answer to an action.
type jobState struct {
	Number              int64
	Contract, ID, Phase string
	State               string
	Actions             []string
	MadeFrom            *int64 `json:"made_from"`
}

// submitJob submits a job of a contract (AD-017).
func (w *jobsWorld) submitJob(t *testing.T, name, request, more string) jobState {
	t.Helper()
	return testkit.DecodeReply[jobState](t, w.do(t, w.api.Token(), "POST", "/admin/v1/jobs",
		fmt.Sprintf(`{"contract":%q,"request":%s%s}`, name, request, more),
		"Content-Type", "application/json").WantStatus(t, 201))
}

// act sends an action on a job.
func (w *jobsWorld) act(t *testing.T, number int64, action string) testkit.Reply {
	t.Helper()
	return w.do(t, w.api.Token(), "POST", fmt.Sprintf("/admin/v1/jobs/%d/%s", number, action), "")
}

// acted sends an action that is allowed.
func (w *jobsWorld) acted(t *testing.T, number int64, action string) jobState {
	t.Helper()
	return testkit.DecodeReply[jobState](t, w.act(t, number, action).WantStatus(t, 200))
}

// claim claims one job of a contract.
func (w *jobsWorld) claim(t *testing.T, name string) engine.Run {
	t.Helper()
	jobs, err := w.engine.Claim(t.Context(), engine.ClaimRequest{JobType: name, Max: 1,
		Worker: "w"})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	return engine.Run{ID: jobs[0].ID, Run: jobs[0].Run}
}

// end ends a run.
func (w *jobsWorld) end(t *testing.T, run engine.Run, o engine.Outcome) {
	t.Helper()
	if _, err := w.engine.Finish(t.Context(), run, o); err != nil {
		t.Fatal(err)
	}
}

func (w *jobsWorld) wantState(t *testing.T, j jobState, state string, actions ...string) {
	t.Helper()
	if j.State != state || strings.Join(j.Actions, " ") != strings.Join(actions, " ") {
		t.Errorf("AD-016 job %d is %s and allows %q, want %s and %q", j.Number, j.State, j.Actions,
			state, actions)
	}
}

// AD-016: what TaskFlow's table has, and the entries of the audit.
func TestActionsOfTaskFlow(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"q","retry_policy":
			{"max_attempts":2,"backoff_strategy":"FIXED","base_delay_seconds":60,"max_delay_seconds":60}}`, "")
		w.wantState(t, first, "READY", "delete")
		w.submitJob(t, "taskflow", fmt.Sprintf(
			`{"name":"b","queue":"q","dependencies":[%q]}`, first.ID), "")
		run := w.claim(t, "taskflow")
		w.wantState(t, w.acted(t, first.Number, "release"), "READY", "delete")
		if _, err := w.engine.Heartbeat(t.Context(), run, nil); !job.IsKind(err, job.RunLost) {
			t.Errorf("AD-016 the run of a released job is not fenced: %v", err)
		}
		failure := engine.Outcome{On: job.Failed, Failure: []byte(`{"error":"x"}`)}
		w.end(t, w.claim(t, "taskflow"), failure)
		w.wantState(t, w.acted(t, first.Number, "run-now"), "READY", "delete")
		w.end(t, w.claim(t, "taskflow"), failure)
		again := w.acted(t, first.Number, "rerun")
		w.wantState(t, again, "READY", "delete")
		if again.MadeFrom == nil || *again.MadeFrom != first.Number || again.ID == first.ID {
			t.Errorf("AD-016 a rerun answered %+v", again)
		}
		if related, _, _, err := w.engine.Graph(t.Context(), job.ID{JobType: "taskflow",
			Key: again.ID}, 10); err != nil || len(related) != 2 || related[1].State != "PENDING" {
			t.Errorf("AD-016 the dependent was not copied with its dependency: %v %v", related, err)
		}
		refused := w.act(t, first.Number, "cancel").WantError(t, 409, "NOT_ALLOWED", "FAILED",
			"rerun", "delete")
		if !strings.Contains(refused.Body, "does not allow cancel") {
			t.Errorf("AD-016 got %s", refused.Body)
		}
		w.act(t, first.Number, "delete").WantError(t, 409, "CONFLICT", "depends")
		w.act(t, again.Number, "delete").WantError(t, 409, "CONFLICT", "depends")
	})
}

// AD-006, G-AD-04: the entry is written with the change, names the job, and shows both states; what
// was not allowed is none.
func TestActionsAreInTheAudit(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		j := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
		w.act(t, j.Number, "retry").WantError(t, 409, "NOT_ALLOWED")
		w.wantState(t, w.acted(t, j.Number, "delete"), "gone")
		w.act(t, j.Number, "delete").WantError(t, 404, "NOT_FOUND")
		target := fmt.Sprintf("job:%d", j.Number)
		got := w.audit(t, "?target="+target).Items
		if len(got) != 2 || got[0].Action != "job.delete" || got[1].Action != "job.submit" {
			t.Fatalf("G-AD-04 the audit has %+v", got)
		}
		var before struct{ State string }
		if err := json.Unmarshal(got[0].Before, &before); err != nil || before.State != "READY" ||
			string(got[0].After) != "null" || string(got[1].Before) != "null" {
			t.Errorf("AD-006 before %s, after %s: %v", got[0].Before, got[0].After, err)
		}
	})
}

// AD-016: what Relay's and ForgeRun's tables have.
func TestActionsOfRelayAndForgeRun(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		r := w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":0,
			"payload":1,"run_at":"2030-01-01T00:00:00Z"}`, "")
		w.wantState(t, r, "queued", "run-now", "delete")
		w.wantState(t, w.acted(t, r.Number, "run-now"), "queued", "delete")
		w.claim(t, "relay")
		w.wantState(t, w.acted(t, r.Number, "release"), "queued", "delete")
		w.wantState(t, w.acted(t, r.Number, "delete"), "gone")

		owner := fmt.Sprintf(`,"owner":%q`, w.client)
		f := w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`, owner)
		w.wantState(t, f, "QUEUED", "cancel")
		w.claim(t, "forgerun")
		w.wantState(t, w.acted(t, f.Number, "release"), "QUEUED", "cancel")
		for _, after := range []string{"retry", ""} {
			run := w.claim(t, "forgerun")
			w.end(t, run, engine.Outcome{On: job.Started})
			w.act(t, f.Number, "release").WantError(t, 409, "NOT_ALLOWED") // G-AD-17
			w.end(t, run, engine.Outcome{On: job.Failed, Failure: []byte(`{"code":"x"}`)})
			if after != "" {
				w.acted(t, f.Number, after)
				w.clock.Advance(time.Minute)
				testkit.RunMaintenance(t, w.engine)
			}
		}
		w.act(t, f.Number, "retry").WantError(t, 409, "NOT_ALLOWED", "FAILED", "rerun")
		made := w.acted(t, f.Number, "rerun")
		w.wantState(t, made, "QUEUED", "cancel")
		w.wantState(t, w.acted(t, made.Number, "cancel"), "CANCELED", "rerun")
		history, err := w.engine.History(t.Context(), job.ID{JobType: "forgerun", Key: made.ID})
		if err != nil || history[len(history)-1].Cause != job.Canceled {
			t.Errorf("AD-016 the history of a canceled job: %v %v", history, err)
		}
	})
}

// AD-017, G-AD-09: a submission is checked by the contract's own rules.
func TestSubmitJob(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		for body, words := range map[string]string{
			`{"contract":"taskflow"}`:                                         "request",
			`{"request":{}}`:                                                  "contract",
			`{"contract":"no","request":{}}`:                                  "relay, taskflow",
			`{"contract":"taskflow","request":{"queue":"q"}}`:                 "name",
			`{"contract":"taskflow","request":{},"priority":1}`:               "priority",
			`{"contract":"taskflow","request":{},"owner":"x"}`:                "owner",
			`{"contract":"taskflow","request":{},"job_type":"x"}`:             "job_type",
			`{"contract":"relay","request":{"queue":"q","id":"1"}}`:           "payload",
			`{"contract":"forgerun","request":{"type":"EXECUTE"}}`:            "owner",
			`{"contract":"forgerun","request":{"type":"EXECUTE"},"owner":""}`: "owner",
			`{"contract":"forgerun","request":{"type":"NONE"},"owner":"` + w.client +
				`"}`: "type",
		} {
			w.do(t, w.api.Token(), "POST", "/admin/v1/jobs", body, "Content-Type",
				"application/json").WantError(t, 400, "VALIDATION_ERROR", words)
		}
		const key = `,"idempotency_key":"k"`
		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, key)
		second := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, key)
		if first.Number != second.Number {
			t.Errorf("AD-017 one key made jobs %d and %d", first.Number, second.Number)
		}
		if n := len(w.audit(t, "?action=job.submit").Items); n != 1 {
			t.Errorf("AD-017 there are %d entries for one job", n)
		}
		request := `{"queue":"q","id":"1","timeout":60,"max_retries":0,"payload":1}`
		w.submitJob(t, "relay", request, "")
		w.do(t, w.api.Token(), "POST", "/admin/v1/jobs", `{"contract":"relay","request":`+request+
			`}`, "Content-Type", "application/json").WantError(t, 409, "CONFLICT")
	})
}
