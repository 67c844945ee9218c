//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// SetProcessGroup gives the command a process group of its own: signals from the terminal reach it
// only through us.
func SetProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// SignalGroup signals the process and everything it has started and not taken out of its group.
func SignalGroup(p *os.Process, s os.Signal) error {
	number, ok := s.(syscall.Signal)
	if !ok {
		return p.Signal(s)
	}
	err := syscall.Kill(-p.Pid, number)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
