package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs real servers for a few seconds under kills, and finds nothing wrong with them. The
// same run with a bug seeded into the server finds it, so that a harness that sees nothing fails.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	t.Parallel()
	for _, c := range []struct {
		bug  string
		code int
		want string
	}{
		{"", exitGood, "no violation"},
		{"owner-not-checked", exitViolation, "VIOLATION I10"},
	} {
		t.Run("bug "+c.bug, func(t *testing.T) {
			t.Parallel()
			var output bytes.Buffer
			dir := t.TempDir()
			code := Main(t.Context(), []string{"-seed", "7", "-load", "6s", "-dir", dir, "-bug",
				c.bug}, &output)
			if code != c.code || !strings.Contains(output.String(), c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.want, &output)
			}
			ledger, err := os.ReadFile(filepath.Join(dir, "ledger.jsonl"))
			if err != nil || bytes.Count(ledger, []byte("\n")) < 100 {
				t.Errorf("the ledger has %d bytes: %v", len(ledger), err)
			}
		})
	}
}

// TestBugsApply: every seeded bug still applies to the source, so that none is a bug no longer
// without anybody seeing it. That each builds, and is caught, is shown by -prove alone.
func TestBugsApply(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, err := bugNames()
	if err != nil || len(names) < 10 {
		t.Fatalf("found %d bugs: %v", len(names), err)
	}
	for _, name := range names {
		b, err := readBug(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if replaced, err := b.apply(root, t.TempDir()); err != nil || len(replaced) == 0 {
			t.Errorf("bug %s changes %d files: %v", name, len(replaced), err)
		}
		if _, _, err := readPlan(b.flags, &bytes.Buffer{}); err != nil {
			t.Errorf("bug %s: %v", name, err)
		}
	}
	stale := &seededBug{name: "stale", edits: []edit{{"go.mod", "no such text", ""}}}
	if _, err := stale.apply(root, t.TempDir()); err == nil {
		t.Error("a bug whose text is gone still applies")
	}
}
