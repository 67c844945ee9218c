package images_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// childWord makes this binary the child that decodes pictures.
const childWord = "picture-child"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childWord {
		os.Exit(picture.Child(os.Stdin, os.Stdout, os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

const (
	lockTimeout = 10 * time.Minute
	maxUpload   = 256 << 10
	maxPixels   = 1_000_000
	bucket      = "millrace"

	filesPath       = "/images/v1/files"
	jobsPath        = "/images/v1/jobs"
	deadLettersPath = "/images/v1/dead-letters"

	queued     job.State = "queued"
	processing job.State = "processing"
	retryable  job.State = "failed_retryable"
	completed  job.State = "completed"
	failed     job.State = "failed"
)

func config() images.Config {
	return images.Config{Grace: 5 * time.Second, Settings: images.Settings{
		LockTimeout: lockTimeout, MaxAttempts: 3, BackoffBase: 5 * time.Second,
		BackoffMax: 5 * time.Minute,
		Sizes:      []int{16, 64}, MaxUpload: maxUpload, MaxPixels: maxPixels, Workers: 2}}
}

// processor is the real one. Its child has no environment, and as this binary it may have the race
// detector, which waits for a second at the end unless it is told not to.
func processor() *picture.Processor {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return &picture.Processor{Command: []string{"env", "GORACE=atexit_sleep_ms=0", self, childWord},
		Limits: picture.Limits{Pixels: maxPixels, Memory: picture.DefaultMemory,
			Timeout: picture.DefaultTimeout}}
}

// world is a whole Images behind a real server, on a clock that only the test advances, with
// objects in a directory. Nothing happens by itself: messages are delivered and attempts are made
// by the tests.
type world struct {
	*testkit.APIServer
	clock       *testkit.Clock
	store       store.Store
	engine      *engine.Engine
	images      *images.Images
	queue       *memoryQueue
	objects     *object.Objects
	dir         string // of the objects
	api, worker *prometheus.Registry
	log         *testkit.LogBuffer
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
func inMemory(t testing.TB, c images.Config) *world { return newWorldAt(t, testkit.InMemory(t), c) }

func newWorldAt(t testing.TB, p testkit.Database, c images.Config) *world {
	t.Helper()
	w := &world{clock: p.Clock, store: p.Store, reopenStore: p.Reopen, dir: t.TempDir(),
		queue: &memoryQueue{}}
	var err error
	if w.objects, err = object.Open(context.Background(),
		object.Config{Dir: w.dir, Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.objects.Close() })
	w.open(t, c)
	return w
}

// node is another node on the same jobs, objects and messages.
func (w *world) node(t testing.TB, c images.Config) *world {
	t.Helper()
	other := *w
	if w.reopenStore != nil {
		other.store = w.reopenStore(t)
	}
	other.open(t, c)
	return &other
}

func (w *world) open(t testing.TB, c images.Config) {
	t.Helper()
	w.api, w.worker, w.log = prometheus.NewRegistry(), prometheus.NewRegistry(),
		&testkit.LogBuffer{}
	c.API, c.Worker, c.Now, c.Random, c.Node = w.api, w.worker, w.clock.Now, testkit.RandomBytes,
		"test"
	c.Log = slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.Objects, c.Bucket, c.WorkDir = w.objects, bucket, t.TempDir()
	if c.Queue == nil {
		c.Queue = w.queue
	}
	if c.Processor == nil {
		c.Processor = processor()
	}
	w.engine = testkit.NewEngine(t, w.store, w.clock)
	c.Engine = w.engine
	var err error
	if w.images, err = images.New(c); err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, w.engine, w.images.JobTypes()...)
	w.APIServer = testkit.StartServer(t, c.Log, document(t),
		testkit.ProblemReader("urn:millrace:images:"), w.images.Mount(),
		httpapi.Health(w.images.Checks()...))
}

// memoryQueue is a queue whose messages lie where tests see them.
type memoryQueue struct {
	mu   sync.Mutex
	sent []message.Message
	fail error // of Send
}

func (b *memoryQueue) Send(_ context.Context, all []message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail == nil {
		b.sent = append(b.sent, all...)
	}
	return b.fail
}

func (b *memoryQueue) Ping(context.Context) error { return nil }
func (b *memoryQueue) Receive(ctx context.Context, _ func(context.Context, message.Delivery)) {
	<-ctx.Done()
}
func (b *memoryQueue) Close() {}

// receive empties the box and returns what was in it.
func (b *memoryQueue) receive() []message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.sent
	b.sent = nil
	return all
}

// messages has the outbox published, empties the box and returns what was in it.
func (w *world) messages(t testing.TB) []message.Message {
	t.Helper()
	if _, err := w.engine.Publish(context.Background(), w.images.Deliver); err != nil {
		t.Fatal(err)
	}
	return w.queue.receive()
}

// drawImage is a picture that differs everywhere.
func drawImage(width, height int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.SetNRGBA(x, y, color.NRGBA{uint8(x * 255 / width), uint8(y * 255 / height),
				uint8((x ^ y) & 255), 255})
		}
	}
	return m
}

