package fetchbox_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// assertNear is a config whose downloads may come from this machine.
func assertNear() fetchbox.Config {
	c := config()
	c.Egress = egress.Config{AllowLocal: true}
	return c
}

// fetchWorld is a world that downloads.
type fetchWorld struct{ *world }

func newFetchWorld(t testing.TB, c fetchbox.Config) *fetchWorld {
	t.Helper()
	return newFetchWorldOn(t, testkit.InMemory(t), c)
}

func newFetchWorldOn(t testing.TB, p testkit.Database, c fetchbox.Config) *fetchWorld {
	t.Helper()
	w := &fetchWorld{newWorldAt(t, p, c)}
	t.Cleanup(w.fetchbox.CloseProxyRoutes)
	return w
}

// origin serves what is to be downloaded.
func origin(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// taskOf is a task of type default; change may be nil.
func taskOf(url string, change func(*handler.Task)) *handler.Task {
	task := &handler.Task{JobID: "019a0000-0000-7000-8000-000000000001", JobType: "default",
		ResourceID: "r", URL: url}
	if change != nil {
		change(task)
	}
	return task
}

// defaultKey is where a task of taskOf goes.
const defaultKey = "resources/default/019a0000-0000-7000-8000-000000000001/r"

// fetch makes one try of a task; failures are those before it.
func (w *fetchWorld) fetch(ctx context.Context, task *handler.Task, failures int) engine.Outcome {
	return w.fetchbox.Fetch(ctx, &job.Job{Queue: task.JobType, Payload: fetchbox.EncodeTask(task),
		FailedAttempts: failures, MaxAttempts: tries})
}

// result is what a download leaves.
type result struct {
	URI         string `json:"uri"`
	Size        int64  `json:"size_bytes"`
	SHA256      string `json:"sha256"`
	ContentType string `json:"content_type"`
	Verified    bool   `json:"checksum_verified"`
}

// wantSuccess fails unless a try succeeded.
func wantSuccess(t testing.TB, o engine.Outcome) (r result) {
	t.Helper()
	if o.On != job.Succeeded {
		t.Fatalf("the try ended as %q: %s", o.On, o.Failure)
	}
	if err := json.Unmarshal(o.Result, &r); err != nil {
		t.Fatalf("%s: %v", o.Result, err)
	}
	return r
}

// wantFailure fails unless a try failed with a code, and is or is not to be tried again.
func wantFailure(t testing.TB, o engine.Outcome, code string, retryable bool) (message string) {
	t.Helper()
	var p problem
	_ = json.Unmarshal(o.Failure, &p)
	on := job.FailedForGood
	if retryable {
		on = job.Failed
	}
	if o.On != on || p.Code != code || p.Message == "" {
		t.Errorf("the try ended as %q with %s, want %q with %s", o.On, o.Failure, on, code)
	}
	if strings.Contains(p.Message, "127.0.0.1") || strings.Contains(p.Message, "s3cret") {
		t.Errorf("the message tells too much: %s", p.Message)
	}
	return p.Message
}

// files lists the files of all buckets and what is still being written.
func (w *fetchWorld) files(t testing.TB) (all []string) {
	t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.dir, path)
		rel = filepath.ToSlash(rel)
		isListed := !strings.HasPrefix(rel, ".buckets/") && !strings.HasSuffix(rel, ".attrs") &&
			filepath.Base(rel) != "metadata.json"
		if err == nil && !d.IsDir() && isListed {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// nothingStored fails where a try left anything.
func (w *fetchWorld) nothingStored(t testing.TB) {
	t.Helper()
	if files := w.files(t); len(files) != 0 {
		t.Errorf("these are stored: %v", files)
	}
}
