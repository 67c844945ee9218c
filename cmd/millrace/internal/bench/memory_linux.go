package bench

import "golang.org/x/sys/unix"

// onMemoryFileSystem reports whether a directory is in memory, where an fsync makes nothing
// durable.
func onMemoryFileSystem(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC)
}
