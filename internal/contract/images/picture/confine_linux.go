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

// isolateProcess starts the command in a process group of its own. The kernel kills it when this
// process ends, and the end of the command's context kills the whole group. It is called before
// the command starts.
func isolateProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// applyLimits sets the limits that the kernel enforces on this process: writable memory, processor
// time, the size and the number of files, and no core dump. Processor time counts on every
// processor and so exceeds the timeout of the parent; the limit only stops an orphan. After an
// error some of the limits may be set, so the process must end.
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

// peakMemory is the largest resident memory of this process so far, in bytes.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "\nVmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	kib, _ := strconv.ParseInt(number, 10, 64) // 0 if /proc is not mounted
	return kib << 10
}
