package relay_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a whole Relay behind a real server, on a clock that only the test advances.
type world struct {
	*testkit.APIServer
	clock    *testkit.Clock
	store    store.Store
	engine   *engine.Engine
	relay    *relay.Relay
	registry *prometheus.Registry
	log      *testkit.LogBuffer
	// opens another connection to the same jobs; nil where that cannot be
	reopenStore func(testing.TB) store.Store
}

const bodyLimit = 1 << 20

func config() relay.Config {
	return relay.Config{Settings: relay.Settings{V1: true, MaxNumJobs: 50, BodyLimit: bodyLimit,
		RetryableStatus: 429}}
}

// onEveryStore runs a test on SQLite and on PostgreSQL, each in a world of its own. Subtests share
// it, so they use queues of their own.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		test(t, newWorldAt(t, p, config()))
	})
}

// inMemory is a world on SQLite for what the store has no part in.
func inMemory(t testing.TB, c relay.Config) *world { return newWorldAt(t, testkit.InMemory(t), c) }

func newWorldAt(t testing.TB, p testkit.Database, c relay.Config) *world {
	w := newWorld(t, p.Clock, p.Store, c)
	w.reopenStore = p.Reopen
	return w
}

func newWorld(t testing.TB, clock *testkit.Clock, s store.Store, c relay.Config) *world {
	t.Helper()
	w := &world{clock: clock, store: s, registry: prometheus.NewRegistry(),
		log: &testkit.LogBuffer{}}
	c.Registry = w.registry
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(w.log, nil))
	}
	w.engine = testkit.NewEngine(t, s, clock)
	c.Engine = w.engine
	r, err := relay.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.relay = r
	testkit.Register(t, w.engine, r.JobType())
	w.APIServer = testkit.StartServer(t, c.Log, document(t), wantError, r.Mount(),
		httpapi.Health())
	return w
}

// wantError reads an error: every one explains itself in plain text (RL-031).
func wantError(t testing.TB, r testkit.Reply) (code, text string) {
	t.Helper()
	if got := r.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" || r.Status < 400 {
		t.Errorf("an error of type %q and status %d", got, r.Status)
	}
	return "", r.Body
}

// jobView is a job as version 2 shows it.
type jobView struct {
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

// jobBody writes a job to submit; extra are further members as JSON.
func jobBody(queue, id string, extra ...string) string {
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

func (w *world) enqueue(t testing.TB, mode string, specs ...string) testkit.Reply {
	t.Helper()
	path := "/v2/queues/jobs"
	if mode != "" {
		path += "?mode=" + mode
	}
	return w.Do(t, "POST", path, "["+strings.Join(specs, ",")+"]")
}

// put enqueues what must be accepted.
func (w *world) put(t testing.TB, specs ...string) {
	t.Helper()
	w.enqueue(t, "", specs...).WantStatus(t, 202).WantEmpty(t)
}

func jobPath(queue, id string) string {
	return "/v2/queues/" + url.PathEscape(queue) + "/jobs/" + url.PathEscape(id)
}

func (v jobView) runPath() string { return jobPath(v.Queue, v.ID) + "/run-id/" + *v.RunID }

// next polls; no jobs is 204.
func (w *world) next(t testing.TB, queue string, n int) []jobView {
	t.Helper()
	r := w.Do(t, "GET", fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", url.PathEscape(queue), n), "")
	return claimedJobs(t, r, n)
}

// claimedJobs reads the answer to a claim of up to n jobs.
func claimedJobs(t testing.TB, r testkit.Reply, n int) []jobView {
	t.Helper()
	if r.Status == 204 {
		r.WantEmpty(t)
		return nil
	}
	r.WantStatus(t, 200)
	var jobs []jobView
	if err := json.Unmarshal([]byte(r.Body), &jobs); err != nil || len(jobs) == 0 || len(jobs) > n {
		t.Fatalf("%d asked for, got %s: %v", n, r.Body, err)
	}
	return jobs
}

// claim polls for one job that must be there.
func (w *world) claim(t testing.TB, queue string) jobView {
	t.Helper()
	jobs := w.next(t, queue, 1)
	if len(jobs) != 1 || jobs[0].RunID == nil {
		t.Fatalf("got %v, want one job with a run", jobs)
	}
	return jobs[0]
}

func ids(jobs []jobView) string {
	var all []string
	for _, j := range jobs {
		all = append(all, j.ID)
	}
	return strings.Join(all, " ")
}

// get reads a job that must be there, and checks that HEAD agrees.
func (w *world) get(t testing.TB, queue, id string) (v jobView) {
	t.Helper()
	w.Do(t, "HEAD", jobPath(queue, id), "").WantStatus(t, 200).WantEmpty(t)
	r := w.Do(t, "GET", jobPath(queue, id), "").WantStatus(t, 200)
	if err := json.Unmarshal([]byte(r.Body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// wantGone checks that neither GET nor HEAD knows a job.
func (w *world) wantGone(t testing.TB, queue, id string) {
	t.Helper()
	w.Do(t, "HEAD", jobPath(queue, id), "").WantStatus(t, 404).WantEmpty(t)
	w.Do(t, "GET", jobPath(queue, id), "").WantStatus(t, 404).WantErrorText(t)
}

func (w *world) heartbeat(t testing.TB, v jobView, state string) testkit.Reply {
	t.Helper()
	return w.Do(t, "PATCH", v.runPath(), state)
}

// wantLost checks that a run id is worth nothing any more: its heartbeat is 404, its completion and
// its requeue change nothing.
func (w *world) wantLost(t testing.TB, v jobView) {
	t.Helper()
	r := w.Do(t, "GET", jobPath(v.Queue, v.ID), "")
	w.heartbeat(t, v, `"changed"`).WantStatus(t, 404).WantErrorText(t)
	w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
	w.Do(t, "PUT", v.runPath(), "["+jobBody(v.Queue, v.ID+" of a lost run")+"]").WantStatus(t, 202)
	w.wantGone(t, v.Queue, v.ID+" of a lost run")
	if after := w.Do(t, "GET", jobPath(v.Queue, v.ID), ""); after.Status != r.Status ||
		after.Body != r.Body {
		t.Errorf("a lost run changed %s to %s", r.Body, after.Body)
	}
}

// runMaintenance runs maintenance once.
func (w *world) runMaintenance(t testing.TB) { t.Helper(); testkit.RunMaintenance(t, w.engine) }

func number(p *int) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

func assertEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
