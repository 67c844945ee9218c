package images_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// cdnServer is a CDN in a server of its own, which writes down what it is asked and answers as it
// is logged.
type cdnServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	status   []int // of the next answers; then 200
	arrived  chan struct{}
}

func newCDNServer(t testing.TB) *cdnServer {
	t.Helper()
	n := &cdnServer{arrived: make(chan struct{}, 100)}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n.mu.Lock()
		n.requests = append(n.requests, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+
			string(body)))
		status := 200
		if len(n.status) > 0 {
			status, n.status = n.status[0], n.status[1:]
		}
		n.mu.Unlock()
		w.WriteHeader(status)
		n.arrived <- struct{}{}
	}))
	t.Cleanup(n.Close)
	return n
}

func (n *cdnServer) nextRequest() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.requests
	n.requests = nil
	return all
}

func outward(t testing.TB) *egress.Client {
	t.Helper()
	c, err := egress.New(egress.Config{AllowLocal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestPurge(t *testing.T) {
	t.Parallel()
	n := newCDNServer(t)
	c := config()
	c.NoLocalWorkers = true
	c.CDN = &cdn.HTTP{URL: n.URL + "/cache/", Client: outward(t)}
	w := inMemory(t, c)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.images.Run(ctx) })
	defer running.Wait()
	defer stop()
	r := w.put(t, pngOf(t, 90, 30))
	w.attempt(t, r.JobID)
	var want []string
	for _, name := range []string{"original", "16.png", "64.png"} {
		want = append(want, "PURGE /cache/images/"+r.FileID+"/"+name)
	}
	t.Run("G-IP-24 the file and each variant are purged, once, after the job is completed",
		func(t *testing.T) {
			assertEqual(t, "asked before the outbox is delivered", len(n.nextRequest()), 0)
			w.messages(t)
			for range want {
				<-n.arrived
			}
			w.messages(t) // again, as after a crash
			assertEqual(t, "asked", strings.Join(n.nextRequest(), "\n"), strings.Join(want, "\n"))
			w.purged(t, r.JobID, "done")
			assertEqual(t, "IP-078 timed",
				metric(t, w.worker, "cloudfront_operation_duration_seconds",
					"operation", "purge"), 1.0)
		})
	t.Run("a purge that fails is tried again, and holds up nothing", func(t *testing.T) {
		n.mu.Lock()
		n.status = []int{503}
		n.mu.Unlock()
		deletion := w.create(t, "delete_file", r.FileID).JobID
		w.attempt(t, deletion)
		w.status(t, deletion, completed)
		w.messages(t)
		<-n.arrived
		w.purged(t, deletion, "queued")
		assertEqual(t, "IP-079 counted",
			metric(t, w.worker, "cloudfront_operation_errors_total", "operation", "purge",
				"error_code", "unavailable"), 1.0)
		w.clock.Advance(1e9)
		w.sweep(t)
		for range want {
			<-n.arrived
		}
		w.purged(t, deletion, "done")
		assertEqual(t, "asked", strings.Join(n.nextRequest()[1:], "\n"), strings.Join(want, "\n"))
		stop()
		running.Wait()
		lines := w.log.Lines(t, map[string]any{"level": "DEBUG", "msg": "purge", "job_id": deletion,
			"file_id": r.FileID, "attempt": 1.0, "current_state": "queued"})
		if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["reason"]), "503") {
			t.Errorf("the log says %v", lines)
		}
	})
}

// One that uses up its tries is given up, which the log tells as an error.
func TestPurgeGivenUp(t *testing.T) {
	t.Parallel()
	n := newCDNServer(t)
	c := config()
	c.NoLocalWorkers = true
	c.CDN = &cdn.HTTP{URL: n.URL, Client: outward(t)}
	w := inMemory(t, c)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.images.Run(ctx) })
	defer running.Wait()
	defer stop()
	r := w.put(t, pngOf(t, 9, 9))
	w.attempt(t, r.JobID)
	for range 12 {
		n.status = append(n.status, 502)
	}
	w.messages(t)
	for try := range 12 {
		<-n.arrived
		if try < 11 {
			w.purged(t, r.JobID, "queued")
			w.clock.Advance(10 * time.Minute)
			w.sweep(t)
		}
	}
	w.purged(t, r.JobID, "failed")
	stop()
	running.Wait()
	assertEqual(t, "tries", len(n.nextRequest()), 12)
	assertEqual(t, "attempts that are logged",
		len(w.log.Lines(t, map[string]any{"level": "DEBUG", "msg": "purge", "job_id": r.JobID})),
		11)
	lines := w.log.Lines(t, map[string]any{"level": "WARN", "msg": "purge", "job_id": r.JobID,
		"attempt": 12.0, "current_state": "failed"})
	assertEqual(t, "the end that is logged", len(lines), 1)
}

// purged waits until a purge has a state.
func (w *world) purged(t testing.TB, id string, want job.State) {
	t.Helper()
	testkit.WaitUntil(t, "a purge that is "+string(want), func() bool {
		j, err := w.engine.Get(context.Background(), job.ID{JobType: images.Purges, Key: id})
		if err != nil {
			t.Fatal(err)
		}
		return j.State == want && j.Run.IsZero()
	})
}

// CloudFront is asked as its clients ask it, by its own client.
func TestCloudFront(t *testing.T) {
	n := newCDNServer(t)
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFRONT", n.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	front, err := cdn.NewCloudFront(context.Background(), "E123", outward(t))
	if err != nil {
		t.Fatal(err)
	}
	n.status = []int{201, 500}
	if err := front.Purge(context.Background(), "job-1",
		[]string{"images/a b/1.png", "images/x/2.png"}); err != nil {
		t.Fatal(err)
	}
	asked := n.nextRequest()
	for _, part := range []string{"POST /2020-05-31/distribution/E123/invalidation ",
		"<CallerReference>job-1</CallerReference>", "<Quantity>2</Quantity>",
		"<Path>/images/a%20b/1.png</Path>", "<Path>/images/x/2.png</Path>"} {
		if !slices.ContainsFunc(asked, func(s string) bool { return strings.Contains(s, part) }) {
			t.Errorf("IP-078 nothing has %s: %s", part, asked)
		}
	}
	if err := front.Purge(context.Background(), "job-2", []string{"k"}); !job.IsKind(err,
		job.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// What a CDN answers a PURGE with.
func TestPurgeAnswers(t *testing.T) {
	t.Parallel()
	n := newCDNServer(t)
	p := &cdn.HTTP{URL: n.URL, Client: outward(t)}
	for status, want := range map[int]string{200: "", 204: "", 404: "", 403: "invalid",
		405: "invalid", 429: "unavailable", 500: "unavailable"} {
		n.mu.Lock()
		n.status = []int{status}
		n.mu.Unlock()
		err := p.Purge(context.Background(), "", []string{"k"})
		got := ""
		if err != nil {
			got = job.KindOf(err).String()
		}
		assertEqual(t, fmt.Sprint(status), got, want)
	}
	guarded, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()
	n.nextRequest()
	if err := (&cdn.HTTP{URL: n.URL, Client: guarded}).Purge(context.Background(), "",
		[]string{"k"}); err == nil || len(n.nextRequest()) > 0 {
		t.Error("a private address was called")
	}
}
