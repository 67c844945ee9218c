//go:build unix

package disk_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
)

// TestFingerprint: a directory keeps its fingerprint when it is renamed, and a copy has another.
func TestFingerprint(t *testing.T) {
	fingerprint := func(dir string) string {
		t.Helper()
		text, err := disk.Fingerprint(dir)
		if err != nil || text == "" {
			t.Fatalf("got %q, %v", text, err)
		}
		return text
	}
	root := t.TempDir()
	dir, renamed := filepath.Join(root, "a"), filepath.Join(root, "b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	first := fingerprint(dir)
	if err := os.Rename(dir, renamed); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(renamed)); err != nil {
		t.Fatal(err)
	}
	if fingerprint(renamed) != first || fingerprint(dir) == first {
		t.Errorf("it was %s, renamed %s, its copy %s", first, fingerprint(renamed),
			fingerprint(dir))
	}
	if text, err := disk.Fingerprint(filepath.Join(root, "none")); err == nil {
		t.Errorf("what is not there has %q", text)
	}
}

// TestHolder: the process that holds a lock is known with what it has announced, and none is once
// the lock is released.
func TestHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if pid, address := disk.Holder(path); pid != "" || address != "" {
		t.Errorf("without a file there is %q at %q", pid, address)
	}
	unlock, err := disk.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Announce(path, "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	pid, address := disk.Holder(path)
	if pid != strconv.Itoa(os.Getpid()) || address != "http://127.0.0.1:1" {
		t.Errorf("the holder is %q at %q", pid, address)
	}
	_, err = disk.Lock(path)
	if !job.IsKind(err, job.Conflict) || !strings.HasSuffix(err.Error(), "by process "+pid) {
		t.Errorf("a second lock is refused by %v", err)
	}
	unlock()
	if pid, address := disk.Holder(path); pid != "" || address != "" {
		t.Errorf("when it is released there is %q at %q", pid, address)
	}
}
