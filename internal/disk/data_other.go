//go:build !linux

package disk

import "os"

// SyncData writes a file to the disk.
func SyncData(f *os.File) error { return f.Sync() }
