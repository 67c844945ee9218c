//go:build unix

package httpapi

import "syscall"

// maxOpenFiles returns how many files and connections this process may have open.
func maxOpenFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return unlimitedFiles
	}
	return int(min(uint64(limit.Cur), unlimitedFiles))
}
