//go:build !unix

package disk

import (
	"os"
	"path/filepath"
)

// Lock does nothing where there is no flock.
func Lock(string) (unlock func(), err error) { return func() {}, nil }

// Announce does nothing where there is no flock.
func Announce(path, address string) error { return nil }

// Holder knows of no process where there is no flock.
func Holder(path string) (pid, address string) { return "", "" }

// Sync does nothing where a directory cannot be synced.
func Sync(string) error { return nil }

// Fingerprint distinguishes the directory from every other one that exists at the same time, by the
// machine's name and the path.
func Fingerprint(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	host, _ := os.Hostname()
	return host + " " + path, err
}
