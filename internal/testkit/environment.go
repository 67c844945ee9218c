package testkit

import (
	"flag"
	"os"
	"os/exec"
	"strconv"
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

// Size returns the size of a test: the one that an environment variable gives for a run at full
// size, and true, else the daily one.
func Size(tb testing.TB, variable string, daily int) (n int, isFull bool) {
	tb.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return daily, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("%s is %q", variable, text)
	}
	return n, true
}

// SetPropertyChecks sets how many times a property is tried unless -rapid.checks says otherwise. It
// is for TestMain of packages whose properties take seconds each, as rapid tries a hundred times.
func SetPropertyChecks(n int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
