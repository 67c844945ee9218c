//go:build !linux

package bench

// onMemoryFileSystem reports false: only Linux says which file systems are in memory.
func onMemoryFileSystem(string) bool { return false }
