//go:build !unix

package disk

// Lock does nothing where there is no flock.
func Lock(string) (unlock func(), err error) { return func() {}, nil }

// Sync does nothing where a directory cannot be synced.
func Sync(string) error { return nil }
