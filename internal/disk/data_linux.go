package disk

import (
	"errors"
	"os"
	"syscall"
)

// SyncData writes the content of a file to the disk, with as much of its metadata as is needed to
// read it back. A call that failed must not be repeated: the pages that it was for may be dropped.
func SyncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
