package fetchbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	maxManifest = 5 << 20
	lease       = 30 * time.Second
	tries       = 3
	maxLostRuns = 4
	window      = 14 * 24 * time.Hour

	gallery = "gallery"

	beyondDocument = testkit.HeaderUndocumented
)

func config() fetchbox.Config {
	return fetchbox.Config{PruneInterval: time.Minute, Settings: fetchbox.Settings{
		MaxResources: 1000, MaxManifest: maxManifest, MaxAttempts: tries,
		MaxLostRuns: maxLostRuns, BackoffBase: time.Second, Lease: lease,
		ConnectTimeout: 10 * time.Second, DownloadTimeout: 60 * time.Second, MaxDownload: 1 << 30,
		MaxPerHost:        16,
		IdempotencyWindow: window, LedgerRetention: 30 * 24 * time.Hour, LedgerMaxBytes: 5e9,
		Types: map[string]*fetchbox.Type{
			"default": {},
			gallery: {DefaultHeaders: map[string]setting.Secret{
				"User-Agent": setting.NewSecret("FetchBox/1.0"),
				"X-From":     setting.NewSecret("type")}, Bucket: "pictures",
				KeyPrefix: "gallery/", Options: maxParallel(2)},
		}}}
}

// maxParallel are the options of a job type that limit its downloads.
func maxParallel(n int64) map[string]any { return map[string]any{"max_parallel_downloads": n} }

func secrets(texts ...string) []setting.Secret {
	all := make([]setting.Secret, len(texts))
	for i, text := range texts {
		all[i] = setting.NewSecret(text)
	}
	return all
}

// world is a whole FetchBox behind a real server, on a clock that only the test advances, with
// streams and objects of its own. Its tasks are run by the tests; nothing happens by itself.
type world struct {
	*testkit.APIServer
	clock    *testkit.Clock
	store    store.Store
	engine   *engine.Engine
	fetchbox *fetchbox.FetchBox
	streams  *stream.Streams
	objects  *object.Objects
	dir      string // of the objects
	// how far the clock of the streams is ahead of that of the machine, in nanoseconds
	ahead    *atomic.Int64
	registry *prometheus.Registry
	log      *testkit.LogBuffer
	handler  http.Handler
	marks    int // see ingestBatch
	// opens another connection to the same jobs; nil where that cannot be
	reopenStore func(testing.TB) store.Store
}

func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		test(t, newWorldAt(t, p, config()))
	})
}

// inMemory is a world on SQLite for what the store has no part in.
func inMemory(t testing.TB, c fetchbox.Config) *world {
	return newWorldAt(t, testkit.InMemory(t), c)
}

func newWorldAt(t testing.TB, p testkit.Database, c fetchbox.Config) *world {
	t.Helper()
	w := &world{clock: p.Clock, store: p.Store, reopenStore: p.Reopen, dir: t.TempDir(),
		ahead: &atomic.Int64{}}
	log := slog.New(slog.DiscardHandler)
	var err error
	w.streams, err = stream.Open(context.Background(),
		stream.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Node: "test", Log: log,
			Now: func() time.Time {
				return time.Now().Add(time.Duration(w.ahead.Load()))
			},
			Specs: fetchbox.Streams(7*24*time.Hour, 30*24*time.Hour, 90*24*time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.streams.Close)
	if w.objects, err = object.Open(context.Background(),
		object.Config{Dir: w.dir, Bucket: "millrace"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.objects.Close() })
	w.open(t, c)
	return w
}

// node is another node on the same jobs, streams and objects.
func (w *world) node(t testing.TB, c fetchbox.Config) *world {
	t.Helper()
	other := *w
	if w.reopenStore != nil {
		other.store = w.reopenStore(t)
	}
	other.open(t, c)
	return &other
}

func (w *world) open(t testing.TB, c fetchbox.Config) {
	t.Helper()
	w.registry, w.log = prometheus.NewRegistry(), &testkit.LogBuffer{}
	c.Registry, c.Now, c.Elapsed, c.Random, c.Node = w.registry, w.clock.Now, w.clock.Monotonic,
		testkit.RandomBytes, "test"
	c.Log = slog.New(slog.NewJSONHandler(w.log, nil))
	c.Objects, c.Streams = w.objects, w.streams
	w.engine = testkit.NewEngine(t, w.store, w.clock)
	c.Engine = w.engine
	var err error
	if w.fetchbox, err = fetchbox.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.fetchbox.StopFollowing)
	testkit.Register(t, w.engine, w.fetchbox.JobTypes()...)
	mount := w.fetchbox.Mount()
	w.handler = mount.Handler
	w.APIServer = testkit.StartServer(t, c.Log, document(t), fetchError, mount, httpapi.Health())
}

