//go:build unix

package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/disk"
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
