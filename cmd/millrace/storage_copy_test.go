package main

import (
	"bytes"
	"image"
	"image/jpeg"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

const lockedStorageMessage = "the objects and streams of this node are locked by another node"

// copyTest is nodes on one database with nothing else set, whose directories are copied and moved.
type copyTest struct {
	*testing.T
	store   string
	picture []byte
}

func newCopyTest(t *testing.T) *copyTest {
	t.Parallel()
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 80, 60)), nil); err != nil {
		t.Fatal(err)
	}
	return &copyTest{t, pgtest.URL(t), picture.Bytes()}
}

func (c *copyTest) start(dir string, args ...string) *launchedServer {
	c.Helper()
	return launchIn(c.T, dir, append([]string{"--set", "store=" + c.store, "--set",
		"contracts=fetchbox,images", "--set", "log.level=warn", "--set", "images.sizes=50"},
		args...)...)
}

func (c *copyTest) copyDir(dir string) string {
	c.Helper()
	for range 10 { // a temporary file of the running node may vanish under cp
		copied := filepath.Join(c.TempDir(), "copy")
		text, err := exec.Command("cp", "-a", dir, copied).CombinedOutput()
		if err == nil {
			return copied
		}
		c.Logf("%v: %s", err, text)
	}
	c.Fatal("the directory cannot be copied")
	return ""
}

// expireHolds lets the time pass in which the nodes that ran hold their directories.
func (c *copyTest) expireHolds() {
	c.Helper()
	db := pgtest.DB(c.T, c.store)
	defer db.Close()
	done, err := db.Exec("UPDATE records SET expires_at=1 WHERE kind='place' AND expires_at>0")
	if err != nil {
		c.Fatal(err)
	}
	if n, err := done.RowsAffected(); n == 0 || err != nil {
		c.Fatalf("%d holds, %v", n, err)
	}
}

// process gives pictures to a node, all of which it processes itself.
func (c *copyTest) process(node *launchedServer, pictures int) {
	c.Helper()
	for range pictures {
		var made, job imageJob
		imageCall(c.T, node.url, "POST", "/images/v1/files", c.picture, 202, &made)
		pollUntil(c.Fatalf, "the picture to be processed", func() bool {
			imageCall(c.T, node.url, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &job)
			return job.Status == "completed"
		})
		if job.Attempts != 1 {
			c.Errorf("the picture took %d attempts", job.Attempts)
		}
	}
}

// TestCopiedDataDirectory starts a node on a copy of the whole directory of one that runs. It is
// refused, so that no picture is lost between the two, and serves when the first is over.
func TestCopiedDataDirectory(t *testing.T) {
	c := newCopyTest(t)
	dir := filepath.Join(t.TempDir(), "data")
	first := c.start(dir)
	c.process(first, 1)
	second := c.start(c.copyDir(dir))
	wantRefusing(t, second, lockedStorageMessage)
	awaitReady(c.T, first.url)
	c.process(first, 5)
	first.kill()
	first = c.start(dir) // at once, on what is its own
	awaitReady(c.T, first.url)
	c.process(first, 1)
	if status, text := sendRequest(t, "GET", second.url+"/health/ready", ""); status != 503 ||
		!strings.Contains(text, lockedStorageMessage) {
		t.Errorf("the second node: got %d %s", status, text)
	}
	if err := first.terminate(); err != nil {
		t.Error(err)
	}
	c.expireHolds()
	awaitReady(c.T, second.url)
	c.process(second, 1)
	wantRefusing(t, c.start(dir), lockedStorageMessage)
}

// TestRebindTakesACopy: a node that is started with rebind_storage on a copy has the objects and
// streams at once, and the node that had them refuses.
func TestRebindTakesACopy(t *testing.T) {
	c := newCopyTest(t)
	dir := filepath.Join(t.TempDir(), "data")
	first := c.start(dir)
	c.process(first, 1)
	second := c.start(c.copyDir(dir), "--set", "rebind_storage=true")
	awaitReady(c.T, second.url)
	pollUntil(t.Fatalf, "the first node to refuse", func() bool {
		status, _ := sendRequest(t, "GET", first.url+"/health/ready", "")
		return status == http.StatusServiceUnavailable
	})
	wantRefusing(t, first, lockedStorageMessage)
	c.process(second, 5)
	if err := second.terminate(); err != nil {
		t.Error(err)
	}
	c.expireHolds()
	awaitReady(c.T, first.url)
	c.process(first, 1)
}

// TestMovedDataDirectory: a directory that is renamed goes on at once, and one that is moved by
// copying when the hold of the former is over.
func TestMovedDataDirectory(t *testing.T) {
	c := newCopyTest(t)
	dir := filepath.Join(t.TempDir(), "data")
	first := c.start(dir)
	c.process(first, 1)
	if err := first.terminate(); err != nil {
		t.Error(err)
	}
	renamed := filepath.Join(filepath.Dir(dir), "renamed")
	if err := os.Rename(dir, renamed); err != nil {
		t.Fatal(err)
	}
	second := c.start(renamed)
	awaitReady(c.T, second.url)
	c.process(second, 1)
	second.kill()
	copied := c.copyDir(renamed)
	if err := os.RemoveAll(renamed); err != nil {
		t.Fatal(err)
	}
	c.expireHolds()
	third := c.start(copied)
	awaitReady(c.T, third.url)
	c.process(third, 1)
}

// TestDeletedMarker: a marker that is deleted while the node runs comes back as it was, and the
// node can be started again.
func TestDeletedMarker(t *testing.T) {
	c := newCopyTest(t)
	dir := filepath.Join(t.TempDir(), "data")
	node := c.start(dir)
	marker := filepath.Join(dir, "objects", "millrace", ".millrace", "id")
	id, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	pollUntil(t.Fatalf, "the marker", func() bool {
		again, err := os.ReadFile(marker)
		if err == nil && !bytes.Equal(again, id) {
			t.Fatalf("the marker was %s and is %s", id, again)
		}
		return err == nil
	})
	if err := node.terminate(); err != nil {
		t.Error(err)
	}
	node = c.start(dir)
	awaitReady(c.T, node.url)
	c.process(node, 1)
}
