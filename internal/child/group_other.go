//go:build !unix

package child

import (
	"os"
	"os/exec"
)

// SetProcessGroup does nothing: there are no process groups here.
func SetProcessGroup(*exec.Cmd) {}

// SignalGroup ends the process: there are no groups and no signals here.
func SignalGroup(p *os.Process, _ os.Signal) error { return p.Kill() }
