package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPowerCut takes the power of a PostgreSQL server under load, and finds nothing that was
// acknowledged lost.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	if (os.Getuid() != 0) && (os.Getenv("MILLRACE_TEST_REQUIRE") != "1") {
		t.Skip("skipped: a file system is mounted by root")
	}
	t.Parallel()
	var output bytes.Buffer
	code := Main(t.Context(), []string{"-seed", "5", "-store", "postgres", "-nodes", "2", "-only",
		faultPowerCut, "-load", "4s", "-dir", t.TempDir(), "-binary",
		serverBinary(t)}, &output)
	for _, text := range []string{"no violation", " × power-cut"} {
		if code != exitGood || !strings.Contains(output.String(), text) {
			t.Errorf("exit code %d, without %q:\n%s", code, text, &output)
		}
	}
}
