package object

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object/name"
	"github.com/millrace/millrace/internal/outage"
)

// Config says where objects are stored. It comes from the settings objects.url and objects.bucket;
// the directory is a part of data_dir.
type Config struct {
	Dir string // the directory, when URL is empty; it belongs to one process
	// URL names an S3 store, s3://?region=…&endpoint=…. Its credentials come from the sources that
	// AWS clients use.
	URL     string
	Bucket  string          // the bucket that an empty name means
	Monitor *outage.Monitor // records whether the backend answers; may be nil
}

// Attributes are stored with an object.
type Attributes struct {
	ContentType string            // application/octet-stream when empty
	Metadata    map[string]string // names are stored in lower case
}

// Info describes a stored object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
	Attributes
}

// backend stores buckets. Its callers have checked the names.
type backend interface {
	// put writes an object as a whole or not at all.
	put(ctx context.Context, bucket, key string, body io.Reader, a Attributes) error
	// create writes an object, or keeps the one that exists.
	create(ctx context.Context, bucket, key string, body io.Reader) error
	open(ctx context.Context, bucket, key string) (io.ReadSeekCloser, Info, error)
	exists(ctx context.Context, bucket, key string) (bool, error)
	// remove deletes an object. S3 reports success for one that does not exist, the directory
	// NotFound.
	remove(ctx context.Context, bucket, key string) error
	// list returns up to n keys with the prefix that sort behind after, in byte order.
	list(ctx context.Context, bucket, prefix, after string, n int) ([]string, error)
	close() error
}

// Objects gives access to all objects. Its methods may be called concurrently. It checks names and
// attributes and reports outages, so a backend is as simple as its storage.
type Objects struct {
	bucket  string
	backend backend
	monitor *outage.Monitor
	probe   probe
}

// Open opens the storage. A directory is created if needed, and temporary files that a crash left
// in it are removed. An S3 store is not contacted before the first operation; Ping checks it.
func Open(ctx context.Context, c Config) (*Objects, error) {
	if !ValidBucket(c.Bucket) {
		return nil, invalid("the default bucket has no valid name")
	}
	o := &Objects{bucket: c.Bucket, monitor: c.Monitor, probe: newProbe()}
	var err error
	if c.URL != "" {
		o.backend, err = openS3(ctx, c.URL, c.Bucket)
	} else {
		o.backend, err = openDirectory(c.Dir)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Put writes an object, in place of the one with the same key, and returns its size. The error of a
// body that cannot be read is returned as it is: it is the caller's, and the storage is not to
// blame for it.
func (o *Objects) Put(ctx context.Context, bucket, key string, body io.Reader, a Attributes) (Info,
	error) {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return Info{}, err
	}
	if a, err = a.validate(); err != nil {
		return Info{}, err
	}
	report := o.monitor.Begin()
	counter := &countingReader{ctx: ctx, r: body}
	err = o.backend.put(ctx, bucket, key, counter, a)
	if err != nil && counter.err != nil && ctx.Err() == nil {
		return Info{}, counter.err
	}
	return Info{Key: key, Size: counter.n, Attributes: a},
		reportResult(ctx, report, "object.put", err)
}

// Open returns the content of an object, which the caller closes. Reading from start to end yields
// the object as it is now, even if it is replaced meanwhile; after a Seek the new content may be
// read.
func (o *Objects) Open(ctx context.Context, bucket, key string) (io.ReadSeekCloser, Info, error) {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return nil, Info{}, err
	}
	report := o.monitor.Begin()
	body, info, err := o.backend.open(ctx, bucket, key)
	info.Key = key
	return body, info, reportResult(ctx, report, "object.open",
		o.missingObjectError(ctx, bucket, err))
}

// Exists reports whether there is an object. An error means that it is not known.
func (o *Objects) Exists(ctx context.Context, bucket, key string) (bool, error) {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return false, err
	}
	report := o.monitor.Begin()
	exists, err := o.backend.exists(ctx, bucket, key)
	err = reportResult(ctx, report, "object.exists", o.missingObjectError(ctx, bucket, err))
	if job.IsKind(err, job.NotFound) {
		return false, nil
	}
	return exists, err
}

// Delete removes an object. It is no error when there is none.
func (o *Objects) Delete(ctx context.Context, bucket, key string) error {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return err
	}
	report := o.monitor.Begin()
	err = o.backend.remove(ctx, bucket, key)
	if isDenied(err) && o.isAbsent(ctx, bucket, key) {
		err = nil
	}
	err = reportResult(ctx, report, "object.delete", err)
	if job.IsKind(err, job.NotFound) {
		return nil
	}
	return err
}

// isAbsent reports that an object is known not to exist. An error means that it is not known, so it
// reports false.
func (o *Objects) isAbsent(ctx context.Context, bucket, key string) bool {
	exists, err := o.Exists(ctx, bucket, key)
	if err != nil {
		return false
	}
	return !exists
}

