package object

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// list walks the folders in the order of keys, and skips those that cannot contain a key that is
// asked for. A list is no snapshot: an object that is written or removed while the folders are read
// may be in it or not.
func (d *directory) list(ctx context.Context, bucket, prefix, after string, n int) ([]string,
	error) {
	l := &lister{ctx: ctx, fsys: d.root.FS(), bucket: bucket, prefix: prefix, after: after, n: n}
	err := l.walkFolder("")
	if errors.Is(err, fs.ErrNotExist) && len(l.found) == 0 {
		return nil, d.checkBucket(bucket) // a bucket exists from its first object on
	}
	return l.found, err
}

// lister is one walk of a bucket.
type lister struct {
	ctx                   context.Context
	fsys                  fs.FS
	bucket, prefix, after string
	n                     int
	found                 []string
}

// walkFolder lists the keys below a folder. parent is the part of the key before them: empty, or
// with a slash at its end.
func (l *lister) walkFolder(parent string) error {
	entries, err := fs.ReadDir(l.fsys, strings.TrimSuffix(l.bucket+"/"+parent, "/"))
	if err != nil {
		return err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch name := parent + e.Name(); {
		case e.IsDir():
			names = append(names, name+"/") // sorts as the keys below it do
		case e.Type().IsRegular() && !strings.HasSuffix(name, sidecar):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if len(l.found) >= l.n {
			return nil
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
		err := l.walkEntry(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been removed meanwhile
			return err
		}
	}
	return nil
}

// walkEntry lists a folder, whose name ends in a slash, or adds a key to the result.
func (l *lister) walkEntry(name string) error {
	if strings.HasSuffix(name, "/") {
		inPrefix := strings.HasPrefix(name, l.prefix) || strings.HasPrefix(l.prefix, name)
		hasLater := name >= l.after || strings.HasPrefix(l.after, name)
		if !inPrefix || !hasLater {
			return nil
		}
		return l.walkFolder(name)
	}
	if strings.HasPrefix(name, l.prefix) && name > l.after {
		l.found = append(l.found, name)
	}
	return nil
}
