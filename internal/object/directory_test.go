package object_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gocloud.dev/blob/fileblob"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/testkit/outside"
)

func mustOpenDirectory(tb testing.TB) *fixture {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "objects")
	return &fixture{mustOpen(tb, object.Config{Dir: dir, Bucket: "millrace"}), dir}
}

// TestDirectoryFiles looks at the files: G-FB-32, and attributes as fileblob reads them.
func TestDirectoryFiles(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "a/plain", "x")
	full := object.Attributes{ContentType: "image/png", Metadata: map[string]string{"source": "ü"}}
	if _, err := w.Put(t.Context(), "", "a/full", strings.NewReader("content"), full); err != nil {
		t.Fatal(err)
	}
	if got, want := w.fileNames(t), []string{"millrace/a/full", "millrace/a/full.attrs",
		"millrace/a/plain"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	theirs, err := fileblob.OpenBucket(filepath.Join(w.dir, "millrace"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	a, err := theirs.Attributes(t.Context(), "a/full")
	if err != nil || a.ContentType != "image/png" || a.Metadata["source"] != "ü" || a.Size != 7 {
		t.Errorf("got %+v, %v", a, err)
	}
	if err := w.Delete(t.Context(), "", "a/full"); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), "", "a/plain"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(w.dir, "millrace"))
	if err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestDirectorySharedAttributes gives objects with the same attributes one file of them, and each
// its own when they part.
func TestDirectorySharedAttributes(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	putKind := func(key, kind string) {
		t.Helper()
		if _, err := w.Put(t.Context(), "", key, strings.NewReader(key),
			object.Attributes{ContentType: kind}); err != nil {
			t.Fatal(err)
		}
	}
	wantKind := func(key, kind string) {
		t.Helper()
		if text, info := w.mustGet(t, "", key); text != key || info.ContentType != kind {
			t.Errorf("%s: got %q, %+v", key, text, info)
		}
	}
	shareOneFile := func(keys ...string) bool {
		t.Helper()
		var files []os.FileInfo
		for _, key := range keys {
			stat, err := os.Stat(filepath.Join(w.dir, "millrace", key+".attrs"))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, stat)
		}
		return !slices.ContainsFunc(files, func(f os.FileInfo) bool {
			return !os.SameFile(f, files[0])
		})
	}
	for _, key := range []string{"a", "b", "c", "c"} { // the last in its own place
		putKind(key, "image/png")
	}
	if !shareOneFile("a", "b", "c") {
		t.Error("the same attributes are not one file")
	}
	putKind("a", "image/gif")
	if err := w.Delete(t.Context(), "", "b"); err != nil {
		t.Fatal(err)
	}
	wantKind("a", "image/gif")
	wantKind("c", "image/png")
	for i := range 300 { // more than are kept
		putKind(fmt.Sprint("many/", i), fmt.Sprint("x/", i))
		putKind(fmt.Sprint("again/", i), fmt.Sprint("x/", i))
		wantKind(fmt.Sprint("many/", i), fmt.Sprint("x/", i))
	}
	wantKind("a", "image/gif")
	wantKind("c", "image/png")
	left, err := os.ReadDir(filepath.Join(w.dir, ".temp"))
	if err != nil || len(left) > 100 {
		t.Errorf("%d temporary files are left, %v", len(left), err)
	}
}

// TestDirectoryAfterCrash removes what was half written, and shows nothing of it.
func TestDirectoryAfterCrash(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "kept", "x")
	for name, text := range map[string]string{".temp/HALF": "hal",
		"millrace/torn.attrs": `{"user.content_type":"a/b"}`} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	repeated := &fixture{mustOpen(t, object.Config{Dir: w.dir, Bucket: "millrace"}), w.dir}
	if got := repeated.fileNames(t); slices.Contains(got, ".temp/HALF") ||
		!slices.Contains(got, "millrace/kept") {
		t.Errorf("got %v", got)
	}
	if got, err := repeated.List(t.Context(), "", "", "", 10); err != nil ||
		!slices.Equal(got, []string{"kept"}) {
		t.Errorf("got %v, %v", got, err)
	}
	repeated.mustPut(t, "torn", "whole")
	if _, info := repeated.mustGet(t, "", "torn"); info.ContentType != "application/octet-stream" {
		t.Errorf("it has the attributes of another: %+v", info)
	}
}

// TestDirectoryConflicts is the one thing that differs: no key is a folder of another.
func TestDirectoryConflicts(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "a/b", "x")
	before := w.fileNames(t)
	for _, key := range []string{"a", "a/b/c", "a/b/c/d"} {
		if _, err := w.Put(t.Context(), "", key, strings.NewReader("y"),
			object.Attributes{ContentType: "a/b"}); !job.IsKind(err, job.Conflict) {
			t.Errorf("%s: got %v", key, err)
		}
	}
	if text, info := w.mustGet(t, "", "a/b"); text != "x" ||
		info.ContentType != "application/octet-stream" {
		t.Errorf("got %q, %+v", text, info)
	}
	if after := w.fileNames(t); !slices.Equal(after, before) {
		t.Errorf("got files %v", after)
	}
}

