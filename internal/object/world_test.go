package object_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// fixture is objects in one of the places, and the directory in which the place keeps its buckets.
type fixture struct {
	*object.Objects
	dir string
}

// forEachBackend runs a test on a directory and on an S3 store in a process of its own.
func forEachBackend(t *testing.T, test func(*testing.T, *fixture)) {
	t.Run("directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "objects")
		test(t, &fixture{mustOpen(t, object.Config{Dir: dir, Bucket: "millrace"}), dir})
	})
	t.Run("S3", func(t *testing.T) {
		server := outside.NewS3(t, "millrace", "other")
		test(t, &fixture{mustOpen(t, object.Config{URL: server.Setting(), Bucket: "millrace"}),
			server.Root})
	})
}

func mustOpen(tb testing.TB, c object.Config) *object.Objects {
	tb.Helper()
	o, err := object.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := o.Close(); err != nil {
			tb.Error(err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return o
}

func (w *fixture) mustPut(tb testing.TB, key, text string) {
	tb.Helper()
	if _, err := w.Put(tb.Context(), "", key, strings.NewReader(text),
		object.Attributes{}); err != nil {
		tb.Fatal(err)
	}
}

func (w *fixture) mustGet(tb testing.TB, bucket, key string) (string, object.Info) {
	tb.Helper()
	body, info, err := w.Open(tb.Context(), bucket, key)
	if err != nil {
		tb.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text), info
}

// fileNames are what is in the directory, whatever it is, but for empty folders, attributes that
// are kept for objects to come, the names of the buckets, and the locks of the S3 server.
func (w *fixture) fileNames(tb testing.TB) (all []string) {
	tb.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.dir, path)
		rel = filepath.ToSlash(rel)
		kept := (strings.HasPrefix(rel, ".temp/") && strings.HasSuffix(rel, ".attrs")) ||
			strings.HasPrefix(rel, ".buckets/")
		if err == nil && !d.IsDir() && !kept && !strings.Contains(rel, ".vgwlocks") {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}
