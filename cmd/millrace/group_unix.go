//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// setProcessGroup gives the command a process group of its own: signals from the terminal reach it
// only through us.
func setProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup signals the process and everything it has started and not taken out of its group.
func signalGroup(p *os.Process, s os.Signal) error {
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
