//go:build !linux

package child

import (
	"os"
	"os/exec"
)

// wait waits for the end of a program and kills what it has left in its group.
func wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = SignalGroup(cmd.Process, os.Kill)
	return err
}
