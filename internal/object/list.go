package object

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// list goes through the folders in the order of keys, and leaves out those that can hold none that
// is asked for.
func (d *directory) list(ctx context.Context, bucket, prefix, after string, n int) ([]string,
	error) {
	l := &lister{ctx: ctx, fsys: d.root.FS(), bucket: bucket, prefix: prefix, after: after, n: n}
	err := l.walkFolder("")
	if errors.Is(err, fs.ErrNotExist) && len(l.found) == 0 {
		err = nil // a bucket nothing was put in yet
	}
	return l.found, err
}

type lister struct {
	ctx                   context.Context
	fsys                  fs.FS
	bucket, prefix, after string
	n                     int
	found                 []string
}

// folder lists what is below a part of a key that ends in a slash, or is empty.
func (l *lister) walkFolder(parent string) error {
	entries, err := fs.ReadDir(l.fsys, strings.TrimSuffix(l.bucket+"/"+parent, "/"))
	if err != nil {
		return err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch name := parent + e.Name(); {
		case e.IsDir():
			names = append(names, name+"/") // its place among keys
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
		// removed in the meantime
		if err := l.walkEntry(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *lister) walkEntry(name string) error {
	if strings.HasSuffix(name, "/") {
		if (!strings.HasPrefix(name, l.prefix) && !strings.HasPrefix(l.prefix, name)) ||
			(name < l.after && !strings.HasPrefix(l.after, name)) {
			return nil
		}
		return l.walkFolder(name)
	}
	if strings.HasPrefix(name, l.prefix) && name > l.after {
		l.found = append(l.found, name)
	}
	return nil
}
