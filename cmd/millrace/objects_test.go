package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestBucketMissing: a bucket that does not exist is logged at the start, by name, and holds no
// start up.
func TestBucketMissing(t *testing.T) {
	t.Parallel()
	storage := outside.NewS3(t, "millrace")
	binary := mustMillrace(t)
	for bucket, want := range map[string]int{"millrace": 0, "forgotten": 1} {
		s, err := launch(binary, filepath.Join(t.TempDir(), "data"), nil, "--set",
			"contracts=images", "--set", "log.level=warn",
			"--set", "objects.url="+storage.Setting(), "--set", "objects.bucket="+bucket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.kill)
		if err := s.terminate(); err != nil {
			t.Error(err)
		}
		if log := s.stderr.String(); strings.Count(log, "there is no bucket "+bucket) != want {
			t.Errorf("with the bucket %s the log says %s", bucket, log)
		}
	}
}

// What only an operator can mend is named by readiness, with 503: the folder of a bucket, or all
// of the objects' directory, that was moved away. It is not made again, empty.
func TestObjectsMoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := launchIn(t, dir, "--set", "log.level=warn")
	objects := filepath.Join(dir, "objects")
	for _, c := range []struct{ path, because string }{
		{objects, "the directory of the objects was moved or deleted"},
		{filepath.Join(objects, "millrace"), "the folder of the bucket millrace is gone"},
	} {
		wantObjectsReady(t, s, http.StatusOK, " ok")
		if err := os.Rename(c.path, c.path+".away"); err != nil {
			t.Fatal(err)
		}
		wantObjectsReady(t, s, http.StatusServiceUnavailable, " fails: "+c.because)
		operators := requestCheck{method: "GET", path: "/operators/health"}
		status, body := operators.send(t, s.url)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, c.because) {
			t.Errorf("/operators/health: got %d %s", status, body)
		}
		if _, err := os.Stat(c.path); !os.IsNotExist(err) {
			t.Errorf("%s was made again: %v", c.path, err)
		}
		if err := os.Rename(c.path+".away", c.path); err != nil {
			t.Fatal(err)
		}
	}
	wantObjectsReady(t, s, http.StatusOK, " ok")
}

// wantObjectsReady waits until readiness says so of the objects of FetchBox and Images. A server
// that has just started is not ready before its workers claim.
func wantObjectsReady(t *testing.T, s *launchedServer, status int, text string) {
	t.Helper()
	ready := requestCheck{method: "GET", path: "/health/ready"}
	var got int
	var body string
	pollUntil(func(string, ...any) {
		t.Errorf("/health/ready: got %d %s, want %d %q", got, body, status, text)
	}, "readiness", func() bool {
		got, body = ready.send(t, s.url)
		return got == status && strings.Contains(body, "fetchbox storage"+text) &&
			strings.Contains(body, "images objects"+text)
	})
}
