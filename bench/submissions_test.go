package main

import (
	"io"
	"strings"
	"testing"
)

// All of it runs, small.
func TestSubmissions(t *testing.T) {
	t.Parallel()
	out := runOn(t, "submissions", "-n", "200", "-clients", "4", "-rounds", "1", "-rate", "50",
		"-time", "1s")
	for _, line := range []string{"transactions of 1: ", "transactions of 100: ", "from the COMMIT"} {
		if !strings.Contains(out, line) {
			t.Errorf("the report has no %q:\n%s", line, out)
		}
	}
}

func TestSubmissionsFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-n", "0"}, {"-rate", "0"}, {"-time", "0s"}} {
		if _, err := parseSubmissions(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
}
