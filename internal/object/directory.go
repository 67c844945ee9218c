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
)

// directory keeps the object KEY of a bucket in the file BUCKET/KEY, and its attributes in
// BUCKET/KEY.attrs, in the form that gocloud.dev/blob/fileblob reads. Files are written elsewhere,
// synced, and then renamed. Attributes that object after object has, as small downloads do, are one
// file with many names: that spares a sync and the room of a file.
type directory struct {
	path string
	root *os.Root // nothing outside can be reached, whatever a key or a link says

	// an object and its attributes are renamed together, read together
	mu sync.RWMutex
	// folders that are on the disk, and whether another file system has them
	syncedFolders map[string]bool
	// attributes as text, and a temporary name of the file that holds them
	sharedAttributes map[string]string
}

const (
	tempDir             = ".temp"  // no bucket begins with a dot
	maxSyncedFolders    = 10_000   // folders; beyond that they are synced again
	maxSharedAttributes = 100      // attributes; beyond that they are written again
	copyBufferSize      = 64 << 10 // bytes that are copied at a time
)

// attrs is a sidecar file.
type attrs struct {
	ContentType string            `json:"user.content_type"`
	Metadata    map[string]string `json:"user.metadata"`
}

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
	return &directory{path: dir, root: root, syncedFolders: map[string]bool{},
		sharedAttributes: map[string]string{}}, nil
}

func (d *directory) put(_ context.Context, bucket, key string, body io.Reader, a Attributes) error {
	data := tempName()
	if err := d.write(data, body); err != nil {
		return err
	}
	defer func() { _ = d.root.Remove(data) }() // gone already when all went well
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
	// somebody removed a folder that is known, or mounted one
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EXDEV) {
		d.forgetFolders()
		err = d.move(name, data, attributesFile)
	}
	if err != nil {
		return wrapConflict(err)
	}
	return disk.Sync(filepath.Join(d.path, path.Dir(name)))
}

// create is put: the directory is this process's alone, which makes one at a time.
func (d *directory) create(ctx context.Context, bucket, key string, body io.Reader) error {
	return d.put(ctx, bucket, key, body, Attributes{ContentType: defaultContentType})
}

// writeAttributes gives a temporary name to a file that holds attributes and is on the disk.
func (d *directory) writeAttributes(a Attributes) (name string, err error) {
	text, err := json.Marshal(attrs(a))
	if err != nil {
		return "", err
	}
	d.mu.RLock()
	sharedName := d.sharedAttributes[string(text)]
	d.mu.RUnlock()
	if name = tempName(); sharedName != "" && d.root.Link(sharedName, name) == nil {
		return name, nil
	}
	if err = d.write(name, bytes.NewReader(text)); err == nil {
		d.shareAttributes(string(text), name)
	}
	return name, err
}

// shareAttributes keeps a file of attributes for objects to come, under a name of its own, where
// files can have several.
func (d *directory) shareAttributes(text, name string) {
	kept := tempName() + sidecar
	if d.root.Link(name, kept) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.sharedAttributes[text]; old != "" { // it was full, or two came at the same time
		_ = d.root.Remove(old)
	} else if len(d.sharedAttributes) >= maxSharedAttributes {
		for _, old := range d.sharedAttributes {
			_ = d.root.Remove(old)
		}
		clear(d.sharedAttributes)
	}
	d.sharedAttributes[text] = kept
}

func tempName() string { return tempDir + "/" + rand.Text() }

// write puts a body into a new file and on the disk.
func (d *directory) write(name string, body io.Reader) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(writerOnly{f}, body, make([]byte, copyBufferSize))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = d.root.Remove(name)
	}
	return err
}

// writerOnly hides what io.Copy would rather use than the buffer.
type writerOnly struct{ io.Writer }

// commit gives the temporary files their names. A crash between the two leaves the attributes of an
// object that was never acknowledged.
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
	if stat, err := d.root.Stat(name); err == nil && stat.IsDir() {
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

// folder makes a folder and those above it, each on the disk, and tells whether another file system
// than that of the temporary files has it. One that is there already may be a mount: that is tried
// with a temporary file.
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
	switch err := d.root.Mkdir(name, 0o700); {
	case errors.Is(err, fs.ErrExist):
		otherFS = d.onOtherFileSystem(name, data)
	case err != nil:
		return false, err
	}
	if err := disk.Sync(filepath.Join(d.path, parent)); err != nil {
		return false, err
	}
	if len(d.syncedFolders) >= maxSyncedFolders {
		clear(d.syncedFolders)
	}
	d.syncedFolders[name] = otherFS
	return otherFS, nil
}

func (d *directory) forgetFolders() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.syncedFolders)
}

func (d *directory) open(_ context.Context, bucket, key string) (io.ReadSeekCloser, Info, error) {
	name := bucket + "/" + key
	d.mu.RLock()
	defer d.mu.RUnlock()
	f, err := d.root.Open(name)
	if err != nil {
		return nil, Info{}, wrapNotFound(err)
	}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	info := Info{}
	if err == nil {
		info = Info{Size: stat.Size(), Modified: stat.ModTime().UTC()}
		info.Attributes, err = d.attributes(name)
	}
	if err != nil {
		f.Close()
		return nil, Info{}, wrapNotFound(err)
	}
	return f, info, nil
}

func (d *directory) attributes(name string) (Attributes, error) {
	text, err := d.root.ReadFile(name + sidecar)
	if errors.Is(err, fs.ErrNotExist) {
		return Attributes{ContentType: defaultContentType, Metadata: map[string]string{}}, nil
	}
	attributesFile := attrs{ContentType: defaultContentType, Metadata: map[string]string{}}
	if err == nil {
		err = json.Unmarshal(text, &attributesFile)
	}
	return Attributes(attributesFile), err
}

func (d *directory) exists(_ context.Context, bucket, key string) (bool, error) {
	stat, err := d.root.Stat(bucket + "/" + key)
	if err != nil {
		if err = wrapNotFound(err); job.IsKind(err, job.NotFound) {
			err = nil
		}
		return false, err
	}
	return stat.Mode().IsRegular(), nil
}

// remove removes the object, then its attributes, then the folders that hold nothing any more.
func (d *directory) remove(_ context.Context, bucket, key string) error {
	name := bucket + "/" + key
	d.mu.Lock()
	defer d.mu.Unlock()
	if stat, err := d.root.Stat(name); err == nil && stat.IsDir() {
		return wrapNotFound(fs.ErrNotExist)
	}
	if err := d.root.Remove(name); err != nil {
		return wrapNotFound(err)
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

// wrapNotFound tells a name that names nothing from trouble.
func wrapNotFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &job.Error{Kind: job.NotFound, Op: "object", Msg: "there is no such object",
			Err: err}
	}
	return err
}

// wrapConflict tells keys that cannot be there together from trouble.
func wrapConflict(err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) ||
		errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTEMPTY) {
		return &job.Error{Kind: job.Conflict, Op: "object.put",
			Msg: "another object's key begins with this key, or this one's with another's",
			Err: err}
	}
	return err
}
