package object_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
)

// mustRename renames a file or folder.
func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// everyError is what all operations on the default bucket fail with.
func (w *fixture) everyError(t *testing.T) map[string]error {
	t.Helper()
	_, put := w.Put(t.Context(), "", "a/new", strings.NewReader("x"), object.Attributes{})
	_, _, open := w.Open(t.Context(), "", "a/kept")
	_, exists := w.Exists(t.Context(), "", "a/kept")
	_, list := w.List(t.Context(), "", "", "", 9)
	_, id := w.ID(t.Context())
	return map[string]error{"put": put, "open": open, "exists": exists, "list": list, "id": id,
		"delete": w.Delete(t.Context(), "", "a/kept"), "ping": w.Ping(t.Context())}
}

// A bucket whose folder was moved away is not made again, empty: that would look as if its objects
// had never been. The directory knows it after a restart as well.
func TestBucketMoved(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "a/kept", "x")
	bucket := filepath.Join(w.dir, "millrace")
	mustRename(t, bucket, bucket+".away")
	check := func(w *fixture) {
		t.Helper()
		for name, err := range w.everyError(t) {
			if !job.IsKind(err, job.ReadOnly) || !strings.Contains(err.Error(),
				"the folder of the bucket millrace is gone") {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if err := w.Ping(t.Context(), "other"); err != nil {
			t.Errorf("another bucket: got %v", err)
		}
	}
	check(w)
	check(&fixture{mustOpen(t, object.Config{Dir: w.dir, Bucket: "millrace"}), w.dir})
	if _, err := os.Stat(bucket); !os.IsNotExist(err) {
		t.Errorf("the folder was made: %v", err)
	}
	mustRename(t, bucket+".away", bucket)
	if text, _ := w.mustGet(t, "", "a/kept"); text != "x" {
		t.Errorf("got %q", text)
	}
	w.mustPut(t, "a/new", "y")
}

// An operator who has lost a bucket goes on with an empty one.
func TestBucketMadeAgain(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "k", "x")
	bucket := filepath.Join(w.dir, "millrace")
	if err := os.RemoveAll(bucket); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(bucket, 0o700); err != nil {
		t.Fatal(err)
	}
	if exists, err := w.Exists(t.Context(), "", "k"); exists || err != nil {
		t.Errorf("got %t, %v", exists, err)
	}
	w.mustPut(t, "k", "y")
}

// A folder that was there before the directory kept the names of its buckets is a bucket as well.
func TestBucketOfAnOlderDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "objects")
	bucket := filepath.Join(dir, "millrace")
	if err := os.MkdirAll(bucket, 0o700); err != nil {
		t.Fatal(err)
	}
	w := &fixture{mustOpen(t, object.Config{Dir: dir, Bucket: "millrace"}), dir}
	if err := os.Remove(bucket); err != nil {
		t.Fatal(err)
	}
	if err := w.Ping(t.Context()); !job.IsKind(err, job.ReadOnly) {
		t.Errorf("got %v", err)
	}
}

// Nothing is written into a directory that was moved away, which the node still has open, nor into
// one that came in its place.
func TestDirectoryMoved(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "a/kept", "x")
	check := func() {
		t.Helper()
		_, putErr := w.Put(t.Context(), "", "a/new", strings.NewReader("x"), object.Attributes{})
		for i, err := range []error{putErr, w.Ping(t.Context())} {
			if !job.IsKind(err, job.ReadOnly) || !strings.Contains(err.Error(),
				"the directory of the objects was moved or deleted") {
				t.Errorf("%d: got %v", i, err)
			}
		}
	}
	mustRename(t, w.dir, w.dir+".away")
	check()
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check()
	for _, dir := range []string{w.dir, w.dir + ".away"} {
		if _, err := os.Stat(filepath.Join(dir, "millrace", "a", "new")); !os.IsNotExist(err) {
			t.Errorf("%s has the object: %v", dir, err)
		}
	}
	if err := os.Remove(w.dir); err != nil {
		t.Fatal(err)
	}
	mustRename(t, w.dir+".away", w.dir)
	w.mustPut(t, "a/new", "y")
}
