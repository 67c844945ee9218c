package fetchbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/testkit"
)

// recordingHandler is a handler that records its calls.
type recordingHandler struct {
	handler.Default
	finalized chan handler.Summary
	fail      func(handler.Summary) error // nil never fails
}

func (h *recordingHandler) Finalize(_ context.Context, s handler.Summary) error {
	defer func() { h.finalized <- s }()
	if h.fail != nil {
		return h.fail(s)
	}
	return nil
}

// withRecordingHandler gives the job type default a handler that keeps its calls.
func (w *fetchWorld) withRecordingHandler(fail func(handler.Summary) error) *recordingHandler {
	h := &recordingHandler{finalized: make(chan handler.Summary, 1000), fail: fail}
	w.fetchbox.WithHandler("default", h)
	return h
}

// wait returns the next job that was finalized.
func (h *recordingHandler) wait(t testing.TB) handler.Summary {
	t.Helper()
	return testkit.Receive(t, "a job to be finalized", h.finalized)
}

// live downloads, finalizes and publishes until stop, or the end of the test.
func (w *fetchWorld) live(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.fetchbox.RunWorkers(ctx) })
	all.Go(func() { w.fetchbox.RunFinalizer(ctx) })
	all.Go(func() {
		(&maintenance.Runner{Engine: w.engine, Log: slog.New(slog.DiscardHandler),
			PruneInterval: time.Hour,
			Publishers:    []maintenance.Publisher{{Deliver: w.fetchbox.Deliver}}}).Run(ctx)
	})
	stop = func() { cancel(); all.Wait() }
	t.Cleanup(stop)
	return stop
}

// resourcesOf writes a manifest of n resources of an origin.
func resourcesOf(base string, n int) string {
	var b strings.Builder
	b.WriteString(`{"manifest_version":"v1","metadata":{},"resources":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"r%d","url":"%s/%d"}`, i, base, i)
	}
	return b.String() + "]}"
}

func (w *fetchWorld) submitTo(t testing.TB, jobType, body string) receipt {
	t.Helper()
	return testkit.DecodeReply[receipt](t,
		w.Do(t, http.MethodPost, "/jobs", body, "X-Fetchbox-Job-Type", jobType).WantStatus(t, 202))
}

// countingOrigin is an origin that counts its requests, and how many it serves at a time.
type countingOrigin struct {
	*httptest.Server
	now, highest, all atomic.Int64
}

func newCountingOrigin(t testing.TB) *countingOrigin {
	t.Helper()
	m := &countingOrigin{}
	m.Server = origin(t, func(rw http.ResponseWriter, r *http.Request) {
		n := m.now.Add(1)
		defer m.now.Add(-1)
		for highest := m.highest.Load(); n > highest &&
			!m.highest.CompareAndSwap(highest, n); highest = m.highest.Load() {
		}
		m.all.Add(1)
		_, _ = io.WriteString(rw, r.URL.Path)
	})
	return m
}

func manyDownloads(t *testing.T, p testkit.Database, nodes, each int) {
	const manifests, limit = 50, 8
	c := assertNear()
	c.Types["default"] = &fetchbox.Type{Options: maxParallel(limit)}
	w := newFetchWorldOn(t, p, c)
	all := []*fetchWorld{w}
	for len(all) < nodes {
		all = append(all, &fetchWorld{w.node(t, c)})
	}
	h := w.withRecordingHandler(nil)
	for _, node := range all {
		node.fetchbox.WithHandler("default", h)
		node.fetchbox.Limit(context.Background())
	}
	m := newCountingOrigin(t)
	jobs := map[string]bool{}
	for range manifests {
		jobs[w.submitTo(t, "default", resourcesOf(m.URL, each)).JobID] = true
	}
	for _, node := range all {
		node.live(t)
	}
	for range manifests {
		s := h.wait(t)
		if !jobs[s.ID] || s.Status != "completed" || s.Total != each || s.Completed != each ||
			s.Failed != 0 {
			t.Errorf("got %+v", s)
		}
		delete(jobs, s.ID) // each is finalized once
	}
	if m.highest.Load() > limit || m.all.Load() != int64(manifests*each) {
		t.Errorf("the origin saw %d requests, %d at a time", m.all.Load(), m.highest.Load())
	}
	if files := w.files(t); len(files) != manifests*each {
		t.Errorf("%d objects are stored", len(files))
	}
}

func TestManyDownloads(t *testing.T) {
	t.Parallel()
	t.Run("FB-074 never more at a time", func(t *testing.T) {
		t.Parallel()
		manyDownloads(t, testkit.InMemory(t), 1, 40)
	})
	t.Run("FB-074 never more at a time, two nodes", func(t *testing.T) {
		t.Parallel()
		manyDownloads(t, testkit.OnPostgres(t), 2, 10)
	})
}

