//go:build !unix

package sqlite

// lockFile does nothing where there is no flock: SQLite's own locks keep the
// database whole, and a second process meets a busy database.
func lockFile(string) (unlock func(), err error) { return func() {}, nil }

func syncDir(string) error { return nil }
