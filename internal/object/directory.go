package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object/name"
)

// sidecar is the suffix of the files with the attributes of objects.
const sidecar = name.Sidecar

// directory stores the object KEY of a bucket in the file BUCKET/KEY, and its attributes in
// BUCKET/KEY.attrs, in the form that gocloud.dev/blob/fileblob reads. Files are written under
// temporary names, synced, and then renamed.
//
// Objects with equal attributes, such as many small downloads, share one file of attributes through
// hard links. This saves a sync and a file for each of them.
type directory struct {
	path string
	root *os.Root // confines all access, whatever a key or a symbolic link says

	mu sync.RWMutex // object and attributes are renamed together and read together
	// syncedFolders are folders known to be on the disk. The value is whether a folder is on
	// another file system than the temporary files.
	syncedFolders map[string]bool
	// sharedAttributes maps the text of attributes to the temporary name of a file with it.
	sharedAttributes map[string]string
}

const (
	tempDir             = ".temp" // no name of a bucket begins with a dot
	maxSyncedFolders    = 10_000  // beyond that, folders are synced again
	maxSharedAttributes = 100     // beyond that, files of attributes are written again
	copyBufferSize      = 64 << 10
)

// attrs is the content of a file of attributes. The members have the names that fileblob gives
// them.
type attrs struct {
	ContentType string            `json:"user.content_type"`
	Metadata    map[string]string `json:"user.metadata"`
}

// openDirectory opens a directory and makes it if needed. The temporary files of a process that
// died are removed; the caller holds the lock of the data directory, so no other process is writing
// them.
func openDirectory(dir string) (*directory, error) {
	openError := func(err error) error {
		return &job.Error{Kind: job.ReadOnly, Op: "object.open",
			Msg: "the directory of the objects cannot be used", Err: err}
	}
	if err := os.RemoveAll(filepath.Join(dir, tempDir)); err != nil {
		return nil, openError(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, tempDir), 0o700); err != nil {
		return nil, openError(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, openError(err)
	}
	d := &directory{path: dir, root: root, syncedFolders: map[string]bool{},
		sharedAttributes: map[string]string{}}
	if err := d.recordBuckets(); err != nil {
		root.Close()
		return nil, openError(err)
	}
	return d, nil
}

// put writes the two files of an object under temporary names, then moves both in one step under
// the lock, and syncs the folder last:
//
//	write data, sync ─> write attributes, sync ─> move both ─> sync the folder ─> acknowledged
//
// A crash before the move leaves the object as it was and temporary files that the next start
// removes; one after it leaves the new object whole.
func (d *directory) put(ctx context.Context, bucket, key string, body io.Reader,
	a Attributes) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.checkDirectory(); err != nil {
		return err
	}
	data := tempName()
	if err := d.write(data, body); err != nil {
		return err
	}
	defer func() { _ = d.root.Remove(data) }() // no longer there after a success
	var err error
	attributesFile := ""
	if a.ContentType != defaultContentType || len(a.Metadata) > 0 {
		if attributesFile, err = d.writeAttributes(a); err != nil {
			return err
		}
		defer func() { _ = d.root.Remove(attributesFile) }()
	}
	name := bucket + "/" + key
	err = d.move(name, data, attributesFile)
	// A known folder may have been removed, or a file system mounted at it.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EXDEV) {
		d.forgetFolders()
		err = d.move(name, data, attributesFile)
	}
	if err != nil {
		return d.wrapConflict(bucket, err)
	}
	return disk.Sync(filepath.Join(d.path, path.Dir(name)))
}

// create is put, since the directory belongs to this process, which creates one object at a time.
func (d *directory) create(ctx context.Context, bucket, key string, body io.Reader) error {
	return d.put(ctx, bucket, key, body, Attributes{ContentType: defaultContentType})
}

