package testkit

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

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
