package bench

import "golang.org/x/sys/unix"

// onMemoryFileSystem reports whether a directory is in memory, where an fsync makes nothing
// durable.
func onMemoryFileSystem(dir string) bool {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return false
	}
	return s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC
}
