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
