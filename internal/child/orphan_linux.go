package child

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// KillWithParent has the kernel kill the command when this process dies, however it dies: nothing
// is then left to wait for the command. Processes that the command has started go on.
//
// The kernel watches the thread that starts the command. Threads of Go end with the process, unless
// a goroutine ends while it is locked to one, which none does here.
func KillWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }

// killThreadWithParent has the kernel kill this process when its parent dies, also after the
// calling thread has become another program: each thread has a parent death signal of its own. A
// parent that dies before the call is noticed too: the first thread has the signal of
// KillWithParent until the process becomes the program.
func killThreadWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("the parent death signal: %w", err)
	}
	return nil
}
