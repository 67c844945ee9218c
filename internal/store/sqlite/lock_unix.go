//go:build unix

package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/job"
)

// lockFile takes the lock that keeps a second process from the database. The
// kernel drops it when the process ends, however it ends.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &job.Error{Kind: job.ReadOnly, Op: "store.open", Msg: "the data directory is not writable", Err: err}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		f.Close()
		return nil, &job.Error{Kind: job.Conflict, Op: "store.open",
			Msg: fmt.Sprintf("the data directory %s is in use by process %s", filepath.Dir(path), strings.TrimSpace(string(holder[:n])))}
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	// A child that is being started holds a copy of the file until it runs: closing
	// ours would leave the lock to it for that long.
	return func() { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN); f.Close() }, nil
}

// syncDir puts the entries of a directory on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
