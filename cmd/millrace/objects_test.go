package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestBucketMissing: a bucket that was not made is told of at the start, by name, and holds no
// start up.
func TestBucketMissing(t *testing.T) {
	storage := outside.NewS3(t, "millrace")
	binary, err := exec.LookPath("millrace")
	if err != nil {
		t.Fatal(err)
	}
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
