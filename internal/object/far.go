package object

import (
	"crypto/rand"
	"errors"
	"path"
	"syscall"
)

// errFar says that a file cannot be renamed into a folder, as another file system has that: the folder of a bucket, or one
// below it, is a mount.
var errFar = errors.New("the folder is on another file system")

// isFar tries whether a temporary file can have a name in a folder. A file system without links is asked as well: it is
// compared first.
func (d *directory) isFar(folder, data string) bool {
	name := nearName(folder)
	err := d.root.Link(data, name)
	if err == nil {
		_ = d.root.Remove(name)
	}
	return errors.Is(err, syscall.EXDEV)
}

// nearName is a name for a file that is being written in the folder of an object. It is no object's key.
func nearName(folder string) string { return folder + "/" + rand.Text() + sidecar }

// move is commit, also where the temporary files have to be copied into the folder first.
func (d *directory) move(name, data, beside string) error {
	if err := d.commit(name, data, beside); !errors.Is(err, errFar) {
		return err
	}
	near := [2]string{}
	for i, file := range [2]string{data, beside} {
		if file == "" {
			continue
		}
		near[i] = nearName(path.Dir(name))
		if err := d.copy(file, near[i]); err != nil {
			return err
		}
		defer func() { _ = d.root.Remove(near[i]) }() // gone already when all went well
	}
	return d.commit(name, near[0], near[1])
}

func (d *directory) copy(from, to string) error {
	f, err := d.root.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.write(to, f)
}