// Some of a job fail for good, some at first.
func TestMixedJob(t *testing.T) {
	t.Parallel()
	c := assertNear()
	c.BackoffBase = 0
	w := newFetchWorld(t, c)
	h := w.withRecordingHandler(nil)
	var tried sync.Map
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := tried.LoadOrStore(r.URL.Path, new(atomic.Int64))
		request := n.(*atomic.Int64).Add(1)
		switch {
		case r.URL.Path == "/0":
			rw.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/1", r.URL.Path == "/2" && request < 3:
			rw.WriteHeader(http.StatusBadGateway)
		}
	})
	w.live(t)
	id := w.submitTo(t, "default", resourcesOf(s.URL, 5)).JobID
	ended := h.wait(t)
	t.Run("FB-077 the summary", func(t *testing.T) {
		if ended.ID != id || ended.Type != "default" || ended.Status != "failed" || ended.Total != 5 ||
			ended.Completed != 3 || ended.Failed != 2 || ended.FinishedAt.IsZero() ||
			ended.CreatedAt.IsZero() || !strings.HasPrefix(ended.ManifestKey,
			"s3://millrace/manifests/default/") {
			t.Errorf("got %+v", ended)
		}
	})
	t.Run("FB-083 tries of each", func(t *testing.T) {
		for path, want := range map[string]int64{"/0": 1, "/1": 3, "/2": 3, "/3": 1, "/4": 1} {
			n, _ := tried.Load(path)
			if got := n.(*atomic.Int64).Load(); got != want {
				t.Errorf("%s was tried %d times, want %d", path, got, want)
			}
		}
	})
	v := w.untilStatus(t, id, "failed")
	if v.Completed != 3 || v.Failed != 2 || v.LastError == nil ||
		!strings.HasPrefix(v.LastError.Code, "HTTP_") {
		t.Errorf("got %+v", v)
	}
	assertEqual(t, "dead letters counted", w.counter(t, "worker_dlq_total"), 2)
}

func TestFinalizeFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(handler.Summary) error{
		"an error": func(handler.Summary) error { return errors.New("no more paper") },
		"a panic":  func(handler.Summary) error { panic("no more paper") },
	} {
		t.Run("FB-077 "+name+" is kept, and not finalized again", func(t *testing.T) {
			t.Parallel()
			c := assertNear()
			c.Grace = time.Minute // stop waits for the write
			w := newFetchWorld(t, c)
			h := w.withRecordingHandler(fail)
			m := newCountingOrigin(t)
			stop := w.live(t)
			id := w.submitTo(t, "default", resourcesOf(m.URL, 1)).JobID
			h.wait(t)
			stop()
			v := w.status(t, id, "completed")
			if v.LastError == nil || v.LastError.Code != "HANDLER_FINALIZE" ||
				!strings.Contains(v.LastError.Message, "no more paper") {
				t.Errorf("got %+v", v.LastError)
			}
			if text := w.log.String(); strings.Count(text, "no more paper") != 1 {
				t.Errorf("it is not logged once:\n%s", text)
			}
			w.deliver(t)
			last := line{}
			for _, l := range w.logs(t, id, "") {
				last = l
			}
			if last.Level != "error" || !strings.Contains(fmt.Sprint(last.Fields),
				"HANDLER_FINALIZE") {
				t.Errorf("the log ends with %+v", last)
			}
			if len(h.finalized) != 0 {
				t.Errorf("finalized %d times more", len(h.finalized))
			}
		})
	}
}

// What a stop interrupts is given back, counts for nothing, and leaves nothing half done.
func TestStopInMidDownload(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear()) // no grace
	h := w.withRecordingHandler(nil)
	started := make(chan struct{}, 10)
	hold := atomic.Bool{}
	hold.Store(true)
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = rw.Write(make([]byte, 100_000))
		rw.(http.Flusher).Flush()
		if hold.Load() {
			started <- struct{}{}
			<-r.Context().Done()
		}
	})
	stop := w.live(t)
	id := w.submitTo(t, "default", resourcesOf(s.URL, 2)).JobID
	<-started
	<-started
	stop()
	w.nothingStored(t)
	for _, j := range w.all(t, fetchbox.Tasks) {
		if j.State != "queued" || j.FailedAttempts != 0 {
			t.Errorf("a task is %s after %d failures", j.State, j.FailedAttempts)
		}
	}
	w.status(t, id, "in_progress")
	hold.Store(false)
	w.live(t)
	if ended := h.wait(t); ended.Completed != 2 || ended.Status != "completed" {
		t.Errorf("got %+v", ended)
	}
}

// brokenHandler is a handler that breaks on each task until it is well.
type brokenHandler struct {
	recordingHandler
	times atomic.Int64
}

func (h *brokenHandler) Adjust(_ context.Context, tasks []handler.Task) error {
	if h.times.Add(1) == 2 { // the first is the API's
		panic("not now")
	}
	for i := range tasks {
		tasks[i].Headers = map[string]string{"X-Adjusted": "yes"}
	}
	return nil
}

func TestHandlerBreaksInTheWorker(t *testing.T) {
	t.Parallel()
	c := assertNear()
	c.BackoffBase = 0
	w := newFetchWorld(t, c)
	h := &brokenHandler{recordingHandler: recordingHandler{finalized: make(chan handler.Summary,
		10)}}
	w.fetchbox.WithHandler("default", h)
	adjusted := make(chan string, 10)
	s := origin(t, func(_ http.ResponseWriter, r *http.Request) {
		adjusted <- r.Header.Get("X-Adjusted")
	})
	w.live(t)
	w.submitTo(t, "default", resourcesOf(s.URL, 1))
	if ended := h.wait(t); ended.Completed != 1 {
		t.Errorf("got %+v", ended)
	}
	t.Run("FB-080 the same logic in the worker", func(t *testing.T) {
		if got := <-adjusted; got != "yes" || h.times.Load() != 3 {
			t.Errorf("the task came with %q after %d calls", got, h.times.Load())
		}
	})
}
