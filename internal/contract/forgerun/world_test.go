package forgerun_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.SetPropertyChecks(30)
	goleak.VerifyTestMain(m)
}

// world is a whole ForgeRun behind a real server, on a clock that only the test advances.
type world struct {
	*testkit.APIServer
	clock      *testkit.Clock
	fakeTimers *fakeTimers
	store      store.Store
	engine     *engine.Engine
	forge      *forgerun.ForgeRun
	registry   *prometheus.Registry
	log        *testkit.LogBuffer
	watcher    *watcher
	// opens another connection to the same jobs; nil where that cannot be
	reopenStore func(testing.TB) store.Store
}

// fakeTimers let runs wait for the world's clock.
type fakeTimers struct {
	clock   *testkit.Clock
	mu      sync.Mutex
	all     map[*timer]bool
	created chan struct{} // gets one for each timer made
}

type timer struct {
	at     time.Time
	passed chan time.Time
}

func newFakeTimers(c *testkit.Clock) *fakeTimers {
	return &fakeTimers{clock: c, all: map[*timer]bool{}, created: make(chan struct{}, 1000)}
}

func (t *fakeTimers) make(d time.Duration) (<-chan time.Time, func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := &timer{t.clock.Now().Add(d), make(chan time.Time, 1)}
	t.all[one] = true
	t.created <- struct{}{}
	return one.passed, func() { t.mu.Lock(); defer t.mu.Unlock(); delete(t.all, one) }
}

// advance lets time pass and ends the timers whose time has come.
func (t *fakeTimers) advance(d time.Duration) {
	t.clock.Advance(d)
	t.mu.Lock()
	defer t.mu.Unlock()
	for one := range t.all {
		if !one.at.After(t.clock.Now()) {
			one.passed <- t.clock.Now()
			delete(t.all, one)
		}
	}
}

const bodyLimit = 1 << 20

var pepper = []byte("a pepper that is long enough for everybody")

func config() forgerun.Config {
	return forgerun.Config{
		Pepper: pepper, Node: "node", Client: http.DefaultClient,
		Settings: forgerun.Settings{
			LogRequests: true,
			Types:       []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"}, Workers: 4, JobsPerWorker: 1,
			Lease: 30 * time.Second, Heartbeat: 5 * time.Second, MaxRunTime: 120 * time.Second,
			MaxRetries:  3,
			BackoffBase: time.Second, BackoffMax: time.Minute, RatePerMinute: 1_000_000,
			AnonymousPerMinute: 1_000_000,
			MaxActiveJobs:      1000, QueueSize: 100_000, BodyLimit: bodyLimit,
			PayloadLimit:       256 << 10,
			FailureProbability: 0.2,
			Webhook: forgerun.Webhook{Timeout: 5 * time.Second, MaxAttempts: 8,
				BackoffBase: time.Second, BackoffMax: 2 * time.Hour, BackoffFactor: 5},
			DurationScale: 1, Retention: 720 * time.Hour, RevokedKeyRetention: 2160 * time.Hour,
			KeyLifetime: 2160 * time.Hour,
		},
	}
}

// onEveryStore runs a test on SQLite and on PostgreSQL, each in a world of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		test(t, newWorldAt(t, p, config()))
	})
}

// onPostgres is a world on a database of its own.
func onPostgres(t testing.TB, c forgerun.Config) *world {
	return newWorldAt(t, testkit.OnPostgres(t), c)
}

// inMemory is a world on SQLite for what the store has no part in.
func inMemory(t testing.TB, c forgerun.Config) *world {
	return newWorldAt(t, testkit.InMemory(t), c)
}

func newWorldAt(t testing.TB, p testkit.Database, c forgerun.Config) *world {
	w := newWorld(t, p.Clock, p.Store, c)
	w.reopenStore = p.Reopen
	return w
}

