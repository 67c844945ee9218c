package object

import (
	"crypto/rand"
	"errors"
	"path"
	"syscall"
)

// errOtherFileSystem says that a file cannot be renamed into a folder, as another file system has
// that: the folder of a bucket, or one below it, is a mount.
var errOtherFileSystem = errors.New("the folder is on another file system")

// onOtherFileSystem tries whether a temporary file can have a name in a folder. A file system
// without links is asked as well: it is compared first.
func (d *directory) onOtherFileSystem(folder, data string) bool {
	name := folderTempName(folder)
	err := d.root.Link(data, name)
	if err == nil {
		_ = d.root.Remove(name)
	}
	return errors.Is(err, syscall.EXDEV)
}

// folderTempName is a name for a file that is being written in the folder of an object. It is no
// object's key.
func folderTempName(folder string) string { return folder + "/" + rand.Text() + sidecar }

// move is commit, also where the temporary files have to be copied into the folder first.
func (d *directory) move(name, data, attributesFile string) error {
	if err := d.commit(name, data, attributesFile); !errors.Is(err, errOtherFileSystem) {
		return err
	}
	tempNames := [2]string{}
	for i, file := range [2]string{data, attributesFile} {
		if file == "" {
			continue
		}
		tempNames[i] = folderTempName(path.Dir(name))
		if err := d.copy(file, tempNames[i]); err != nil {
			return err
		}
		defer func() { _ = d.root.Remove(tempNames[i]) }() // gone already when all went well
	}
	return d.commit(name, tempNames[0], tempNames[1])
}

func (d *directory) copy(from, to string) error {
	f, err := d.root.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.write(to, f)
}
