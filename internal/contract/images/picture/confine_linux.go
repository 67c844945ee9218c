package picture

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolateProcess starts the command in a process group of its own, and has the kernel kill it with
// us and us kill all of it.
func isolateProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// applyLimits gives this process the limits that the kernel enforces from now on: memory that can
// be written to, processor time (twice what the parent waits for, as it is counted on each
// processor; only an orphan comes so far), the size and the number of files, and no core dump.
func applyLimits(l Limits) error {
	seconds := uint64(l.Timeout.Seconds()+1) * uint64(runtime.NumCPU())
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_DATA: uint64(l.Memory), unix.RLIMIT_CPU: seconds,
		unix.RLIMIT_FSIZE: uint64(l.Memory), unix.RLIMIT_NOFILE: 64, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}

// peakMemory is the memory this process held at most.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "\nVmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	kib, _ := strconv.ParseInt(number, 10, 64) // none where /proc is not mounted
	return kib << 10
}
