package backup

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/disk"
)

// Objects are copied while a server writes and deletes them. So they are copied twice, before the
// database and after it: only before, those that are new would be missing, and only after, those
// that the copied database still names and that were deleted meanwhile. The second call takes
// little time, as a file with the size and the time of its copy is not copied again.

// CopyFile copies a file with access for its owner alone, in place of a file that is there, and
// syncs it. The copy has the time of the original. It returns the number of bytes.
func CopyFile(from, to string) (int64, error) {
	source, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return 0, err
	}
	n, err := write(to, source)
	if err != nil {
		return n, err
	}
	return n, os.Chtimes(to, time.Time{}, info.ModTime())
}

// write writes a file and syncs it.
func write(to string, body io.Reader) (n int64, err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	if n, err = io.Copy(f, body); err != nil {
		return n, errors.Join(err, f.Close())
	}
	return n, errors.Join(f.Sync(), f.Close())
}

// CopyTree copies the files of a directory that a process may be changing: a file that vanishes is
// left out. A file that the copy has already, with the same size and time, is not copied again, so
// that a second call brings what has come since the first. Names that skip reports are left out,
// with all below them. A directory that does not exist has no files.
func CopyTree(ctx context.Context, from, to string, skip func(name string) bool,
	report func(bytes int64)) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if skip(d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		n, err := copyChanged(path, filepath.Join(to, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		report(n)
		return err
	})
}

// copyChanged copies a regular file unless the copy is there already.
func copyChanged(from, to string) (int64, error) {
	source, err := os.Stat(from)
	if err != nil || !source.Mode().IsRegular() {
		return 0, err
	}
	target, err := os.Stat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	case target.Size() == source.Size() && target.ModTime().Equal(source.ModTime()):
		return 0, nil
	}
	return CopyFile(from, to)
}

// MakeEmpty makes a directory, or takes one that has nothing but the allowed names in it.
func MakeEmpty(dir string, allowed ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(allowed, e.Name()) {
			return &NotEmptyError{Dir: dir, Name: e.Name()}
		}
	}
	return disk.Sync(filepath.Dir(dir))
}

// NotEmptyError says that a directory which is to be filled has something in it.
type NotEmptyError struct{ Dir, Name string }

// Error names the first thing that is in the directory.
func (e *NotEmptyError) Error() string {
	return "the directory " + e.Dir + " is not empty: it has " + e.Name
}