func newWorld(t testing.TB, clock *testkit.Clock, s store.Store, c forgerun.Config) *world {
	t.Helper()
	w := &world{clock: clock, fakeTimers: newFakeTimers(clock), store: s,
		registry: prometheus.NewRegistry(), log: &testkit.LogBuffer{}}
	c.Registry, c.Now, c.Elapsed, c.Random = w.registry, clock.Now, clock.Monotonic,
		testkit.RandomBytes
	if c.Log == nil {
		w.watcher = newWatcher(slog.NewJSONHandler(w.log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Log = slog.New(w.watcher)
	}
	if c.Timer == nil {
		c.Timer = w.fakeTimers.make
	}
	w.engine = testkit.NewEngine(t, s, clock)
	c.Engine = w.engine
	f, err := forgerun.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.forge = f
	testkit.Register(t, w.engine, f.JobTypes()...)
	w.APIServer = testkit.StartServer(t, c.Log, document(t), problemFormat, f.Mount(),
		httpapi.Health())
	return w
}

var problemFormat = testkit.ProblemReader("urn:millrace:forgerun:")

// customer is a client with its key.
type customer struct {
	w        *world
	id       string
	key      string
	keyID    string
	callback string
}

type issuedKey struct {
	APIKey         *string    `json:"api_key"`
	KeyID          string     `json:"key_id"`
	CreatedAt      time.Time  `json:"created_at"`
	ExpiresAt      *time.Time `json:"expires_at"`
	CallbackSecret string     `json:"callback_secret"`
}

// newClient makes a client without a key.
func (w *world) newClient(t testing.TB) string {
	t.Helper()
	return testkit.DecodeReply[struct {
		ClientID string `json:"client_id"`
	}](t, w.Do(t, "POST", "/v1/clients", "").WantStatus(t, 201)).ClientID
}

// customer makes a client and its first key.
func (w *world) customer(t testing.TB) *customer {
	t.Helper()
	id := w.newClient(t)
	k := testkit.DecodeReply[issuedKey](t, w.Do(t, "POST", "/v1/clients/"+id+"/keys", "").WantStatus(t,
		201))
	return &customer{w, id, *k.APIKey, k.KeyID, k.CallbackSecret}
}

// Do sends a request with the client's key.
func (c *customer) Do(t testing.TB, method, path, body string, header ...string) testkit.Reply {
	t.Helper()
	return c.w.Do(t, method, path, body,
		append([]string{"Authorization", "Bearer " + c.key}, header...)...)
}

// jobView is a job as it is shown.
type jobView struct {
	JobID       string     `json:"job_id"`
	Type        string     `json:"type"`
	State       string     `json:"state"`
	Outcome     *string    `json:"outcome"`
	CreatedAt   time.Time  `json:"created_at"`
	ExecutionAt *time.Time `json:"execution_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	Attempt     int        `json:"attempt"`
	Callback    *string    `json:"callback"`
	WorkKind    string     `json:"work_kind"`
	Definition  *struct {
		WorkKind    string     `json:"work_kind"`
		DurationMS  int64      `json:"duration_ms"`
		ShouldFail  bool       `json:"should_fail"`
		PayloadSize int64      `json:"payload_size"`
		ExecutionAt *time.Time `json:"execution_at"`
		Seed        int64      `json:"seed"`
	} `json:"definition"`
	Failure *struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	} `json:"failure"`
}

// jobReport is a report.
type jobReport struct {
	JobID   string `json:"job_id"`
	Outcome string `json:"outcome"`
	Events  []struct {
		EventID   string    `json:"event_id"`
		JobID     string    `json:"job_id"`
		EventName string    `json:"event_name"`
		PrevState *string   `json:"prev_state"`
		NextState string    `json:"next_state"`
		Timestamp time.Time `json:"timestamp"`
		Scenario  string    `json:"scenario"`
		Reason    string    `json:"reason"`
		Final     *bool     `json:"final"`
	} `json:"events"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt time.Time  `json:"finished_at"`
	DurationMS int64      `json:"duration_ms"`
}

// names are the events in their order.
func (a jobReport) names() string {
	var all []string
	for _, e := range a.Events {
		all = append(all, strings.TrimPrefix(e.EventName, "job_"))
	}
	return strings.Join(all, " ")
}

// submitBody writes a submit; extra are further members as JSON.
func submitBody(kind string, extra ...string) string {
	members := append([]string{`"type":"EXECUTE"`}, extra...)
	if strings.Contains(strings.Join(extra, ","), `"type":`) {
		members = members[1:]
	}
	if kind != "" {
		members = append(members, fmt.Sprintf(`"work_kind":%q`, kind))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func executionAtMember(t time.Time) string {
	return fmt.Sprintf(`"execution_at":%q`, t.Format(time.RFC3339Nano))
}

// submit submits what must be accepted and returns the job's id.
func (c *customer) submit(t testing.TB, body string, header ...string) string {
	t.Helper()
	return testkit.DecodeReply[jobView](t,
		c.Do(t, "POST", "/v1/jobs", body, header...).WantStatus(t, 202)).JobID
}

// get reads a job that must be there.
func (c *customer) get(t testing.TB, id string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t, c.Do(t, "GET", "/v1/jobs/"+id, "").WantStatus(t, 200))
}

// report reads a report that must be there.
func (c *customer) report(t testing.TB, id string) jobReport {
	t.Helper()
	return testkit.DecodeReply[jobReport](t,
		c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").WantStatus(t, 200))
}

func (c *customer) cancel(t testing.TB, id string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t,
		c.Do(t, "POST", "/v1/jobs/"+id+"/cancel", "").WantStatus(t, 200))
}

func (c *customer) retry(t testing.TB, id string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t,
		c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantStatus(t, 200))
}

// wantState fails unless a job is in a state.
func (c *customer) wantState(t testing.TB, id, want string) jobView {
	t.Helper()
	v := c.get(t, id)
	if v.State != want {
		t.Fatalf("job %s is %s, want %s", id, v.State, want)
	}
	return v
}

// claim claims the next job, which must be ready.
func (w *world) claim(t testing.TB) *job.Job {
	t.Helper()
	jobs := w.claims(t, 1)
	if len(jobs) != 1 {
		t.Fatal("there is no job to claim")
	}
	return jobs[0]
}

func (w *world) claims(t testing.TB, n int) []*job.Job {
	t.Helper()
	jobs, err := w.engine.Claim(context.Background(),
		engine.ClaimRequest{JobType: forgerun.Name, Max: n, Worker: "a worker"})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func currentRun(j *job.Job) engine.Run { return engine.Run{ID: j.ID, Run: j.Run} }

// claimAndStart claims the next job and starts it.
func (w *world) claimAndStart(t testing.TB) *job.Job {
	t.Helper()
	j := w.claim(t)
	if _, err := w.engine.Start(context.Background(), currentRun(j)); err != nil {
		t.Fatal(err)
	}
	return j
}

func (w *world) finish(t testing.TB, j *job.Job, o engine.Outcome) {
	t.Helper()
	if _, err := w.engine.Finish(context.Background(), currentRun(j), o); err != nil {
		t.Fatal(err)
	}
}

// claimAndRun claims the next job and runs it as a worker would. The clock advances as long as the
// run takes. It returns the job as it was claimed.
func (w *world) claimAndRun(t testing.TB) *job.Job {
	t.Helper()
	j := w.claim(t)
	w.simulate(t, j)
	return j
}

func (w *world) simulate(t testing.TB, j *job.Job) {
	t.Helper()
	done := make(chan engine.Outcome, 1)
	go func() {
		done <- w.forge.Simulate(context.Background(), j, func(ctx context.Context) error {
			_, err := w.engine.Start(ctx, currentRun(j))
			return err
		})
	}()
	for {
		select {
		case <-w.fakeTimers.created:
			w.fakeTimers.advance(w.fakeTimers.next())
		case o := <-done:
			w.finish(t, j, o)
			return
		}
	}
}

// next is how long it is until the next timer ends.
func (t *fakeTimers) next() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	shortest := time.Duration(0)
	for one := range t.all {
		if d := one.at.Sub(t.clock.Now()); shortest == 0 || d < shortest {
			shortest = d
		}
	}
	return shortest
}

// fail makes the next job fail, whatever it is.
func (w *world) fail(t testing.TB) *job.Job {
	t.Helper()
	j := w.claimAndStart(t)
	w.finish(t, j, engine.Outcome{On: job.Failed, Reason: "broken",
		Failure: []byte(`{"code":"broken","message":"it broke","retryable":true}`)})
	return j
}

// runMaintenance runs maintenance once.
func (w *world) runMaintenance(t testing.TB) { t.Helper(); testkit.RunMaintenance(t, w.engine) }

// jobs counts all jobs in the store.
func (w *world) jobs(t testing.TB) int {
	t.Helper()
	all, err := w.engine.List(context.Background(), store.Filter{JobType: forgerun.Name})
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

// deliver publishes the outbox, as maintenance does, and returns its messages.
func (w *world) deliver(t testing.TB) (all []job.Message) {
	t.Helper()
	for {
		n, err := w.engine.Publish(context.Background(),
			func(ctx context.Context, batch []job.Message) error {
				all = append(all, batch...)
				return w.forge.Deliver(ctx, batch)
			})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
	}
}