// TestDirectoryLinks does not follow a link that leads outside (FB-085).
func TestDirectoryLinks(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "k", "x")
	externalOf := t.TempDir()
	if err := os.Symlink(externalOf, filepath.Join(w.dir, "millrace", "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Put(t.Context(), "", "link/file", strings.NewReader("y"),
		object.Attributes{}); err == nil {
		t.Error("it was written through the link")
	}
	if left, err := os.ReadDir(externalOf); err != nil || len(left) != 0 {
		t.Errorf("outside is %v, %v", left, err)
	}
}

// TestDirectoryFolderRemoved puts an object into a folder of a bucket that somebody removed.
func TestDirectoryFolderRemoved(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "a/b/one", "x")
	if err := os.RemoveAll(filepath.Join(w.dir, "millrace", "a")); err != nil {
		t.Fatal(err)
	}
	w.mustPut(t, "a/b/two", "y")
	if text, _ := w.mustGet(t, "", "a/b/two"); text != "y" {
		t.Errorf("got %q", text)
	}
}

// A file in the place of a bucket is trouble with the bucket. It neither makes keys exclude each
// other nor objects missing.
func TestBucketIsAFile(t *testing.T) {
	t.Parallel()
	w := mustOpenDirectory(t)
	w.mustPut(t, "a/kept", "x")
	bucket := filepath.Join(w.dir, "millrace")
	if err := os.Rename(bucket, bucket+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bucket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, putErr := w.Put(t.Context(), "", "a/new", strings.NewReader("x"), object.Attributes{})
	_, _, openErr := w.Open(t.Context(), "", "a/kept")
	_, existsErr := w.Exists(t.Context(), "", "a/kept")
	for i, err := range []error{putErr, openErr, existsErr} {
		if !job.IsKind(err, job.ReadOnly) {
			t.Errorf("%d: got %v", i, err)
		}
	}
	if err := os.Remove(bucket); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(bucket+".away", bucket); err != nil {
		t.Fatal(err)
	}
	if text, _ := w.mustGet(t, "", "a/kept"); text != "x" {
		t.Errorf("got %q", text)
	}
}

// TestUnavailable distinguishes an outage of the directory from answers about objects.
func TestUnavailable(t *testing.T) {
	t.Run("a directory that went away", func(t *testing.T) {
		w := mustOpenDirectory(t)
		if err := os.RemoveAll(w.dir); err != nil {
			t.Fatal(err)
		}
		if err := w.Ping(t.Context()); !job.IsKind(err, job.ReadOnly) {
			t.Errorf("got %v", err)
		}
		if _, err := w.Put(t.Context(), "", "k", strings.NewReader("x"),
			object.Attributes{}); !job.IsKind(err, job.ReadOnly) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a bucket that is not there", func(t *testing.T) {
		server := outside.NewS3(t)
		w := &fixture{Objects: mustOpen(t,
			object.Config{URL: server.Setting(), Bucket: "millrace"})}
		_, err := w.Put(t.Context(), "", "k", strings.NewReader("x"), object.Attributes{})
		_, _, err2 := w.Open(t.Context(), "", "k")
		for i, err := range []error{err, err2, w.Ping(t.Context())} {
			if !job.IsKind(err, job.ReadOnly) { // it has to be made
				t.Errorf("%d: got %v", i, err)
			}
		}
	})
	t.Run("a store that was killed", func(t *testing.T) {
		server := outside.NewS3(t, "millrace")
		w := &fixture{Objects: mustOpen(t,
			object.Config{URL: server.Setting(), Bucket: "millrace"})}
		server.Kill()
		_, err := w.Put(t.Context(), "", "k", strings.NewReader("x"), object.Attributes{})
		_, err2 := w.Exists(t.Context(), "", "k")
		for i, err := range []error{err, err2, w.Ping(t.Context())} {
			if !job.IsKind(err, job.Unavailable) {
				t.Errorf("%d: got %v", i, err)
			}
		}
	})
	for name, c := range map[string]object.Config{"no name": {Dir: t.TempDir()},
		"not S3":              {URL: "file:///tmp", Bucket: "millrace"},
		"a bucket in the URL": {URL: "s3://millrace", Bucket: "millrace"},
		"unknown member":      {URL: "s3://?regoin=x", Bucket: "millrace"}} {
		if _, err := object.Open(t.Context(), c); !job.IsKind(err, job.Invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := object.Open(t.Context(),
		object.Config{Dir: file, Bucket: "millrace"}); !job.IsKind(err, job.ReadOnly) {
		t.Errorf("a file: got %v", errors.Unwrap(err))
	}
}
