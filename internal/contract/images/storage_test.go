package images_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// The whole life of a file with its objects in an S3 store, in a server of its own.
func TestS3(t *testing.T) {
	server := outside.NewS3(t, bucket)
	objects, err := object.Open(context.Background(),
		object.Config{URL: server.Setting(), Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	p := testkit.InMemory(t)
	w := &world{clock: p.Clock, store: p.Store, queue: &memoryQueue{}, objects: objects}
	w.open(t, config())
	picture := jpegOf(t, 300, 200)
	r := w.put(t, picture)
	assertEqual(t, "content", w.Do(t, "GET", filesPath+"/"+r.FileID+"/content", "").WantStatus(t,
		200).Body == string(picture), true)
	w.partly(t, filesPath+"/"+r.FileID+"/content", picture)
	w.attempt(t, r.JobID)
	for _, v := range w.file(t, r.FileID, "ready").Variants {
		assertEqual(t, "bytes", int64(len(w.Do(t, "GET", v.URL, "").WantStatus(t, 200).Body)),
			v.Bytes)
	}
	w.send(t, "image/png", make([]byte, maxUpload+1), "").WantError(t, 413, "UPLOAD_TOO_LARGE")
	assertEqual(t, "objects", len(w.stored(t)), 3)
	w.attempt(t, w.create(t, "delete_file", r.FileID).JobID)
	assertEqual(t, "objects", len(w.stored(t)), 0)
}

// A node in an outage of its objects or messages reports which. It stays ready, for the other
// contracts.
func TestReady(t *testing.T) {
	queues := outside.NewSQS(t, 30*time.Second)
	queue, err := message.OpenSQS(context.Background(), queues.Setting(),
		slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Close)
	storage := outside.NewS3(t, bucket)
	objects, err := object.Open(context.Background(),
		object.Config{URL: storage.Setting(), Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	p, c := testkit.InMemory(t), config()
	c.Queue = queue
	w := &world{clock: p.Clock, store: p.Store, objects: objects}
	w.open(t, c)
	why := regexp.MustCompile(`(?m) fails: .*$`)
	ready := func(want string) {
		t.Helper()
		got := w.Do(t, "GET", "/health/ready", "")
		// The reason differs with how long the client of S3 goes on trying.
		if body := why.ReplaceAllString(got.Body, " fails"); got.Status != 200 || body != want {
			t.Errorf("got %d %q, want %q", got.Status, got.Body, want)
		}
	}
	const objectsFail = "images objects fails\n"
	ready("images objects ok\nimages messages ok\n")
	storage.Kill()
	ready(objectsFail + "images messages ok\n")
	queues.Kill()
	ready(objectsFail + "images messages fails\n")
	storage.Restart()
	ready("images objects ok\nimages messages fails\n")
	queues.Restart()
	ready("images objects ok\nimages messages ok\n")
}

// Memory does not grow with the size of an upload, nor with that of what is served.
func TestConstantMemory(t *testing.T) {
	const size, allowance = 32 << 20, 6 << 20
	c := config()
	c.MaxUpload = size
	w := inMemory(t, c)
	// the usual server keeps the bodies that it compares with the document
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	do := func(req *http.Request) *http.Response {
		resp, err := plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	req, _ := http.NewRequest("POST", w.URL+filesPath, io.LimitReader(endlessReader{}, size))
	req.Header.Set("Content-Type", "image/jpeg")
	resp := do(req)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 202 {
		t.Fatalf("%d %s %v", resp.StatusCode, text, err)
	}
	resp.Body.Close()
	r := testkit.DecodeReply[receipt](t, testkit.Reply{Body: string(text)})
	get, _ := http.NewRequest("GET", w.URL+filesPath+"/"+r.FileID+"/content", nil)
	resp = do(get)
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	runtime.ReadMemStats(&after)
	if err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > allowance {
		t.Errorf("%d bytes were allocated for %d", used, size)
	}
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }
