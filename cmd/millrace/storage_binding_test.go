package main

import (
	"bytes"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// sendRequest returns the answer to a request, with any status.
func sendRequest(t *testing.T, method, url, body string, header ...string) (status int,
	text string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := fetchClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

// awaitReady waits until a server is ready: it listens a moment before all its parts are.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	var status int
	var text string
	pollUntil(func(format string, a ...any) {
		t.Fatalf(format+": %d %s", append(a, status, text)...)
	}, "the server to be ready", func() bool {
		status, text = sendRequest(t, "GET", url+"/health/ready", "")
		return status == http.StatusOK
	})
}

// wantRefusing wants a node to refuse FetchBox and Images, and to say why wherever somebody asks.
func wantRefusing(t *testing.T, node *launchedServer, why string) {
	t.Helper()
	manifest := `{"manifest_version":"v1","metadata":{},"resources":[{"id":"a","url":"http://127.0.0.1:1/"}]}`
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
	}{
		{"POST", "/images/v1/files", "x", []string{"Content-Type", "image/jpeg"}, 503},
		{"GET", "/images/v1/jobs", "", nil, 503},
		{"POST", "/jobs", manifest, []string{"Content-Type", "application/json",
			"X-Fetchbox-Job-Type", "default"}, 500},
		{"GET", "/operators/jobs", "", nil, 500},
		{"GET", "/operators/health", "", nil, 503},
		{"GET", "/health/ready", "", nil, 503},
	} {
		if status, text := sendRequest(t, c.method, node.url+c.path, c.body,
			c.header...); status != c.status || !strings.Contains(text, why) {
			t.Errorf("%s %s: got %d %s, want %d and %q", c.method, c.path, status, text, c.status,
				why)
		}
	}
	if log := node.stderr.String(); strings.Count(log,
		"this node refuses FetchBox and Images") != 1 || !strings.Contains(log, why) {
		t.Errorf("the log says %s", log)
	}
}

const (
	otherStorageMessage = "the objects and streams of this node are not those of the other nodes " +
		"on this database"
	otherObjectsMessage = "the objects of this node are not those of the other nodes on this " +
		"database"
	otherStreamsMessage = "the streams of this node are not those of the other nodes on this " +
		"database"
)

// TestNodesWithOtherStorage starts two nodes on one database with nothing else set: each has
// objects and streams of its own, and the second one must not lose what it would be given.
func TestNodesWithOtherStorage(t *testing.T) {
	t.Parallel()
	shared := []string{"--set", "store=" + pgtest.URL(t), "--set",
		"contracts=fetchbox,images,relay", "--set", "log.level=warn", "--set", "images.sizes=50"}
	binary := mustMillrace(t)
	start := func(name string, args ...string) *launchedServer {
		s, err := launch(binary, filepath.Join(t.TempDir(), name), nil, append(shared, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.kill)
		return s
	}
	first, second := start("first"), start("second")
	wantRefusing(t, second, otherStorageMessage)
	if status, text := sendRequest(t, "POST", second.url+"/v2/queues/jobs",
		`[{"queue":"q","id":"1","timeout":9,"payload":1}]`, "Content-Type",
		"application/json"); status != 202 {
		t.Errorf("Relay, which needs neither: got %d %s", status, text)
	}
	awaitReady(t, first.url)
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 80, 60)), nil); err != nil {
		t.Fatal(err)
	}
	for range 5 { // none is given to the second node
		var made, job imageJob
		imageCall(t, first.url, "POST", "/images/v1/files", picture.Bytes(), 202, &made)
		pollUntil(t.Fatalf, "the picture to be processed", func() bool {
			imageCall(t, first.url, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &job)
			return job.Status == "completed"
		})
		if job.Attempts != 1 {
			t.Errorf("the picture took %d attempts", job.Attempts)
		}
	}
	if err := first.terminate(); err != nil {
		t.Error(err)
	}
	if err := second.terminate(); err != nil {
		t.Error(err)
	}
	moved := start("third", "--set", "rebind_storage=true")
	awaitReady(t, moved.url)
}

// TestNodesWithOneSharedPlace: what only one of objects and streams is, is named as well; nodes
// that have both in common are fine, also one that serves less.
func TestNodesWithOneSharedPlace(t *testing.T) {
	t.Parallel()
	s := newFetchShared(t)
	args := append(s.args, "--set", "contracts=fetchbox,images")
	launchNode(t, "first", args...)
	for contracts := range map[string]bool{"fetchbox,images": true, "images": true,
		"fetchbox": true} {
		node := launchNode(t, "alike", append(args, "--set", "contracts="+contracts)...)
		awaitReady(t, node.url)
	}
	wantRefusing(t, launchNode(t, "objects", append(args, "--set", "objects.url=")...),
		otherObjectsMessage)
	others := outside.NewNATS(t, "")
	wantRefusing(t, launchNode(t, "streams", append(args, "--set", "stream.url="+others.URL)...),
		otherStreamsMessage)
}
