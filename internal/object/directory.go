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

// directory keeps the object KEY of a bucket in the file BUCKET/KEY, and its attributes in BUCKET/KEY.attrs, in the form
// that gocloud.dev/blob/fileblob reads. Files are written elsewhere, synced, and then renamed. Attributes that object
// after object has, as small downloads do, are one file with many names: that spares a sync and the room of a file.
type directory struct {
	path string
	root *os.Root // nothing outside can be reached, whatever a key or a link says

	mu     sync.RWMutex      // an object and its attributes are renamed together, read together
	known  map[string]bool   // folders that are on the disk, and whether another file system has them
	shared map[string]string // attributes as text, and a temporary name of the file that holds them
}

const (
	temporary  = ".temp"  // no bucket begins with a dot
	mostKnown  = 10_000   // folders; beyond that they are synced again
	mostShared = 100      // attributes; beyond that they are written again
	chunk      = 64 << 10 // bytes that are copied at a time
)

// attrs is a sidecar file.
type attrs struct {
	ContentType string            `json:"user.content_type"`
	Metadata    map[string]string `json:"user.metadata"`
}

func openDirectory(dir string) (*directory, error) {
	broken := func(err error) error {
		return &job.Error{Kind: job.ReadOnly, Op: "object.open", Msg: "the directory of the objects cannot be used", Err: err}
	}
	if err := os.RemoveAll(filepath.Join(dir, temporary)); err != nil {
		return nil, broken(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, temporary), 0o700); err != nil {
		return nil, broken(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, broken(err)
	}
	return &directory{path: dir, root: root, known: map[string]bool{}, shared: map[string]string{}}, nil
}

func (d *directory) put(_ context.Context, bucket, key string, body io.Reader, a Attributes) error {
	data := temporaryName()
	if err := d.write(data, body); err != nil {
		return err
	}
	defer func() { _ = d.root.Remove(data) }() // gone already when all went well
	var err error
	beside := ""
	if a.ContentType != octets || len(a.Metadata) > 0 {
		if beside, err = d.beside(a); err != nil {
			return err
		}
		defer func() { _ = d.root.Remove(beside) }()
	}
	name := bucket + "/" + key
	err = d.move(name, data, beside)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EXDEV) { // somebody removed a folder that is known, or mounted one
		d.forget()
		err = d.move(name, data, beside)
	}
	if err != nil {
		return conflict(err)
	}
	return disk.Sync(filepath.Join(d.path, path.Dir(name)))
}

// make is put: the directory is this process's alone, which makes one at a time.
func (d *directory) make(ctx context.Context, bucket, key string, body io.Reader) error {
	return d.put(ctx, bucket, key, body, Attributes{ContentType: octets})
}

// beside gives a temporary name to a file that holds attributes and is on the disk.
func (d *directory) beside(a Attributes) (name string, err error) {
	text, err := json.Marshal(attrs(a))
	if err != nil {
		return "", err
	}
	d.mu.RLock()
	kept := d.shared[string(text)]
	d.mu.RUnlock()
	if name = temporaryName(); kept != "" && d.root.Link(kept, name) == nil {
		return name, nil
	}
	if err = d.write(name, bytes.NewReader(text)); err == nil {
		d.share(string(text), name)
	}
	return name, err
}

// share keeps a file of attributes for objects to come, under a name of its own, where files can have several.
func (d *directory) share(text, name string) {
	kept := temporaryName() + sidecar
	if d.root.Link(name, kept) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.shared[text]; old != "" { // it was full, or two came at the same time
		_ = d.root.Remove(old)
	} else if len(d.shared) >= mostShared {
		for _, old := range d.shared {
			_ = d.root.Remove(old)
		}
		clear(d.shared)
	}
	d.shared[text] = kept
}

func temporaryName() string { return temporary + "/" + rand.Text() }

// write puts a body into a new file and on the disk.
func (d *directory) write(name string, body io.Reader) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(writerOnly{f}, body, make([]byte, chunk))
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

// commit gives the temporary files their names. A crash between the two leaves the attributes of an object that was
// never acknowledged.
func (d *directory) commit(name, data, beside string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	far, err := d.folder(path.Dir(name), data)
	if err != nil {
		return err
	}
	if far && path.Dir(data) != path.Dir(name) {
		return errFar
	}
	if stat, err := d.root.Stat(name); err == nil && stat.IsDir() {
		return syscall.EISDIR
	}
	if beside != "" {
		if err := d.root.Rename(beside, name+sidecar); err != nil {
			return err
		}
	} else if err := d.root.Remove(name + sidecar); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.root.Rename(data, name)
}

// folder makes a folder and those above it, each on the disk, and tells whether another file system than that of the
// temporary files has it. One that is there already may be a mount: that is tried with a temporary file.
func (d *directory) folder(name, data string) (far bool, err error) {
	if name == "." {
		return false, nil
	}
	if far, known := d.known[name]; known {
		return far, nil
	}
	above := path.Dir(name)
	if far, err = d.folder(above, data); err != nil {
		return false, err
	}
	switch err := d.root.Mkdir(name, 0o700); {
	case errors.Is(err, fs.ErrExist):
		far = d.isFar(name, data)
	case err != nil:
		return false, err
	}
	if err := disk.Sync(filepath.Join(d.path, above)); err != nil {
		return false, err
	}
	if len(d.known) >= mostKnown {
		clear(d.known)
	}
	d.known[name] = far
	return far, nil
}

func (d *directory) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.known)
}

func (d *directory) open(_ context.Context, bucket, key string) (io.ReadSeekCloser, Info, error) {
	name := bucket + "/" + key
	d.mu.RLock()
	defer d.mu.RUnlock()
	f, err := d.root.Open(name)
	if err != nil {
		return nil, Info{}, absent(err)
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
		return nil, Info{}, absent(err)
	}
	return f, info, nil
}

func (d *directory) attributes(name string) (Attributes, error) {
	text, err := d.root.ReadFile(name + sidecar)
	if errors.Is(err, fs.ErrNotExist) {
		return Attributes{ContentType: octets, Metadata: map[string]string{}}, nil
	}
	beside := attrs{ContentType: octets, Metadata: map[string]string{}}
	if err == nil {
		err = json.Unmarshal(text, &beside)
	}
	return Attributes(beside), err
}

func (d *directory) exists(_ context.Context, bucket, key string) (bool, error) {
	stat, err := d.root.Stat(bucket + "/" + key)
	if err != nil {
		if err = absent(err); job.IsKind(err, job.NotFound) {
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
		return absent(fs.ErrNotExist)
	}
	if err := d.root.Remove(name); err != nil {
		return absent(err)
	}
	if err := d.root.Remove(name + sidecar); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for above := path.Dir(name); above != bucket; above = path.Dir(above) {
		if d.root.Remove(above) != nil {
			break // it is not empty
		}
		delete(d.known, above)
	}
	return nil
}

func (d *directory) close() error { return d.root.Close() }

// absent tells a name that names nothing from trouble.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &job.Error{Kind: job.NotFound, Op: "object", Msg: "there is no such object", Err: err}
	}
	return err
}

// conflict tells keys that cannot be there together from trouble.
func conflict(err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTEMPTY) {
		return &job.Error{Kind: job.Conflict, Op: "object.put", Msg: "another object's key begins with this key, or this one's with another's", Err: err}
	}
	return err
}
