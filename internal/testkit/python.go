package testkit

import (
	"os"
	"os/exec"
	"testing"
)

// Python returns the path of python3. Where it is not installed the test is skipped, and fails with
// MILLRACE_TEST_REQUIRE=1.
func Python(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("python3")
	if err != nil && os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		tb.Fatal(err)
	}
	if err != nil {
		tb.Skip("skipped: ", err)
	}
	return path
}
