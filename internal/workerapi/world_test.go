package workerapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testContract is a contract like TaskFlow: claimed is running, failures count.
const testContract = "made"

var madeMachine = job.MustMachine(
	map[job.State]job.Phase{"ready": job.Ready, "running": job.Leased, "completed": job.Done,
		"failed": job.Done},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: "ready"},
		{From: "ready", On: job.Claimed, To: "running"},
		{From: "running", On: job.Succeeded, To: "completed"},
		{From: "running", On: job.Failed, To: "ready", CountsFailed: true},
		{From: "running", On: job.FailedForGood, To: "failed"},
		{From: "running", On: job.Expired, To: "ready", CountsFailed: true},
		{From: "running", On: job.ExpiredForGood, To: "failed"},
		{From: "running", On: job.Released, To: "ready"},
		{From: "ready", On: job.Canceled, To: "failed"},
		{From: "running", On: job.Canceled, To: "failed"},
	})

// otherContract is a contract whose jobs the API does not serve, as Relay's.
const otherContract = "other"

func attempts(j *job.Job) int { return j.FailedAttempts + 1 }

func completed(_ *job.Job, result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

func failedAs(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	on := job.FailedForGood
	if retryable {
		on = job.Failed
	}
	return engine.Outcome{On: on, Failure: strictjson.AppendString(nil, message), Reason: errorType,
		Delay: time.Second}
}

func newContract() workerapi.Adapter {
	return workerapi.Adapter{Name: testContract, Attempt: attempts, Complete: completed,
		Fail: failedAs, State: func(s job.State) string { return strings.ToUpper(string(s)) },
		RunsLocally: func(queue string) bool { return queue == "here" }}
}

// world is the API behind a real server, on a clock that only the test advances.
type world struct {
	*testkit.APIServer
	clock    *testkit.Clock
	store    store.Store
	engine   *engine.Engine
	registry *prometheus.Registry
}

func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		test(t, newWorld(t, p, "", 0, newContract()))
	})
}

func inMemory(t *testing.T, token string, limit int, c workerapi.Adapter) *world {
	return newWorld(t, testkit.InMemory(t), token, limit, c)
}

func newWorld(t *testing.T, p testkit.Database, token string, limit int,
	contracts ...workerapi.Adapter) *world {
	t.Helper()
	registry := prometheus.NewRegistry()
	w := &world{clock: p.Clock, store: p.Store, registry: registry,
		engine: testkit.NewEngine(t, p.Store, p.Clock,
			engine.JobType{Name: testContract, Machine: madeMachine, History: true,
				MaxRunning: limit},
			engine.JobType{Name: otherContract, Machine: madeMachine})}
	api, err := workerapi.New(workerapi.Config{Engine: w.engine, Log: discard, Registry: registry,
		Token: setting.NewSecret(token), Contracts: contracts})
	if err != nil {
		t.Fatal(err)
	}
	w.APIServer = testkit.StartServer(t, discard, document(t),
		testkit.ProblemReader("urn:millrace:worker:"), api.Mount())
	return w
}

var discard = slog.New(slog.DiscardHandler)

func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, workerapi.OpenAPI, 4<<20)
}

// submitOne stores one job.
func (w *world) submitOne(t testing.TB, id job.ID, queue string) {
	t.Helper()
	one := engine.Submission{Job: job.Job{ID: id, Queue: queue, Lease: 30 * time.Second,
		MaxAttempts: 3}}
	if _, err := w.engine.Submit(context.Background(), engine.Unique,
		[]engine.Submission{one}); err != nil {
		t.Fatal(err)
	}
}

// submit stores jobs of a queue and returns their ids.
func (w *world) submit(t testing.TB, contract, queue string, n int) (ids []string) {
	t.Helper()
	batch := make([]engine.Submission, n)
	for i := range batch {
		id := fmt.Sprintf("%s-%d", queue, i)
		batch[i] = engine.Submission{Job: job.Job{ID: job.ID{JobType: contract, Key: id},
			Queue: queue, Lease: 30 * time.Second, MaxAttempts: 3,
			Payload: []byte(`{"n": ` + fmt.Sprint(i) +
				`,  "big": 123456789012345678901234567890}`)}}
		ids = append(ids, id)
	}
	if _, err := w.engine.Submit(context.Background(), engine.Unique, batch); err != nil {
		t.Fatal(err)
	}
	return ids
}

// post sends a body, as JSON unless header, which are pairs, says otherwise.
func (w *world) post(t testing.TB, path, body string, header ...string) testkit.Reply {
	t.Helper()
	return w.Do(t, http.MethodPost, path, body, header...)
}

// claimedJob is a job as the worker API returns it.
type claimedJob struct {
	JobID        string          `json:"job_id"`
	Contract     string          `json:"contract"`
	Queue        string          `json:"queue"`
	RunID        string          `json:"run_id"`
	Attempt      int             `json:"attempt"`
	Payload      json.RawMessage `json:"payload"`
	State        json.RawMessage `json:"state"`
	LeaseSeconds float64         `json:"lease_seconds"`
}

// claim claims with a request's members.
func (w *world) claim(t testing.TB, members string) []claimedJob {
	t.Helper()
	body := `{"contract":"made"` + members + `}`
	return testkit.DecodeReply[struct{ Jobs []claimedJob }](t,
		w.post(t, "/worker/v1/claims", body).WantStatus(t, 200)).Jobs
}

// claimOne claims the only job of a queue.
func (w *world) claimOne(t testing.TB, queue string) claimedJob {
	t.Helper()
	jobs := w.claim(t, `,"queues":["`+queue+`"]`)
	if len(jobs) != 1 {
		t.Fatalf("claimed %d jobs of %s, want 1", len(jobs), queue)
	}
	return jobs[0]
}

func (w *world) postRun(t testing.TB, runID, verb, body string) testkit.Reply {
	t.Helper()
	return w.post(t, "/worker/v1/runs/"+runID+"/"+verb, body)
}

// wantState fails unless the job is in a state.
func (w *world) wantState(t testing.TB, id string, want job.State) *job.Job {
	t.Helper()
	j, err := w.engine.Get(context.Background(), job.ID{JobType: testContract, Key: id})
	if err != nil || j.State != want {
		t.Fatalf("job %s is %+v, %v, want %s", id, j, err, want)
	}
	return j
}

// expire lets the leases end whose time has passed.
func (w *world) expire(t testing.TB, after time.Duration) {
	t.Helper()
	w.clock.Advance(after)
	if _, err := w.engine.Expire(context.Background()); err != nil {
		t.Fatal(err)
	}
}
