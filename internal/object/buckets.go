package object

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
)

// A bucket exists from its first object on, so a folder that somebody moved away or deleted would
// be made again, empty, and its objects would seem never to have existed. The directory therefore
// records its buckets: each has an empty file in bucketsDir, which is made right after the
// folder. A recorded bucket without its folder is an error until an operator puts the folder
// back, or makes an empty one. The same holds for the directory itself while it is open: the node
// goes on holding the directory that was moved away, and must not write there.
const bucketsDir = ".buckets" // no name of a bucket begins with a dot

// recordBuckets records the folders that are there when the directory is opened.
func (d *directory) recordBuckets() error {
	if err := d.root.Mkdir(bucketsDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !ValidBucket(e.Name()) {
			continue
		}
		if err := d.recordBucket(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// recordBucket records that a bucket exists, by an empty file. The folder of the bucket has to be
// on the disk before.
func (d *directory) recordBucket(bucket string) error {
	f, err := d.root.OpenFile(bucketNote(bucket), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), disk.Sync(filepath.Join(d.path, bucketsDir)))
}

func bucketNote(bucket string) string { return path.Join(bucketsDir, bucket) }

// checkBucket returns why a bucket cannot be used, if so: its folder is gone, or something that is
// no folder stands in its place. It is asked when an operation fails, before the error is taken for
// one about a key.
func (d *directory) checkBucket(bucket string) error {
	if err := d.checkDirectory(); err != nil {
		return err
	}
	stat, err := d.root.Stat(bucket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.checkRecorded(bucket)
	case err != nil:
		return err
	case !stat.IsDir():
		return lostError(nil, fmt.Sprintf("the bucket %s is not a folder", bucket))
	}
	return nil
}

// checkRecorded returns an error where a bucket without a folder has had one.
func (d *directory) checkRecorded(bucket string) error {
	_, err := d.root.Stat(bucketNote(bucket))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return lostError(err, fmt.Sprintf("the folder of the bucket %s is gone; put it back, or make "+
		"an empty one to go on without its objects", bucket))
}

// checkDirectory returns an error where the path no longer leads to the directory that was opened.
func (d *directory) checkDirectory() error {
	opened, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	at, err := os.Stat(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !os.SameFile(at, opened) {
		return lostError(err, "the directory of the objects was moved or deleted while the node "+
			"runs; put it back, or start the node again")
	}
	return nil
}

func lostError(err error, msg string) error {
	return &job.Error{Kind: job.ReadOnly, Op: "object", Msg: msg, Err: err}
}