// writeAttributes returns the temporary name of a synced file with the attributes.
func (d *directory) writeAttributes(a Attributes) (name string, err error) {
	text, err := json.Marshal(attrs(a))
	if err != nil {
		return "", err
	}
	d.mu.RLock()
	sharedName := d.sharedAttributes[string(text)]
	d.mu.RUnlock()
	name = tempName()
	isLinked := sharedName != "" && d.link(sharedName, name)
	if isLinked {
		return name, nil
	}
	if err := d.write(name, bytes.NewReader(text)); err != nil {
		return "", err
	}
	d.shareAttributes(string(text), name)
	return name, nil
}

// link reports whether a file has got a second name. Some file systems have no hard links, and a
// file has a maximum of them.
func (d *directory) link(name, second string) bool { return d.root.Link(name, second) == nil }

// shareAttributes keeps a file of attributes for later objects, under a temporary name of its own.
// It does nothing on a file system without hard links.
func (d *directory) shareAttributes(text, name string) {
	kept := tempName() + sidecar
	if !d.link(name, kept) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// There is an old file when it had reached the maximum of links, or when two objects were
	// written at the same time.
	if old := d.sharedAttributes[text]; old != "" {
		_ = d.root.Remove(old)
	} else if len(d.sharedAttributes) >= maxSharedAttributes {
		for _, old := range d.sharedAttributes {
			_ = d.root.Remove(old)
		}
		clear(d.sharedAttributes)
	}
	d.sharedAttributes[text] = kept
}

// tempName returns a name in the folder of temporary files that no other put has.
func tempName() string { return tempDir + "/" + rand.Text() }

// write writes a body to a new file and syncs it.
func (d *directory) write(name string, body io.Reader) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(copyAndSync(f, body), f.Close())
	if err != nil {
		_ = d.root.Remove(name)
	}
	return err
}

// copyAndSync copies a body to a file and brings it to stable storage.
func copyAndSync(f *os.File, body io.Reader) error {
	_, err := io.CopyBuffer(writerOnly{f}, body, make([]byte, copyBufferSize))
	if err != nil {
		return err
	}
	return f.Sync()
}

// writerOnly hides the method ReadFrom, which io.CopyBuffer would use instead of the buffer.
type writerOnly struct{ io.Writer }

// commit renames the temporary files to their final names. A crash between the two renames leaves
// the attributes of an object that was never acknowledged.
func (d *directory) commit(name, data, attributesFile string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	otherFS, err := d.makeFolder(path.Dir(name), data)
	if err != nil {
		return err
	}
	if otherFS && path.Dir(data) != path.Dir(name) {
		return errOtherFileSystem
	}
	if d.isFolder(name) {
		return syscall.EISDIR
	}
	if attributesFile != "" {
		if err := d.root.Rename(attributesFile, name+sidecar); err != nil {
			return err
		}
	} else if err := d.root.Remove(name + sidecar); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.root.Rename(data, name)
}

// isFolder reports whether a name is a folder, which is no object.
func (d *directory) isFolder(name string) bool {
	stat, err := d.root.Stat(name)
	if err != nil {
		return false
	}
	return stat.IsDir()
}

// makeFolder creates a folder and its parents, syncs each, and reports whether the folder is on
// another file system than the temporary files. A folder that existed before may be a mount point,
// so it is tested with the temporary file data.
func (d *directory) makeFolder(name, data string) (otherFS bool, err error) {
	if name == "." {
		return false, nil
	}
	if otherFS, cached := d.syncedFolders[name]; cached {
		return otherFS, nil
	}
	parent := path.Dir(name)
	if otherFS, err = d.makeFolder(parent, data); err != nil {
		return false, err
	}
	isBucket := parent == "."
	if isBucket {
		if err := d.checkBucket(name); err != nil {
			return false, err
		}
	}
	switch err := d.root.Mkdir(name, 0o700); {
	case errors.Is(err, fs.ErrExist):
		otherFS = d.onOtherFileSystem(name, data)
	case err != nil:
		return false, err
	}
	if err := disk.Sync(filepath.Join(d.path, parent)); err != nil {
		return false, err
	}
	if isBucket {
		if err := d.recordBucket(name); err != nil {
			return false, err
		}
	}
	if len(d.syncedFolders) >= maxSyncedFolders {
		clear(d.syncedFolders)
	}
	d.syncedFolders[name] = otherFS
	return otherFS, nil
}

