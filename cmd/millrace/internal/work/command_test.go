package work

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Exit codes other than 126 and 127, and an environment that is too large, are the fault of the
// job.
func TestCannotRun(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{1: false, 64: false, 125: false, 126: true, 127: true} {
		err := exec.Command("sh", "-c", fmt.Sprintf("exit %d", code)).Run()
		if got := isCannotRun(err); got != want {
			t.Errorf("exit code %d: %v", code, got)
		}
	}
	large := exec.Command("true")
	large.Env = []string{"STATE=" + strings.Repeat("x", 1<<20)}
	if err := large.Run(); err == nil || isCannotRun(err) {
		t.Errorf("an environment that is too large: %v", err)
	}
	if isCannotRun(io.ErrUnexpectedEOF) {
		t.Error("an error of another kind means that the command cannot be run")
	}
}
