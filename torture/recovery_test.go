package main

import (
	"bytes"
	"regexp"
	"testing"
)

// TestRecovery: a node that is killed comes back, and each job of its worker is claimed again. How
// long that took is printed and not checked here.
func TestRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers")
	}
	t.Parallel()
	var output bytes.Buffer
	code := Main(t.Context(), []string{"-recovery", "700", "-dir", t.TempDir(),
		"-binary", serverBinary(t)}, &output)
	for _, want := range []string{`700 jobs queued, 1 kills of a node, each with 300 leases of 2s`,
		`ready after the start .* of 1\n`, `claimed again after the end of the lease .* of 300\n`} {
		if code == exitNoVerdict || !regexp.MustCompile(want).Match(output.Bytes()) {
			t.Errorf("exit code %d, want %s in:\n%s", code, want, &output)
		}
	}
	if code := Main(t.Context(), []string{"-recovery", "1", "-only", "kill"}, &output); code !=
		exitNoVerdict {
		t.Errorf("a recovery with a fault that is chosen has exit code %d", code)
	}
}
