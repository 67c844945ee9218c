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

// Lock takes the lock file at path, which keeps a second process out of its directory. The kernel
// drops it when the process ends, however it ends. Conflict names the process that has it.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &job.Error{Kind: job.ReadOnly, Op: "disk.lock",
			Msg: "the data directory " + filepath.Dir(path) + " is not writable", Err: err}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		f.Close()
		return nil, &job.Error{Kind: job.Conflict, Op: "disk.lock",
			Msg: fmt.Sprintf("the data directory %s is in use by process %s", filepath.Dir(path),
				strings.TrimSpace(string(holder[:n])))}
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	// A child that is being started holds a copy of the file until it runs: closing ours would
	// leave the lock to it for that long.
	return func() { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN); f.Close() }, nil
}

// Sync puts the entries of a directory on the disk.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
