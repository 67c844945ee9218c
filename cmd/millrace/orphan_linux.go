package main

import (
	"os/exec"
	"syscall"
)

// killWithParent has the kernel kill the command when this process dies, however it does: nobody is
// left to hear how the command ends. What the command has started itself goes on. The kernel goes
// by the thread that starts the command, which ends with the process: no goroutine here ends locked
// to one.
func killWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