// forgetFolders makes the next put check all folders again.
func (d *directory) forgetFolders() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.syncedFolders)
}

// open opens an object and reads its attributes under one lock, so they belong together also while
// the object is replaced. The file stays readable after that.
func (d *directory) open(ctx context.Context, bucket, key string) (io.ReadSeekCloser, Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, Info{}, err
	}
	name := bucket + "/" + key
	d.mu.RLock()
	defer d.mu.RUnlock()
	f, err := d.root.Open(name)
	if err != nil {
		return nil, Info{}, d.wrapNotFound(bucket, err)
	}
	info, err := d.info(name, f)
	if err != nil {
		f.Close()
		return nil, Info{}, d.wrapNotFound(bucket, err)
	}
	return f, info, nil
}

// info describes an open file, which is no object unless it is a regular file.
func (d *directory) info(name string, f *os.File) (Info, error) {
	stat, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	if !stat.Mode().IsRegular() {
		return Info{}, fs.ErrNotExist
	}
	attributes, err := d.attributes(name)
	return Info{Size: stat.Size(), Modified: stat.ModTime().UTC(), Attributes: attributes}, err
}

// attributes reads the attributes of an object; without a file they are the default ones.
func (d *directory) attributes(name string) (Attributes, error) {
	a := attrs{ContentType: defaultContentType, Metadata: map[string]string{}}
	text, err := d.root.ReadFile(name + sidecar)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Attributes(a), nil
	case err != nil:
		return Attributes{}, err
	}
	err = json.Unmarshal(text, &a)
	return Attributes(a), err
}

// exists reports whether there is an object. The part of a key that is a folder is none.
func (d *directory) exists(ctx context.Context, bucket, key string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	stat, err := d.root.Stat(bucket + "/" + key)
	if err != nil {
		err = d.wrapNotFound(bucket, err)
		if job.IsKind(err, job.NotFound) {
			return false, nil
		}
		return false, err
	}
	return stat.Mode().IsRegular(), nil
}

// remove removes the object, then its attributes, then the folders that are empty now. A crash in
// between leaves attributes without an object, which nothing finds.
func (d *directory) remove(ctx context.Context, bucket, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name := bucket + "/" + key
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isFolder(name) {
		return d.wrapNotFound(bucket, fs.ErrNotExist)
	}
	if err := d.root.Remove(name); err != nil {
		return d.wrapNotFound(bucket, err)
	}
	if err := d.root.Remove(name + sidecar); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for parent := path.Dir(name); parent != bucket; parent = path.Dir(parent) {
		if d.root.Remove(parent) != nil {
			break // it is not empty
		}
		delete(d.syncedFolders, parent)
	}
	return nil
}

func (d *directory) close() error { return d.root.Close() }

// wrapNotFound translates the errors of a name that does not exist to NotFound. A bucket that is no
// folder any more is named first: then every object is missing, and an operator has to act.
func (d *directory) wrapNotFound(bucket string, err error) error {
	if bucketErr := d.checkBucket(bucket); bucketErr != nil {
		return bucketErr
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &job.Error{Kind: job.NotFound, Op: "object", Msg: "there is no such object",
			Err: err}
	}
	return err
}

// wrapConflict translates the errors of keys that exclude each other to Conflict.
func (d *directory) wrapConflict(bucket string, err error) error {
	if bucketErr := d.checkBucket(bucket); bucketErr != nil {
		return bucketErr
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) ||
		errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTEMPTY) {
		return &job.Error{Kind: job.Conflict, Op: "object.put",
			Msg: "another object's key begins with this key, or this one's with another's",
			Err: err}
	}
	return err
}
