package child_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/child"
)

// The kernel enforces the limits on the program and on what it starts.
func TestLimits(t *testing.T) {
	t.Parallel()
	stdout, err := limited(shell(t.TempDir(),
		"ulimit -d; ulimit -t; ulimit -c; sh -c 'ulimit -Hd'"),
		child.Limits{Memory: 64 << 20, CPU: 1500 * time.Millisecond}).Run(t.Context())
	if got := strings.Fields(string(stdout)); strings.Join(got, " ") != "65536 2 0 65536" {
		t.Errorf("got %v, %v", got, err)
	}
	var exit *exec.ExitError
	_, err = limited(shell(t.TempDir(), "while :; do :; done"),
		child.Limits{CPU: time.Second}).Run(t.Context())
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("a program that takes too much processor time ended with %v", err)
	}
}
