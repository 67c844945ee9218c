//go:build unix

package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/job"
)

// Lock locks the file at path, which keeps a second process out of its directory. The kernel
// releases the lock when the process ends, however it ends. The error is a Conflict that names the
// process that has the lock, or ReadOnly where the file cannot be created.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &job.Error{Kind: job.ReadOnly, Op: "disk.lock",
			Msg: "the data directory " + filepath.Dir(path) + " is not writable", Err: err}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		pid, _ := holderIn(path)
		return nil, &job.Error{Kind: job.Conflict, Op: "disk.lock",
			Msg: fmt.Sprintf("the data directory %s is in use by process %s", filepath.Dir(path), pid)}
	}
	writePID(f)
	// A child process that is being started has a copy of the descriptor until it runs its own
	// program. Closing ours would leave the lock to it for that long, so it is released first.
	return func() { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN); f.Close() }, nil
}

// writePID names this process in the lock file. It only serves the message of Lock, so a failure
// does not matter.
func writePID(f *os.File) {
	if f.Truncate(0) != nil {
		return
	}
	fmt.Fprintf(f, "%d\n", os.Getpid())
}

// Announce writes into a lock file that this process holds where it can be reached.
func Announce(path, address string) error {
	return os.WriteFile(path, fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), address), 0o600)
}

// Holder returns which process holds the lock of a file, and what it has announced; "" for none. It
// makes no file.
func Holder(path string) (pid, address string) {
	f, err := os.Open(path)
	if err != nil {
		return "", ""
	}
	defer f.Close() // which releases the lock that is tried
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return holderIn(path)
	}
	return "", ""
}

// holderIn reads a lock file.
func holderIn(path string) (pid, address string) {
	text, _ := os.ReadFile(path)
	pid, address, _ = strings.Cut(string(text), "\n")
	return strings.TrimSpace(pid), strings.TrimSpace(address)
}

// Sync writes the entries of a directory to the disk.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Fingerprint distinguishes the directory from every other one that exists at the same time, a copy
// of it included: it is the machine since its last start, and the directory's file system and inode
// there.
func Fingerprint(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	stat, isUnix := info.Sys().(*syscall.Stat_t)
	if !isUnix {
		return "", fmt.Errorf("the file system reports no inode of %s", dir)
	}
	return fmt.Sprintf("%s %d:%d", machine(), stat.Dev, stat.Ino), nil
}

// machine names the machine since its last start where the kernel has a name for that, and else by
// its host name.
func machine() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		host, _ := os.Hostname()
		return host
	}
	return strings.TrimSpace(string(id))
}