func jpegOf(t testing.TB, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, drawImage(width, height), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pngOf(t testing.TB, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, drawImage(width, height)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type receipt struct {
	FileID string `json:"file_id"`
	JobID  string `json:"job_id"`
	Status string
}

// send uploads a body as it is.
func (w *world) send(t testing.TB, mime string, body []byte, query string,
	header ...string) testkit.Reply {
	t.Helper()
	return w.Do(t, "POST", filesPath+query, string(body),
		append([]string{"Content-Type", mime}, header...)...)
}

// formPart is one of a form.
type formPart struct{ name, file, mime, body string }

// form uploads a form.
func (w *world) form(t testing.TB, parts ...formPart) testkit.Reply {
	t.Helper()
	var b bytes.Buffer
	f := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		disposition := `form-data; name="` + p.name + `"`
		if p.file != "" {
			disposition += `; filename="` + p.file + `"`
		}
		h.Set("Content-Disposition", disposition)
		if p.mime != "" {
			h.Set("Content-Type", p.mime)
		}
		to, err := f.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(to, p.body)
	}
	f.Close()
	return w.Do(t, "POST", filesPath, b.String(), "Content-Type", f.FormDataContentType())
}

// put uploads a picture that must be accepted.
func (w *world) put(t testing.TB, body []byte, header ...string) receipt {
	t.Helper()
	return testkit.DecodeReply[receipt](t,
		w.send(t, http.DetectContentType(body), body, "", header...).WantStatus(t, 202))
}

// jobView is a job as it is shown.
type jobView struct {
	JobID         string     `json:"job_id"`
	JobType       string     `json:"job_type"`
	Status        string     `json:"status"`
	FileID        string     `json:"file_id"`
	UserID        *string    `json:"user_id"`
	AttemptCount  int        `json:"attempt_count"`
	MaxAttempts   int        `json:"max_attempts"`
	LastError     *string    `json:"last_error"`
	LastErrorType *string    `json:"last_error_type"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
	LockedAt      *time.Time `json:"locked_at"`
}

type fileView struct {
	FileID   string `json:"file_id"`
	Status   string `json:"status"`
	MIME     string `json:"mime_type"`
	Size     int64  `json:"size_bytes"`
	Width    *int   `json:"width"`
	Height   *int   `json:"height"`
	Variants []struct {
		Size, Width, Height int
		Bytes               int64
		Key, URL            string
	}
	JobID string `json:"job_id"`
}

func (w *world) job(t testing.TB, id string) jobView {
	t.Helper()
	return testkit.DecodeReply[jobView](t, w.Do(t, "GET", jobsPath+"/"+id, "").WantStatus(t, 200))
}

// status fails unless a job has one.
func (w *world) status(t testing.TB, id string, want job.State) jobView {
	t.Helper()
	v := w.job(t, id)
	if v.Status != string(want) {
		t.Fatalf("job %s is %s, want %s", id, v.Status, want)
	}
	return v
}

func (w *world) file(t testing.TB, id, status string) fileView {
	t.Helper()
	v := testkit.DecodeReply[fileView](t, w.Do(t, "GET", filesPath+"/"+id, "").WantStatus(t, 200))
	if v.Status != status {
		t.Fatalf("file %s is %s, want %s", id, v.Status, status)
	}
	return v
}

// create creates a job that must be accepted.
func (w *world) create(t testing.TB, jobType, fileID string, members ...string) jobView {
	t.Helper()
	body := `{"type":"` + jobType + `","file_id":"` + fileID + `"` +
		strings.Join(append([]string{""}, members...), ",") + `}`
	return testkit.DecodeReply[jobView](t, w.Do(t, "POST", jobsPath, body).WantStatus(t, 202))
}

func engineJobID(key string) job.ID { return job.ID{JobType: images.Name, Key: key} }

// state is the job as the engine has it.
func (w *world) state(t testing.TB, id string) *job.Job {
	t.Helper()
	j, err := w.engine.Get(context.Background(), engineJobID(id))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// proposal is the message of a job, as whoever sends it has it.
func proposal(id string) []byte { return []byte(`{"jobId":"` + id + `"}`) }

// claim claims a job by its message, nil where that is not to be.
func (w *world) claim(t testing.TB, id string) *job.Job {
	t.Helper()
	j, acked, err := w.images.ClaimProposed(context.Background(), proposal(id), "a worker")
	if err != nil || !acked {
		t.Fatalf("acknowledged %t: %v", acked, err)
	}
	return j
}

func (w *world) mustClaim(t testing.TB, id string) *job.Job {
	t.Helper()
	j := w.claim(t, id)
	if j == nil {
		t.Fatalf("job %s cannot be claimed: it is %s", id, w.state(t, id).State)
	}
	return j
}

// attempt claims a job and makes one attempt.
func (w *world) attempt(t testing.TB, id string) *job.Job {
	t.Helper()
	after, err := w.images.Attempt(context.Background(), w.mustClaim(t, id))
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// end ends the run of a job.
func (w *world) end(j *job.Job, o engine.Outcome) error {
	_, err := w.engine.Finish(context.Background(), engine.Run{ID: j.ID, Run: j.Run}, o)
	return err
}

// fail makes an attempt fail that may be tried again.
func (w *world) fail(t testing.TB, id string) {
	t.Helper()
	j := w.mustClaim(t, id)
	if err := w.end(j, images.FailureOutcome(j, "the disk is unavailable", "storage_error",
		true)); err != nil {
		t.Fatal(err)
	}
}

// sweep runs maintenance once.
func (w *world) sweep(t testing.TB) { t.Helper(); testkit.RunMaintenance(t, w.engine) }

// stored are the keys of all objects.
func (w *world) stored(t testing.TB) []string {
	t.Helper()
	found, err := w.objects.List(context.Background(), "", "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// files are the files below a directory, however they are called.
func files(t testing.TB, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// metric is one of a registry.
func metric(t testing.TB, r *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	set := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		set[labels[i]] = labels[i+1]
	}
	sum, n := testkit.MetricSum(t, r, name, set)
	if n == 0 {
		t.Errorf("%s has no %v", name, labels)
	}
	return sum
}

// jobs counts all jobs in the store.
func (w *world) jobs(t testing.TB) int {
	t.Helper()
	all, err := w.engine.List(context.Background(), store.Filter{JobType: images.Name})
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

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func encoded(v any) string { b, _ := json.Marshal(v); return string(b) }

// document is openapi.yaml, against which every exchange is held.
func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, images.OpenAPI, 64<<10)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).WantRoutes(t, images.Routes(), 14)
}

// TestUnknownQuery: a route that changes something refuses query parameters that it does not have.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	document(t).WantUnknownQueriesRefused(t, "VALIDATION_FAILED",
		func(method, path string) testkit.Reply {
			return w.Do(t, method, path, "")
		}, "GET /images/v1/jobs", "GET /images/v1/dead-letters")
	w.Do(t, "GET", jobsPath+"?status=queued&type=process_file&limit=1", "").WantStatus(t, 200)
}