// wantRefused is why a config is.
func (w *world) wantRefused(c fetchbox.Config) error {
	c.Registry, c.Now, c.Elapsed, c.Random, c.Node = prometheus.NewRegistry(), w.clock.Now,
		w.clock.Monotonic, testkit.RandomBytes, "test"
	c.Log, c.Objects, c.Streams = slog.New(slog.DiscardHandler), w.objects, w.streams
	c.Engine = w.engine
	_, err := fetchbox.New(c)
	return err
}

// fetchError reads the body of an error (G-FB-19).
func fetchError(t testing.TB, r testkit.Reply) (code, text string) {
	t.Helper()
	p := testkit.DecodeReply[struct {
		Error struct{ Code, Message string }
	}](t, r)
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("an error of type %q", got)
	}
	return p.Error.Code, p.Error.Message
}

// receipt is the answer to a submit.
type receipt struct {
	JobID         string `json:"job_id"`
	ManifestKey   string `json:"manifest_key"`
	ResourceCount int    `json:"resource_count"`
}

type problem struct{ Code, Message string }

// view is a job as operators see it.
type view struct {
	JobID       string    `json:"job_id"`
	JobType     string    `json:"job_type"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Total       int       `json:"resource_total"`
	Completed   int       `json:"resource_completed"`
	Failed      int       `json:"resource_failed"`
	ManifestKey string    `json:"manifest_key"`
	Tenant      string    `json:"tenant"`
	LogCursor   struct {
		Stream string
		Offset uint64
	} `json:"log_cursor"`
	LastError *problem `json:"last_error"`
}

// taskMessage is a message of jobs.tasks.
type taskMessage struct {
	JobID      string            `json:"job_id"`
	JobType    string            `json:"job_type"`
	ResourceID string            `json:"resource_id"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers"`
	Tags       map[string]string `json:"tags"`
	Storage    struct {
		Bucket, Key string
		Metadata    map[string]string
	} `json:"storage"`
	ManifestKey string `json:"manifest_key"`
	Tenant      string `json:"tenant"`
	Attempt     int    `json:"attempt"`
}

// line is an entry of a job's log as it is read back.
type line struct {
	JobID       string         `json:"job_id"`
	ResourceID  string         `json:"resource_id"`
	Level       string         `json:"level"`
	Message     string         `json:"message"`
	Fields      map[string]any `json:"fields"`
	TimestampMS int64          `json:"timestamp_ms"`
	Offset      uint64         `json:"offset"`
}

// manifest writes a manifest of n resources.
func manifest(n int) string {
	var b strings.Builder
	b.WriteString(`{"manifest_version":"v1","metadata":{"crawl":1},"resources":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"r%04d","url":"https://example.com/%d.jpg"}`, i, i)
	}
	return b.String() + "]}"
}

// manifestWith writes a manifest of one resource that has more members.
func manifestWith(members string) string {
	return `{"manifest_version":"v1","metadata":{},"resources":[{"id":"r","url":"https://example.com/a"` + members + `}]}`
}

// post submits a manifest as a job type; header are further ones in pairs.
func (w *world) post(t testing.TB, body string, header ...string) testkit.Reply {
	t.Helper()
	return w.Do(t, http.MethodPost, "/jobs", body,
		append([]string{"X-Fetchbox-Job-Type", gallery}, header...)...)
}

