package main

import "syscall"

// freeDisk is how many bytes can still be written to a folder.
func freeDisk(dir string) (uint64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return s.Bavail * uint64(s.Bsize), err
}

// syncDisk returns when all that was written before is on the disk.
func syncDisk() { syscall.Sync() }
