package object

import (
	"crypto/rand"
	"errors"
	"path"
	"syscall"
)

// An operator may mount another file system at the folder of a bucket or below it. A file cannot be
// renamed across file systems, so a temporary file is then copied into the folder of its object
// first and renamed there.

// errOtherFileSystem reports that the folder of an object is on another file system than the
// temporary files.
var errOtherFileSystem = errors.New("the folder is on another file system")

// onOtherFileSystem reports whether a folder is on another file system than a temporary file. It
// tries to link the file into the folder. This works even if the file system has no links, because
// the kernel compares the file systems first.
func (d *directory) onOtherFileSystem(folder, data string) bool {
	name := folderTempName(folder)
	if err := d.root.Link(data, name); err != nil {
		return errors.Is(err, syscall.EXDEV)
	}
	_ = d.root.Remove(name)
	return false
}

// folderTempName returns a temporary name in the folder of an object. No object can have it as its
// key.
func folderTempName(folder string) string { return folder + "/" + rand.Text() + sidecar }

// move moves the temporary files to their final names, as commit does. If these are on another file
// system, move copies the files there first.
func (d *directory) move(name, data, attributesFile string) error {
	if err := d.commit(name, data, attributesFile); !errors.Is(err, errOtherFileSystem) {
		return err
	}
	var tempNames [2]string
	for i, file := range [2]string{data, attributesFile} {
		if file == "" {
			continue
		}
		tempNames[i] = folderTempName(path.Dir(name))
		if err := d.copy(file, tempNames[i]); err != nil {
			return err
		}
		defer func() { _ = d.root.Remove(tempNames[i]) }() // no longer there after a success
	}
	return d.commit(name, tempNames[0], tempNames[1])
}

// copy copies a file and syncs the copy.
func (d *directory) copy(from, to string) error {
	f, err := d.root.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.write(to, f)
}
