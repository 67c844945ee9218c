package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestLeastRights runs a node whose credentials may get, put and delete objects, but not list them:
// all that needs no list goes on, also after the storage was unavailable for a moment, and what is
// missing is known to be missing.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	storage := outside.NewS3(t, "millrace")
	rights := storage.Restricted(t)
	started, gate := make(chan struct{}), make(chan struct{})
	blocked := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/held/") {
			started <- struct{}{}
			<-gate
		}
		_, _ = w.Write([]byte(bodyOf(r.URL.Path)))
	})
	node, err := launch(mustMillrace(t), filepath.Join(t.TempDir(), "data"), nil,
		"--set", "store="+pgtest.URL(t), "--set", "contracts=fetchbox,images", "--set",
		"objects.url="+rights.Setting(),
		"--set", "images.sizes=50", "--set", "fetchbox.backoff_base=10ms",
		"--set", "images.backoff_base=10ms", "--set", "images.max_attempts=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		node.kill()
		if t.Failed() {
			t.Log(node.stderr.String())
		}
	})
	healthy := func() {
		t.Helper()
		awaitReady(t, node.url)
		if status, text := sendRequest(t, "GET", node.url+"/operators/health", ""); status != 200 {
			t.Errorf("/operators/health: got %d %s", status, text)
		}
	}
	pollUntil(t.Fatalf, "the bound storage", func() bool { // Images runs no jobs before
		_, err := os.Stat(filepath.Join(storage.Root, "millrace", ".millrace", "id"))
		return err == nil
	})
	healthy()
	before := mustPost(t, node.url, "", blocked.resources("before", 3))
	awaitFetched(t, node.url, before, 3)
	checkLostPicture(t, node.url, storage.Root)
	healthy()
	if text := node.stderr.String(); strings.Contains(text, "a part is degraded") ||
		!strings.Contains(text, "the bucket millrace may not be listed") {
		t.Errorf("nothing was unavailable but a right, and the log says %s", text)
	}

	const n = 3
	during := mustPost(t, node.url, "", blocked.resources("held", n))
	for range n {
		<-started
	}
	rights.SetUnavailable(true)
	lost := rights.UnavailableCount()
	close(gate)
	pollUntil(t.Fatalf, "the storage to be missed", func() bool {
		return rights.UnavailableCount() > lost+n
	})
	pollUntil(t.Fatalf, "a node that says so", func() bool {
		status, _ := sendRequest(t, "GET", node.url+"/operators/health", "")
		return status == 503
	})
	go func() {
		for range started { // they may be asked for again
		}
	}()
	t.Cleanup(func() { close(started) })
	rights.SetUnavailable(false)
	awaitFetched(t, node.url, during, n)
	after := mustPost(t, node.url, "", blocked.resources("after", n))
	awaitFetched(t, node.url, after, n)
	healthy()
	if err := node.terminate(); err != nil {
		t.Error(err)
	}
	wantObjects(t, filesBelow(t, "resources", filepath.Join(storage.Root, "millrace")),
		map[string]string{before: "before", during: "held", after: "after"}, n)
}

// checkLostPicture uploads a picture whose objects get lost: that is an error of its own, and an
// end.
func checkLostPicture(t *testing.T, url, root string) {
	t.Helper()
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 80, 60)), nil); err != nil {
		t.Fatal(err)
	}
	ended := func(id string) (j struct {
		imageJob
		Type string `json:"last_error_type"`
	}) {
		pollUntil(t.Fatalf, "the end of the picture's job "+id, func() bool {
			imageCall(t, url, "GET", "/images/v1/jobs/"+id, nil, 200, &j)
			return j.Status == "completed" || j.Status == "failed"
		})
		return j
	}
	var made imageJob
	imageCall(t, url, "POST", "/images/v1/files", picture.Bytes(), 202, &made)
	if j := ended(made.JobID); j.Status != "completed" {
		t.Fatalf("got %+v", j)
	}
	file := "/images/v1/files/" + made.FileID
	imageCall(t, url, "GET", file+"/variants/50", nil, 200, nil)
	if err := os.RemoveAll(filepath.Join(root, "millrace", "images", made.FileID)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/content", "/variants/50"} {
		if status, text := sendRequest(t, "GET", url+file+path, ""); status != 500 {
			t.Errorf("%s, which is lost: got %d %s, want 500", path, status, text)
		}
	}
	body := fmt.Sprintf(`{"type":"process_file","file_id":%q,"sizes":[40]}`, made.FileID)
	status, text := sendRequest(t, "POST", url+"/images/v1/jobs", body, "Content-Type",
		"application/json")
	if status != 202 {
		t.Fatalf("got %d %s", status, text)
	}
	made = imageJob{}
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	if j := ended(made.JobID); j.Status != "failed" || j.Type != "original_missing" ||
		j.Attempts != 2 {
		t.Errorf("the original is lost: got %+v", j)
	}
}
