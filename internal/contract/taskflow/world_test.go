package taskflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// The test binary is its own child, through which commands of queues are started.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.Subcommand {
		os.Exit(child.Exec(os.Args[2:], os.Environ(), os.Stderr))
	}
	testkit.SetPropertyChecks(30)
	goleak.VerifyTestMain(m)
}

// world is a whole TaskFlow behind a real server, on a clock that only the test advances.
type world struct {
	*testkit.APIServer
	clock    *testkit.Clock
	store    store.Store
	taskflow *taskflow.TaskFlow
	engine   *engine.Engine
	registry *prometheus.Registry
	log      *testkit.LogBuffer
	// opens another connection to the same jobs; nil where that cannot be
	reopenStore func(testing.TB) store.Store
}

const (
	beyondDocument = testkit.HeaderUndocumented

	bodyLimit      = 1 << 20
	graphBodyLimit = 16 << 20
	lease          = 60 * time.Second
	window         = 24 * time.Hour
)

func config() taskflow.Config {
	return taskflow.Config{
		Settings: taskflow.Settings{Lease: lease, MaxConcurrent: 1000,
			IdempotencyWindow: window},
		BodyLimit:      bodyLimit,
		GraphBodyLimit: graphBodyLimit}
}

// onEveryStore runs a test on SQLite and on PostgreSQL, each in a world of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	onEveryStoreWith(t, config(), test)
}

func onEveryStoreWith(t *testing.T, c taskflow.Config, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) { test(t, newWorldAt(t, p, c)) })
}

// inMemory is a world on SQLite for what the store has no part in.
func inMemory(t testing.TB, c taskflow.Config) *world {
	return newWorldAt(t, testkit.InMemory(t), c)
}

func newWorldAt(t testing.TB, p testkit.Database, c taskflow.Config) *world {
	w := newWorld(t, p.Clock, p.Store, c)
	w.reopenStore = p.Reopen
	return w
}

func newWorld(t testing.TB, clock *testkit.Clock, s store.Store, c taskflow.Config) *world {
	t.Helper()
	w := &world{clock: clock, store: s, registry: prometheus.NewRegistry(),
		log: &testkit.LogBuffer{}}
	c.Registry, c.Now, c.Random = w.registry, clock.Now, testkit.RandomBytes
	c.Log = slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.engine = testkit.NewEngine(t, s, clock)
	c.Engine = w.engine
	built, err := taskflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.taskflow = built
	jobs, workers := built.JobType(), built.RemoteWorkers()
	jobs.RecordedEnds = workers.EndsOf(taskflow.Name)
	testkit.Register(t, w.engine, jobs)
	w.APIServer = testkit.StartServer(t, c.Log, document(t), errorOf, built.Mount(),
		httpapi.Health())
	return w
}

// errorOf reads the body of an error.
func errorOf(t testing.TB, r testkit.Reply) (code, text string) {
	t.Helper()
	p := testkit.DecodeReply[struct{ Code, Message string }](t, r)
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("an error of type %q", got)
	}
	return p.Code, p.Message
}

// cycle reads the path of a cycle that is refused (TF-037).
func cycle(t testing.TB, r testkit.Reply) []string {
	t.Helper()
	return testkit.DecodeReply[struct {
		Details struct {
			CyclePath []string `json:"cycle_path"`
		}
	}](t, r.WantError(t, 409, "CONFLICT")).Details.CyclePath
}

type policy struct {
	MaxAttempts int    `json:"max_attempts"`
	Strategy    string `json:"backoff_strategy"`
	BaseDelay   int    `json:"base_delay_seconds"`
	MaxDelay    int    `json:"max_delay_seconds"`
}

// jobView is a job as it is shown.
type jobView struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Queue        string          `json:"queue"`
	Payload      json.RawMessage `json:"payload"`
	Priority     int             `json:"priority"`
	Status       string          `json:"status"`
	Dependencies []string        `json:"dependencies"`
	RetryPolicy  policy          `json:"retry_policy"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	AttemptCount int             `json:"attempt_count"`
	NextRunAt    *time.Time      `json:"next_run_at"`
}

const jobsPath = "/api/v1/jobs"

func pathOf(id string) string { return jobsPath + "/" + id }

// jobSpec writes a create; members are further ones as JSON.
func jobSpec(members ...string) string {
	return "{" + strings.Join(append([]string{`"name":"n","queue":"q"`}, members...), ",") + "}"
}

// dependenciesMember writes the dependencies.
func dependenciesMember(ids ...string) string {
	text, _ := json.Marshal(append([]string{}, ids...))
	return `"dependencies":` + string(text)
}

// create creates what must be accepted.
func (w *world) create(t testing.TB, members ...string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t,
		w.Do(t, "POST", jobsPath, jobSpec(members...)).WantStatus(t, 201))
}

// get reads a job that must be there.
func (w *world) get(t testing.TB, id string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t, w.Do(t, "GET", pathOf(id), "").WantStatus(t, 200))
}

// status fails unless a job has one.
func (w *world) status(t testing.TB, id, want string) jobView {
	t.Helper()
	v := w.get(t, id)
	if v.Status != want {
		t.Fatalf("job %s is %s, want %s", v.Name, v.Status, want)
	}
	return v
}

// put updates what must be accepted.
func (w *world) put(t testing.TB, id string, members ...string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t,
		w.Do(t, "PUT", pathOf(id), "{"+strings.Join(members, ",")+"}").WantStatus(t, 200))
}

func engineJobID(key string) job.ID { return job.ID{JobType: taskflow.Name, Key: key} }

// claims claims up to n jobs.
func (w *world) claims(t testing.TB, n int) []*job.Job {
	t.Helper()
	jobs, err := w.engine.Claim(context.Background(),
		engine.ClaimRequest{JobType: taskflow.Name, Max: n, Worker: "a worker"})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// claimAndStart claims and starts one job by its id.
func (w *world) claimAndStart(t testing.TB, id string) *job.Job {
	t.Helper()
	j, err := w.engine.ClaimJob(context.Background(), engineJobID(id), "a worker")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func runOf(j *job.Job) engine.Run { return engine.Run{ID: j.ID, Run: j.Run} }

func (w *world) finish(t testing.TB, j *job.Job, o engine.Outcome) {
	t.Helper()
	if _, err := w.engine.Finish(context.Background(), runOf(j), o); err != nil {
		t.Fatal(err)
	}
}

// succeed and fail run a job that is READY, once.
func (w *world) succeed(t testing.TB, id string) {
	t.Helper()
	j := w.claimAndStart(t, id)
	w.finish(t, j, taskflow.SuccessOutcome(j, []byte(`{"ok":true}`)))
}

func (w *world) fail(t testing.TB, id string, retryable bool) {
	t.Helper()
	j := w.claimAndStart(t, id)
	w.finish(t, j, taskflow.FailureOutcome(j, "it broke", "broken", retryable))
}

// runMaintenance runs maintenance once.
func (w *world) runMaintenance(t testing.TB) { t.Helper(); testkit.RunMaintenance(t, w.engine) }

// jobs counts all jobs in the store.
func (w *world) jobs(t testing.TB) int {
	t.Helper()
	all, err := w.engine.List(context.Background(), store.Filter{JobType: taskflow.Name})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func assertEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func nameMember(name string) string { return fmt.Sprintf(`"name":%q`, name) }
