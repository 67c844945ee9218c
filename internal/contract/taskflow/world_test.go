package taskflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a whole TaskFlow behind a real server, on a clock that stands still.
type world struct {
	clock    *testkit.Clock
	store    store.Store
	engine   *engine.Engine
	registry *prometheus.Registry
	log      *journal
	url      string
	client   *http.Client
	again    func(testing.TB) store.Store // opens another connection to the same jobs; nil where that cannot be
}

// journal is a log that is written and read at once.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

const (
	beyondDocument = testkit.BeyondDocument

	bodyLimit      = 1 << 20
	graphBodyLimit = 16 << 20
	lease          = 60 * time.Second
)

func config() taskflow.Config {
	return taskflow.Config{Lease: lease, MaxConcurrent: 1000, BodyLimit: bodyLimit, GraphBodyLimit: graphBodyLimit}
}

// onEveryStore runs a test on SQLite and on PostgreSQL, each in a world of its own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	onEveryStoreWith(t, config(), test)
}

func onEveryStoreWith(t *testing.T, c taskflow.Config, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { test(t, inMemory(t, c)) })
	t.Run("postgres", func(t *testing.T) {
		clock := testkit.NewClock()
		url := pgtest.URL(t)
		open := func(tb testing.TB) store.Store {
			s, err := postgres.Open(context.Background(), postgres.Config{URL: url, Now: clock.Now})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { s.Close() })
			return s
		}
		w := newWorld(t, clock, open(t), c)
		w.again = open
		test(t, w)
	})
}

// inMemory is a world on SQLite for what the store has no part in.
func inMemory(t testing.TB, c taskflow.Config) *world {
	clock := testkit.NewClock()
	return newWorld(t, clock, testkit.Memory(t, clock.Now), c)
}

func newWorld(t testing.TB, clock *testkit.Clock, s store.Store, c taskflow.Config) *world {
	t.Helper()
	w := &world{clock: clock, store: s, registry: prometheus.NewRegistry(), log: &journal{}}
	c.Registry, c.Now, c.Random = w.registry, clock.Now, testkit.Random
	c.Log = slog.New(slog.NewTextHandler(w.log, nil))
	room, err := taskflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.engine = testkit.Engine(t, s, clock, room.Contract())
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.Server(httpapi.Root(room.Mount(w.engine), httpapi.Health()), c.Log)
	server.Start()
	t.Cleanup(server.Close)
	w.url = server.URL
	w.client = &http.Client{Transport: checked(t, http.DefaultTransport)}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return w
}

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request. header are pairs; a body comes as JSON unless header says
// otherwise.
func (w *world) do(t testing.TB, method, path, body string, header ...string) reply {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, w.url+path, content)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(got)}
}

// want fails unless the answer has a status.
func (r reply) want(t testing.TB, status int) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("got %d %s, want %d", r.status, r.body, status)
	}
	return r
}

// read decodes an answer.
func read[T any](t testing.TB, r reply) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return v
}

// trouble is the body of an error.
type trouble struct {
	Code    string
	Message string
	Details *struct {
		CyclePath []string `json:"cycle_path"`
	}
}

// is fails unless the answer is an error with a status and a code, whose message
// has all of the words.
func (r reply) is(t testing.TB, status int, code string, words ...string) trouble {
	t.Helper()
	r.want(t, status)
	p := read[trouble](t, r)
	if p.Code != code || p.Message == "" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %s, want %s", r.body, code)
	}
	for _, word := range words {
		if !strings.Contains(p.Message, word) {
			t.Errorf("%q does not speak of %q", p.Message, word)
		}
	}
	return p
}

type policy struct {
	MaxAttempts int    `json:"max_attempts"`
	Strategy    string `json:"backoff_strategy"`
	BaseDelay   int    `json:"base_delay_seconds"`
	MaxDelay    int    `json:"max_delay_seconds"`
}

// view is a job as it is shown.
type view struct {
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

// spec writes a create; members are further ones as JSON.
func spec(members ...string) string {
	return "{" + strings.Join(append([]string{`"name":"n","queue":"q"`}, members...), ",") + "}"
}

// after writes the dependencies.
func after(ids ...string) string {
	text, _ := json.Marshal(append([]string{}, ids...))
	return `"dependencies":` + string(text)
}

// create creates what must be accepted.
func (w *world) create(t testing.TB, members ...string) view {
	t.Helper()
	return read[view](t, w.do(t, "POST", jobsPath, spec(members...)).want(t, 201))
}

// get reads a job that must be there.
func (w *world) get(t testing.TB, id string) view {
	t.Helper()
	return read[view](t, w.do(t, "GET", pathOf(id), "").want(t, 200))
}

// status fails unless a job has one.
func (w *world) status(t testing.TB, id, want string) view {
	t.Helper()
	v := w.get(t, id)
	if v.Status != want {
		t.Fatalf("job %s is %s, want %s", v.Name, v.Status, want)
	}
	return v
}

// put updates what must be accepted.
func (w *world) put(t testing.TB, id string, members ...string) view {
	t.Helper()
	return read[view](t, w.do(t, "PUT", pathOf(id), "{"+strings.Join(members, ",")+"}").want(t, 200))
}

func idOf(key string) job.ID { return job.ID{Contract: taskflow.Name, Key: key} }

// claims hands out up to n jobs.
func (w *world) claims(t testing.TB, n int) []*job.Job {
	t.Helper()
	jobs, err := w.engine.Claim(context.Background(), engine.ClaimRequest{Contract: taskflow.Name, Max: n, Worker: "a worker"})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// begin hands out one job by its id.
func (w *world) begin(t testing.TB, id string) *job.Job {
	t.Helper()
	j, err := w.engine.ClaimJob(context.Background(), idOf(id), "a worker")
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
	j := w.begin(t, id)
	w.finish(t, j, taskflow.CompletedWith(j, []byte(`{"ok":true}`)))
}

func (w *world) fail(t testing.TB, id string, retryable bool) {
	t.Helper()
	j := w.begin(t, id)
	w.finish(t, j, taskflow.FailedWith(j, "it broke", "broken", retryable))
}

// sweep does what the duties do by themselves.
func (w *world) sweep(t testing.TB) {
	t.Helper()
	if _, err := w.engine.Expire(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.engine.Promote(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// jobs counts all jobs in the store.
func (w *world) jobs(t testing.TB) int {
	t.Helper()
	all, err := w.engine.List(context.Background(), store.Filter{Contract: taskflow.Name})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// together calls fn n times at once and returns what it returned.
func together[T any](n int, fn func(i int) T) []T {
	all := make([]T, n)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			all[i] = fn(i)
		})
	}
	close(begin)
	wg.Wait()
	return all
}

func named(name string) string { return fmt.Sprintf(`"name":%q`, name) }
