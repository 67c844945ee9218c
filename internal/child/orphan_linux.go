package child

import (
	"os/exec"
	"syscall"
)

// KillWithParent has the kernel kill the command when this process dies, however it dies: nothing
// is then left to wait for the command. Processes that the command has started go on.
//
// The kernel watches the thread that starts the command. Threads of Go end with the process, unless
// a goroutine ends while it is locked to one, which none does here.
func KillWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
