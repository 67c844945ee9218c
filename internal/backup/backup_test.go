package backup_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/backup"
)

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRoundTrip: every file of a sealed directory is restored, whatever its name, and sha256sum
// agrees with the checksums.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	files := map[string]string{"db": "rows", "empty": "", "a/b/c": "deep", "a/with space": "1",
		"a/new\nline": "2", `a/back\slash`: "3", "a/..dots": "4", `a/\n`: "5"}
	for name, text := range files {
		mustWrite(t, filepath.Join(dir, name), text)
	}
	var bytes int64
	sealed, err := backup.Seal(t.Context(), dir, backup.Manifest{Version: "v", Store: "sqlite",
		CreatedAt: time.Unix(1, 0)}, func(n int64) { bytes += n })
	must(t, err)
	if sealed.Files != int64(len(files)) || sealed.Bytes != bytes || bytes != 13 {
		t.Errorf("it is sealed as %+v", sealed)
	}
	if sha256sum, err := exec.LookPath("sha256sum"); err == nil {
		c := exec.Command(sha256sum, "--quiet", "-c", "SHA256SUMS")
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("sha256sum: %v: %s", err, out)
		}
	}
	opened, err := backup.Open(dir)
	must(t, err)
	if opened.Sums != sealed.Sums || !opened.CreatedAt.Equal(time.Unix(1, 0)) {
		t.Errorf("it is opened as %+v", opened)
	}
	must(t, backup.MakeEmpty(to, backup.Staging))
	staging, err := backup.Unpack(t.Context(), dir, to, func(int64) {})
	must(t, err)
	if !backup.HasStaging(to) {
		t.Error("the staging directory is not noticed")
	}
	must(t, backup.Publish(staging, "db"))
	for name, text := range files {
		if got := read(t, filepath.Join(to, name)); got != text {
			t.Errorf("%q has %q, want %q", name, got, text)
		}
	}
	if backup.HasStaging(to) {
		t.Error("the staging directory is left")
	}
}

// TestDamageIsFound: a damaged backup is refused, and nothing of it is published.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(dir string) error{
		"a changed file":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("y"), 0o600) },
		"a missing file":  func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
		"a changed list":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), nil, 0o600) },
		"no manifest":     func(dir string) error { return os.Remove(filepath.Join(dir, "backup.json")) },
		"another format":  func(dir string) error { return replace(dir, `"format": 1`, `"format": 2`) },
		"a half manifest": func(dir string) error { return os.Truncate(filepath.Join(dir, "backup.json"), 9) },
	} {
		dir, to := t.TempDir(), t.TempDir()
		mustWrite(t, filepath.Join(dir, "a"), "x")
		_, err := backup.Seal(t.Context(), dir, backup.Manifest{}, func(int64) {})
		must(t, err)
		must(t, damage(dir))
		_, err = backup.Open(dir)
		if err == nil {
			_, err = backup.Unpack(t.Context(), dir, to, func(int64) {})
		}
		if err == nil {
			t.Errorf("%s is not noticed", name)
		}
		if _, err := os.Stat(filepath.Join(to, "a")); err == nil {
			t.Errorf("%s: the file is there", name)
		}
	}
}

func replace(dir, before, after string) error {
	path := filepath.Join(dir, "backup.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), before, after, 1)), 0o600)
}

// TestNamesStayInside: a list of files cannot name one outside of the backup.
func TestNamesStayInside(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("a", 64)
	for _, line := range []string{sum + "  ../a\n", sum + "  /a\n", sum + " a\n", "short  a\n", "\n"} {
		dir := t.TempDir()
		mustWrite(t, filepath.Join(dir, "SHA256SUMS"), line)
		_, err := backup.Unpack(t.Context(), dir, t.TempDir(), func(int64) {})
		if err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestCopyTreeAgain: the second copy brings what is new and what has changed, keeps what is gone in
// the original, and leaves the rest as it is.
func TestCopyTreeAgain(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	at := func(name string) string { return filepath.Join(from, name) }
	for _, name := range []string{"b/same", "b/changed", "b/gone", ".temp/half"} {
		mustWrite(t, at(name), "one")
	}
	sync := func() (bytes int64) {
		t.Helper()
		must(t, backup.CopyTree(t.Context(), from, to, func(name string) bool {
			return name == ".temp"
		}, func(n int64) { bytes += n }))
		return bytes
	}
	if n := sync(); n != 9 {
		t.Errorf("the first copy has %d bytes, want 9", n)
	}
	must(t, os.Remove(at("b/gone")))
	mustWrite(t, at("b/changed"), "two!")
	mustWrite(t, at("c/new"), "three")
	if n := sync(); n != 9 {
		t.Errorf("the second copy has %d bytes, want 9", n)
	}
	for name, want := range map[string]string{"b/same": "one", "b/changed": "two!", "b/gone": "one",
		"c/new": "three"} {
		if got := read(t, filepath.Join(to, name)); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(to, ".temp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is skipped: %v", err)
	}
	info, err := os.Stat(filepath.Join(to, "b/same"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy has the mode %v, %v", info.Mode(), err)
	}
	must(t, backup.CopyTree(t.Context(), filepath.Join(from, "none"), to,
		func(string) bool { return false }, func(int64) {}))
}

// TestMakeEmpty: a directory with something in it is refused, which the error names.
func TestMakeEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "allowed"), "")
	must(t, backup.MakeEmpty(dir, "allowed"))
	err := backup.MakeEmpty(dir)
	if full, ok := errors.AsType[*backup.NotEmptyError](err); !ok || full.Name != "allowed" {
		t.Errorf("got %v", err)
	}
}
