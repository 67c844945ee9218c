package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a whole Relay behind a real server, on a clock that stands still.
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

func (j *journal) String() string { j.mu.Lock(); defer j.mu.Unlock(); return j.text.String() }

const bodyLimit = 1 << 20

func config() relay.Config {
	return relay.Config{V1: true, MaxNumJobs: 50, BodyLimit: bodyLimit, RetryableStatus: 429}
}

// onEveryStore runs a test on SQLite and on PostgreSQL, each in a world of its
// own. Subtests share it, so they use queues of their own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		clock := testkit.NewClock()
		test(t, newWorld(t, clock, testkit.Memory(t, clock.Now), config()))
	})
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
		w := newWorld(t, clock, open(t), config())
		w.again = open
		test(t, w)
	})
}

// inMemory is a world on SQLite for what the store has no part in.
func inMemory(t testing.TB, c relay.Config) *world {
	clock := testkit.NewClock()
	return newWorld(t, clock, testkit.Memory(t, clock.Now), c)
}

func newWorld(t testing.TB, clock *testkit.Clock, s store.Store, c relay.Config) *world {
	t.Helper()
	w := &world{clock: clock, store: s, registry: prometheus.NewRegistry(), log: &journal{}}
	c.Registry = w.registry
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(w.log, nil))
	}
	r, err := relay.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.engine = testkit.Engine(t, s, clock, r.Contract())
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.Server(httpapi.Root(r.Mount(w.engine), httpapi.Health()), c.Log)
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

// do sends a request. header are pairs; a body comes with a JSON Content-Type
// unless header says otherwise.
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

// want fails unless the answer has a status; every error explains itself in
// plain text (RL-031).
func (r reply) want(t testing.TB, status int) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("got %d %s, want %d", r.status, r.body, status)
	}
	return r
}

// explains fails unless the answer is an error in plain text that names all of
// the words.
func (r reply) explains(t testing.TB, words ...string) reply {
	t.Helper()
	if got := r.header.Get("Content-Type"); got != "text/plain; charset=utf-8" || strings.TrimSpace(r.body) == "" {
		t.Errorf("an error of type %q says %q", got, r.body)
	}
	for _, word := range words {
		if !strings.Contains(r.body, word) {
			t.Errorf("%q does not speak of %q", r.body, word)
		}
	}
	return r
}

// empty fails unless the answer has no body.
func (r reply) empty(t testing.TB) reply {
	t.Helper()
	if r.body != "" {
		t.Errorf("got a body: %s", r.body)
	}
	return r
}

// view is a job as version 2 shows it.
type view struct {
	Queue            string          `json:"queue"`
	ID               string          `json:"id"`
	Timeout          int             `json:"timeout"`
	MaxRetries       *int            `json:"max_retries"`
	RetriesRemaining *int            `json:"retries_remaining"`
	Payload          json.RawMessage `json:"payload"`
	State            json.RawMessage `json:"state"`
	RunID            *string         `json:"run_id"`
	RunAt            time.Time       `json:"run_at"`
	UpdatedAt        time.Time       `json:"updated_at"`
	CreatedAt        time.Time       `json:"created_at"`
}

// spec writes a job to submit; extra are further members as JSON.
func spec(queue, id string, extra ...string) string {
	members := append([]string{fmt.Sprintf(`"queue":%q,"id":%q`, queue, id)}, extra...)
	for _, d := range []string{`"timeout":30`, `"payload":{}`} {
		name, _, _ := strings.Cut(d, ":")
		if !strings.Contains(strings.Join(extra, ","), name+":") {
			members = append(members, d)
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func at(t time.Time) string { return fmt.Sprintf(`"run_at":%q`, t.Format(time.RFC3339Nano)) }

func (w *world) enqueue(t testing.TB, mode string, specs ...string) reply {
	t.Helper()
	path := "/v2/queues/jobs"
	if mode != "" {
		path += "?mode=" + mode
	}
	return w.do(t, "POST", path, "["+strings.Join(specs, ",")+"]")
}

// put enqueues what must be accepted.
func (w *world) put(t testing.TB, specs ...string) {
	t.Helper()
	w.enqueue(t, "", specs...).want(t, 202).empty(t)
}

func jobPath(queue, id string) string {
	return "/v2/queues/" + url.PathEscape(queue) + "/jobs/" + url.PathEscape(id)
}

func (v view) runPath() string { return jobPath(v.Queue, v.ID) + "/run-id/" + *v.RunID }

// next polls; no jobs is 204.
func (w *world) next(t testing.TB, queue string, n int) []view {
	t.Helper()
	r := w.do(t, "GET", fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", url.PathEscape(queue), n), "")
	if r.status == 204 {
		r.empty(t)
		return nil
	}
	r.want(t, 200)
	var jobs []view
	if err := json.Unmarshal([]byte(r.body), &jobs); err != nil || len(jobs) == 0 || len(jobs) > n {
		t.Fatalf("%d asked for, got %s: %v", n, r.body, err)
	}
	return jobs
}

// claim polls for one job that must be there.
func (w *world) claim(t testing.TB, queue string) view {
	t.Helper()
	jobs := w.next(t, queue, 1)
	if len(jobs) != 1 || jobs[0].RunID == nil {
		t.Fatalf("got %v, want one job with a run", jobs)
	}
	return jobs[0]
}

func ids(jobs []view) string {
	var all []string
	for _, j := range jobs {
		all = append(all, j.ID)
	}
	return strings.Join(all, " ")
}

// get reads a job that must be there, and checks that HEAD agrees.
func (w *world) get(t testing.TB, queue, id string) (v view) {
	t.Helper()
	w.do(t, "HEAD", jobPath(queue, id), "").want(t, 200).empty(t)
	r := w.do(t, "GET", jobPath(queue, id), "").want(t, 200)
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// gone checks that neither GET nor HEAD knows a job.
func (w *world) gone(t testing.TB, queue, id string) {
	t.Helper()
	w.do(t, "HEAD", jobPath(queue, id), "").want(t, 404).empty(t)
	w.do(t, "GET", jobPath(queue, id), "").want(t, 404).explains(t)
}

func (w *world) beat(t testing.TB, v view, state string) reply {
	t.Helper()
	return w.do(t, "PATCH", v.runPath(), state)
}

// lost checks that a run id is worth nothing any more: its heartbeat is 404,
// its completion and its requeue change nothing.
func (w *world) lost(t testing.TB, v view) {
	t.Helper()
	r := w.do(t, "GET", jobPath(v.Queue, v.ID), "")
	w.beat(t, v, `"changed"`).want(t, 404).explains(t)
	w.do(t, "DELETE", v.runPath(), "").want(t, 200)
	w.do(t, "PUT", v.runPath(), "["+spec(v.Queue, v.ID+" of a lost run")+"]").want(t, 202)
	w.gone(t, v.Queue, v.ID+" of a lost run")
	if after := w.do(t, "GET", jobPath(v.Queue, v.ID), ""); after.status != r.status || after.body != r.body {
		t.Errorf("a lost run changed %s to %s", r.body, after.body)
	}
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

func number(p *int) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