// List returns up to n keys that begin with prefix and sort behind after, in byte order. Keys
// before after are skipped without being read. With credentials that may not list the bucket the
// error is Internal and lasts until an operator grants the right; all other operations need none to
// list.
func (o *Objects) List(ctx context.Context, bucket, prefix, after string, n int) ([]string, error) {
	bucket = cmp.Or(bucket, o.bucket)
	if !ValidBucket(bucket) {
		return nil, invalid("the bucket has no valid name")
	}
	report := o.monitor.Begin()
	found, err := o.backend.list(ctx, bucket, prefix, after, n)
	if isDenied(err) {
		err = o.listDenied(ctx, bucket, err)
	}
	return found, reportResult(ctx, report, "object.list", err)
}

// listDenied returns the error of a storage that refuses to list a bucket. Where it answers
// otherwise, what is missing is the permission to list.
func (o *Objects) listDenied(ctx context.Context, bucket string, err error) error {
	if failed := o.ping(ctx, []string{bucket}); failed != nil {
		return err
	}
	return &job.Error{Kind: job.Internal, Op: "object.list",
		Msg: "the bucket " + bucket + " may not be listed", Err: err}
}

// URI names an object, in the same form for every backend.
func (o *Objects) URI(bucket, key string) string {
	return "s3://" + cmp.Or(bucket, o.bucket) + "/" + key
}

// Close closes the backend. Bodies that are still open stay readable in a directory.
func (o *Objects) Close() error { return o.backend.close() }

// name checks both names and returns the bucket, the default one for an empty name.
func (o *Objects) name(bucket, key string) (string, error) {
	bucket = cmp.Or(bucket, o.bucket)
	switch {
	case !ValidBucket(bucket):
		return "", invalid("the bucket has no valid name")
	case !ValidKey(key):
		return "", invalid("the object's key is not valid")
	}
	return bucket, nil
}

// maxMetadataBytes is how much metadata S3 stores with an object.
const maxMetadataBytes = 2 << 10

// validate refuses attributes that cannot be HTTP headers, and returns them in the form in which
// they are stored.
func (a Attributes) validate() (Attributes, error) {
	a.ContentType = cmp.Or(a.ContentType, defaultContentType)
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	if len(a.ContentType) > 255 || strings.ContainsFunc(a.ContentType, unprintable) {
		return a, invalid("the object's content type is not valid")
	}
	size, lower := 0, make(map[string]string, len(a.Metadata))
	for _, name := range slices.Sorted(maps.Keys(a.Metadata)) {
		value := a.Metadata[name]
		size += len(name) + len(value)
		name = strings.ToLower(name)
		_, duplicate := lower[name]
		if duplicate || name == "" || strings.Trim(name, metadataNameChars) != "" {
			return a, invalid("a name of the object's metadata is not valid: letters, digits, - " +
				"and _, each name once")
		}
		lower[name] = value
	}
	if size > maxMetadataBytes {
		return a, invalid("the object's metadata is larger than 2 KiB")
	}
	a.Metadata = lower
	return a, nil
}

// metadataNameChars are the characters in the names of metadata that are safe in HTTP headers and
// in file systems alike.
const metadataNameChars = "abcdefghijklmnopqrstuvwxyz0123456789-_"

// defaultContentType is the content type of an object that was stored without one. It is not
// written to the disk.
const defaultContentType = "application/octet-stream"

// countingReader counts the bytes read, remembers the error that ended the reading, and ends with
// its context.
type countingReader struct {
	ctx context.Context
	r   io.Reader
	n   int64
	err error
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// ValidKey reports whether a text can be the key of an object. Package name has the rules, which
// contracts use for keys in requests.
func ValidKey(key string) bool { return name.ValidKey(key) }

// ValidBucket reports whether a text can be the name of a bucket.
func ValidBucket(bucket string) bool { return name.ValidBucket(bucket) }

// invalid is the error of a name or of attributes that no backend accepts.
func invalid(msg string) error { return &job.Error{Kind: job.Invalid, Op: "object", Msg: msg} }

// reportResult records the result of a call in the monitor, and returns its error with a kind.
func reportResult(ctx context.Context, report func(error), op string, err error) error {
	err = wrapError(ctx, op, err)
	report(err)
	return err
}

// wrapError gives an error a kind, unless it has one. Whatever is not known better is Unavailable,
// since a retry may help; missing rights and a read-only file system need an operator.
func wrapError(ctx context.Context, op string, err error) error {
	_, known := errors.AsType[*job.Error](err)
	if err != nil && !known {
		return newError(ctx, op, err)
	}
	return err
}

func newError(ctx context.Context, op string, err error) error {
	e := &job.Error{Kind: job.Unavailable, Op: op, Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind = job.ReadOnly
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Kind = job.Timeout
	case ctx.Err() != nil:
		e.Kind = job.Aborted
	}
	return e
}