// submit submits what must be accepted.
func (w *world) submit(t testing.TB, body string, header ...string) receipt {
	t.Helper()
	return testkit.DecodeReply[receipt](t, w.post(t, body, header...).WantStatus(t, 202))
}

func (w *world) get(t testing.TB, id string) view {
	t.Helper()
	return testkit.DecodeReply[view](t, w.Do(t, http.MethodGet, "/operators/jobs/"+id,
		"").WantStatus(t, 200))
}

// status fails unless a job has one.
func (w *world) status(t testing.TB, id, want string) view {
	t.Helper()
	v := w.get(t, id)
	if v.Status != want {
		t.Fatalf("the job is %s, want %s", v.Status, want)
	}
	return v
}

// untilStatus waits until a job has one. A handler is called before its job is done.
func (w *world) untilStatus(t testing.TB, id, want string) view {
	t.Helper()
	testkit.WaitUntil(t, "the job to be "+want, func() bool {
		return w.get(t, id).Status == want
	})
	return w.get(t, id)
}

// claim claims up to n tasks.
func (w *world) claim(t testing.TB, n int) []*job.Job {
	t.Helper()
	return w.claimOf(t, fetchbox.Tasks, n)
}

func (w *world) claimOf(t testing.TB, contract string, n int) []*job.Job {
	t.Helper()
	jobs, err := w.engine.Claim(context.Background(),
		engine.ClaimRequest{JobType: contract, Max: n, Worker: "a worker"})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func currentRun(j *job.Job) engine.Run { return engine.Run{ID: j.ID, Run: j.Run} }

func (w *world) finish(t testing.TB, j *job.Job, o engine.Outcome) {
	t.Helper()
	if _, err := w.engine.Finish(context.Background(), currentRun(j), o); err != nil {
		t.Fatal(err)
	}
}

// finishAll ends the runs of jobs in one call.
func (w *world) finishAll(t testing.TB, jobs []*job.Job, o engine.Outcome) {
	t.Helper()
	requests := make([]engine.FinishRequest, len(jobs))
	for i, j := range jobs {
		requests[i] = engine.FinishRequest{Run: currentRun(j), Outcome: o}
	}
	for _, r := range w.engine.FinishAll(context.Background(), requests) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// finalize finalizes the jobs that ended, as the finalizer does.
func (w *world) finalize(t testing.TB, n int) {
	t.Helper()
	jobs := w.claimOf(t, fetchbox.Name, n)
	if len(jobs) != n {
		t.Fatalf("%d jobs have ended, want %d", len(jobs), n)
	}
	for _, j := range jobs {
		w.finish(t, j, engine.Outcome{On: job.Started})
		w.finish(t, j, engine.Outcome{On: fetchbox.FinalCause(j)})
	}
}

// deliver publishes the outbox, as maintenance does.
func (w *world) deliver(t testing.TB) {
	t.Helper()
	if _, err := w.engine.Publish(context.Background(), w.fetchbox.Deliver); err != nil {
		t.Fatal(err)
	}
}

// read returns the messages of a stream.
func read[T any](t testing.TB, w *world, name, subject string) (all []T) {
	t.Helper()
	entries, err := w.streams.Read(context.Background(), name, subject, 0, 10000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var v T
		if err := json.Unmarshal(e.Data, &v); err != nil {
			t.Fatalf("%s holds %s: %v", subject, e.Data, err)
		}
		all = append(all, v)
	}
	return all
}

func (w *world) messages(t testing.TB) []taskMessage {
	t.Helper()
	return read[taskMessage](t, w, "JOBS_TASKS", "jobs.tasks")
}

// logs reads the log of a job.
func (w *world) logs(t testing.TB, id, query string) (all []line) {
	t.Helper()
	r := w.Do(t, http.MethodGet, "/operators/jobs/"+id+"/logs"+query, "").WantStatus(t, 200)
	for text := range strings.Lines(r.Body) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("the log has %q: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

// all lists what the store has of a contract.
func (w *world) all(t testing.TB, contract string) []*job.Job {
	t.Helper()
	jobs, err := w.engine.List(context.Background(), store.Filter{JobType: contract})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// stored lists the keys of the objects of a bucket that hold manifests.
func (w *world) stored(t testing.TB) (keys []string) {
	t.Helper()
	_ = filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(path) == "metadata.json" {
			keys = append(keys, path)
		}
		return nil
	})
	return keys
}

// object reads an object by its s3:// name.
func (w *world) object(t testing.TB, uri string) []byte {
	t.Helper()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(uri, "s3://"), "/")
	r, _, err := w.objects.Open(context.Background(), bucket, key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wantNothingStored fails where a request has left anything.
func (w *world) wantNothingStored(t testing.TB) {
	t.Helper()
	w.deliver(t)
	if jobs, tasks := w.all(t, fetchbox.Name), w.all(t, fetchbox.Tasks); len(jobs)+len(tasks) != 0 {
		t.Errorf("there are %d jobs and %d tasks, want none", len(jobs), len(tasks))
	}
	if keys := w.stored(t); len(keys) != 0 {
		t.Errorf("these are stored: %v", keys)
	}
	if sent := w.messages(t); len(sent) != 0 {
		t.Errorf("%d tasks were published", len(sent))
	}
}

// counter reads a metric, whose labels are given in pairs.
func (w *world) counter(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got := map[string]string{}
			for _, l := range m.GetLabel() {
				got[l.GetName()] = l.GetValue()
			}
			if f.GetName() != "fetchbox_"+name || !maps.Equal(got, want) {
				continue
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount())
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s %v", name, labels)
	return 0
}

func (w *world) sweep(t testing.TB) { t.Helper(); testkit.RunMaintenance(t, w.engine) }

func assertEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

var (
	storedOutcome = fetchbox.Stored()
	brokeOutcome  = fetchbox.BrokenOutcome("HTTP_403", false, 0)
)

// request is a submit as net/http sends it.
func (w *world) request(t testing.TB, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, w.URL+"/jobs", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Fetchbox-Job-Type", gallery)
	return req
}

// awaitEnd ends the next task of a job in one way.
func (w *world) awaitEnd(t testing.TB, jobID string, o engine.Outcome) {
	t.Helper()
	w.finish(t, w.claimOnly(t, jobID), o)
}

// dropJob makes a job vanish without a trace, with its tasks.
func (w *world) dropJob(t testing.TB, jobID string) {
	t.Helper()
	err := w.store.Update(context.Background(), func(tx store.Tx) error {
		jobs, err := tx.Load(store.Selector{
			IDs:  []job.ID{{JobType: fetchbox.Name, Key: jobID}},
			Lock: true,
		})
		if err != nil || len(jobs) != 1 {
			return fmt.Errorf("there are %d such jobs: %w", len(jobs), err)
		}
		children, err := tx.List(store.Filter{Parent: jobs[0].Seq})
		if err != nil {
			return err
		}
		return tx.Apply(store.Changes{Delete: append(children.Jobs, jobs...)})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// claimOnly takes the next task of a job up and leaves it; finishClaimed ends the first one that is
// held.
func (w *world) claimOnly(t testing.TB, jobID string) *job.Job {
	t.Helper()
	for _, j := range w.all(t, fetchbox.Tasks) {
		if of, _ := fetchbox.Label(j); of != jobID || j.Phase != job.Ready {
			continue
		}
		run, err := w.engine.ClaimJob(context.Background(), j.ID, "a worker")
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	t.Fatalf("job %s has no task to be had", jobID)
	return nil
}

func (w *world) finishClaimed(t testing.TB, o engine.Outcome) {
	t.Helper()
	for _, j := range w.all(t, fetchbox.Tasks) {
		if j.Phase == job.Leased {
			w.finish(t, j, o)
			return
		}
	}
	t.Fatal("no task is held")
}
