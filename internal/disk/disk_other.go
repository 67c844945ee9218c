//go:build !unix

package disk

import (
	"os"
	"path/filepath"
)

// Lock does nothing where there is no flock.
func Lock(string) (unlock func(), err error) { return func() {}, nil }

// Sync does nothing where a directory cannot be synced.
func Sync(string) error { return nil }

// Fingerprint distinguishes the directory from every other one that exists at the same time, by the
// machine's name and the path.
func Fingerprint(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	host, _ := os.Hostname()
	return host + " " + path, err
}
