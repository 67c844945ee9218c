package object_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
)

// mountTmpfs makes a directory a file system of its own, in memory, until the test is over. Where
// that is not allowed the test is skipped, but not where all tests must run.
func mountTmpfs(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size=16m"); err != nil {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestFarFolders puts objects into folders that are another file system than that of the temporary
// files: that of the bucket, and one in it that is mounted while the node runs.
func TestFarFolders(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	bucket := filepath.Join(w.dir, "millrace")
	mountTmpfs(t, bucket, 0)
	full := object.Attributes{ContentType: "image/png", Metadata: map[string]string{"a": "b"}}
	put := func(key, text string, a object.Attributes) {
		t.Helper()
		if _, err := w.Put(t.Context(), "", key, strings.NewReader(text), a); err != nil {
			t.Fatal(err)
		}
		if got, info := w.mustGet(t, "", key); got != text ||
			info.Metadata["a"] != a.Metadata["a"] {
			t.Errorf("%s: got %q, %+v", key, got, info)
		}
	}
	large := string(bytes.Repeat([]byte("0123456789"), 1<<17))
	put("k", "one", full)
	put("a/b/k", large, full)
	put("a/b/k", "in its place", object.Attributes{})
	put("a/b/k", "again", full)
	if err := os.Mkdir(filepath.Join(bucket, "later"), 0o700); err != nil {
		t.Fatal(err)
	}
	put("later/one", "x", full)
	if err := w.Delete(t.Context(), "", "later/one"); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, filepath.Join(bucket, "a"), 0)
	put("a/b/k", "on a third file system", full)
	if err := w.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := w.fileNames(t), []string{"millrace/a/b/k", "millrace/a/b/k.attrs", "millrace/k",
		"millrace/k.attrs"}; !slices.Equal(got, want) {
		t.Errorf("got files %v, want %v", got, want)
	}
}

// TestPingLooksInTheBucket: a directory that takes temporary files says nothing of a bucket in it.
func TestPingLooksInTheBucket(t *testing.T) {
	t.Parallel()
	file := func(t *testing.T, bucket string) {
		if err := os.WriteFile(bucket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	readOnly := func(t *testing.T, bucket string) { mountTmpfs(t, bucket, syscall.MS_RDONLY) }
	for name, c := range map[string]struct {
		corrupt func(*testing.T, string)
		msg     string
	}{
		"a file": {file, "the bucket photos is not a folder"},
		"a read-only file system": {readOnly,
			"the bucket photos cannot be written: read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			w := mustOpenDirectory(t)
			c.corrupt(t, filepath.Join(w.dir, "photos"))
			if err := w.Ping(t.Context()); err != nil {
				t.Errorf("the default bucket: got %v", err)
			}
			err := w.Ping(t.Context(), "", "photos")
			if !job.IsKind(err, job.ReadOnly) || !strings.Contains(err.Error(), c.msg) {
				t.Errorf("got %v", err)
			}
			if left, err := w.List(t.Context(), "", "", "", 10); err != nil || len(left) != 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}
