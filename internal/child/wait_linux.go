package child

import (
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// wait waits for the end of a program, kills what it has left in its group, and only then releases
// its process id, which the group has too: the system gives it to no other process before.
func wait(cmd *exec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			_ = SignalGroup(cmd.Process, os.Kill)
			return cmd.Wait()
		case !errors.Is(err, unix.EINTR):
			return cmd.Wait()
		}
	}
}
